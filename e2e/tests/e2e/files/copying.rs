//! `cp` in both directions: a download equals what was uploaded, and nothing is sent twice.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use e2e::{TestEnvironment, wait_until};

use super::{arg, assert_same, bytes_moved, home, noise, plant};

#[test]
fn a_downloaded_folder_equals_the_uploaded_one() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    plant(
        &data,
        &[("a.txt", "alpha\n"), ("sub/b.txt", "beta\n"), ("sub/empty", "")],
    );
    fs::create_dir(data.join("nothing inside")).unwrap();
    fs::write(data.join("big.bin"), noise(1, 9_000_000)).unwrap();
    fs::write(data.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(data.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("sub/b.txt", data.join("link")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let file = fs::File::options().write(true).open(data.join("a.txt")).unwrap();
    file.set_modified(old).unwrap();

    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote])
        .ok()
        .says("Uploading ")
        .says(" ... Done");
    env.paddlectl(&["cp", &remote, arg(&back)])
        .ok()
        .says(&format!("Downloading {remote} ... Done"));

    let copy = back.join("data");
    assert_same(&data, &copy);
    assert_eq!(fs::metadata(copy.join("a.txt")).unwrap().modified().unwrap(), old);
    let mode = |name: &str| fs::metadata(copy.join(name)).unwrap().permissions().mode() & 0o111;
    assert_ne!(mode("run.sh"), 0, "what could be run still can");
    assert_eq!(mode("a.txt"), 0);
    env.paddlectl(&["check", arg(&data), &remote]).ok();
}

#[test]
fn unchanged_files_are_not_sent_again() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    for number in 0..50 {
        plant(
            &data,
            &[(&format!("d{}/f{number}", number % 5), &number.to_string())],
        );
    }
    let remote = format!("{}/data", home(&env));
    let copy = ["cp", "-r", arg(&data), &remote];
    env.paddlectl(&copy).ok().says("50 files copied");
    // `data` is there now, so it lands inside; as with cp(1).
    let into = ["cp", "-r", arg(&data), &format!("{}/", home(&env))];
    let again = env.paddlectl(&into).ok().says("0 files copied, 50 unchanged");
    assert_eq!(bytes_moved(&again), 0.0, "{again}");
    plant(&data, &[("d0/f0", "another")]);
    env.paddlectl(&into).ok().says("1 file copied, 49 unchanged");
    env.paddlectl(&["cat", &format!("{remote}/d0/f0")])
        .ok()
        .prints("another");
}

#[test]
fn checksum_finds_a_change_that_size_and_time_hide() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    let file = data.join("a");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let write = |text: &str| {
        fs::write(&file, text).unwrap();
        let open = fs::File::options().write(true).open(&file).unwrap();
        open.set_modified(long_ago).unwrap();
    };
    let remote = format!("{}/a", home(&env));
    write("before");
    env.paddlectl(&["cp", arg(&file), &remote]).ok();
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    write("after!");
    let hidden = ["cp", arg(&file), &remote];
    env.paddlectl(&hidden).ok().says("0 files copied, 1 unchanged");
    let compared = [
        &hidden[..],
        &["--checksum", "--transfers", "1", "--bwlimit", "1M"],
    ]
    .concat();
    env.paddlectl(&compared).ok().says("1 file copied");
    assert_eq!(env.paddlectl(&["cat", &remote]).ok().stdout, "after!");
    let down = ["cp", "--checksum", &remote, arg(&back)];
    env.paddlectl(&down).ok().says("1 file copied");
    assert_eq!(fs::read_to_string(back.join("a")).unwrap(), "after!");
    env.paddlectl(&down).ok().says("0 files copied, 1 unchanged");
}

#[test]
fn one_changed_line_of_a_large_file_sends_kilobytes() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    let file = data.join("big.bin");
    let mut bytes = noise(2, 24_000_000);
    fs::write(&file, &bytes).unwrap();
    let remote = format!("{}/big.bin", home(&env));
    let copy = ["cp", arg(&file), &remote];
    let first = env.paddlectl(&copy).ok();
    assert!(bytes_moved(&first) >= 23.9e6, "all of it went: {first}");

    bytes.splice(12_000_000..12_000_000, *b"one more line\n");
    fs::write(&file, &bytes).unwrap();
    let second = env.paddlectl(&copy).ok();
    assert!(bytes_moved(&second) < 500e3, "only the change went: {second}");
    let back = env.folder("back").join("big.bin");
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    assert!(fs::read(back).unwrap() == bytes, "the result is the new file");
}

#[test]
fn unusual_names_survive_a_round_trip() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    let names: [&[u8]; 12] = [
        b" leading and trailing ",
        b"-rf",
        b"new\nline",
        b"tab\tand \x1b[31m escape",
        b"caf\xe9 not utf-8",
        "übergröße 漢字 🎉".as_bytes(),
        b"back\\slash",
        b"*",
        b"[a-z]?",
        b"quo'te\"s`and$(date)",
        b"%2e%2e%2f",
        b".hidden",
    ];
    for name in names {
        fs::write(data.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::create_dir(data.join(OsStr::from_bytes(b"fol\xffder"))).unwrap();
    fs::write(data.join(OsStr::from_bytes(b"fol\xffder/x")), "x").unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    assert_same(&data, &back.join("data"));
    let listed = env.paddlectl(&["ls", "-a", "-o", "json", &remote]).ok().json();
    assert_eq!(listed.as_array().unwrap().len(), names.len() + 1);
}

#[test]
fn a_deep_tree_and_a_long_name_survive_a_round_trip() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    let deep = vec!["d"; 200].join("/");
    plant(&data, &[(&format!("{deep}/leaf"), "leaf")]);
    plant(&data, &[(&"n".repeat(255), "long")]);
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    assert_same(&data, &back.join("data"));
}

#[test]
fn cp_reads_from_and_writes_to_pipes() {
    let env = TestEnvironment::new();
    let remote = format!("{}/logs/from-a-pipe", home(&env));
    let mut command = env.command("paddlectl", &["cp", "-", &remote]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"through\na pipe\n")
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(
        env.paddlectl(&["cp", &remote, "-"]).ok().stdout,
        "through\na pipe\n"
    );
    assert_eq!(env.paddlectl(&["cat", &remote, &remote]).ok().stdout.len(), 30);
    let part = ["cat", "--offset", "8", "--length", "1", &remote];
    assert_eq!(env.paddlectl(&part).ok().stdout, "a");
    env.paddlectl(&["cp", "-", &home(&env)])
        .refused(1)
        .says("is a folder");
}

#[test]
fn patterns_match_names_on_both_sides() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    plant(&data, &[("a.txt", "a"), ("b.txt", "b"), ("c.log", "c")]);
    let remote = format!("{}/texts/", home(&env));
    env.paddlectl(&["cp", &format!("{}/*.txt", arg(&data)), &remote])
        .ok();
    let listed = env.paddlectl(&["ls", &remote]).ok().stdout;
    assert_eq!(listed, "a.txt\nb.txt\n");
    env.paddlectl(&["cp", &format!("{remote}[b-z]*"), arg(&back)])
        .ok();
    assert_eq!(fs::read_dir(&back).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(back.join("b.txt")).unwrap(), "b");
    env.paddlectl(&["cp", &format!("{remote}*.none"), arg(&back)])
        .refused(1)
        .says("nothing matches it");
    env.paddlectl(&[
        "cp",
        "-r",
        remote.trim_end_matches('/'),
        &format!("{remote}inner"),
    ])
    .refused(1)
    .says("cannot be put into itself");
    env.paddlectl(&["rm", &format!("{remote}*.txt")]).ok();
    assert_eq!(env.paddlectl(&["ls", &remote]).ok().stdout, "");
}

#[test]
fn an_impossible_destination_is_reported() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "a"), ("b", "b")]);
    let home = home(&env);
    let (file, folder) = (format!("{home}/file"), format!("{home}/none"));
    env.paddlectl(&["cp", arg(&data.join("a")), &file]).ok();
    let (a, b) = (data.join("a"), data.join("b"));
    let needs = "there is no such folder, and several sources cannot share one name";
    for sources in [[arg(&a), arg(&b)], [&file, &file]] {
        env.paddlectl(&["cp", sources[0], sources[1], &folder])
            .refused(1)
            .says(&format!("cannot copy to `{folder}`: {needs}"))
            .says("hint: end the destination with `/`");
        let refused = env
            .paddlectl(&["cp", sources[0], sources[1], &file])
            .refused(1)
            .says(&format!("cannot copy to `{file}`: it is a file, not a folder"));
        assert!(!refused.stderr.contains("hint"), "{refused}");
    }
    env.paddlectl(&["mv", &file, &file, &folder])
        .refused(1)
        .says(&format!("cannot move to `{folder}`: {needs}"));
    let behind = format!("{file}/x");
    env.paddlectl(&["cp", arg(&a), &behind])
        .refused(1)
        .says(&format!("`{file}`: it is not a folder"));
    for verb in ["cp", "mv"] {
        env.paddlectl(&[verb, &file])
            .refused(2)
            .says("the destination is missing");
    }
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "a"), ("z", "z")]);
    symlink("/etc/passwd", data.join("outside")).unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote])
        .refused(1)
        .says("Done, 1 failed")
        .says("2 files copied, 1 failed; ")
        .says("outside")
        .says("/etc/passwd");
    assert_eq!(env.paddlectl(&["ls", &remote]).ok().stdout, "a\nz\n");
    let (existing, missing) = (data.join("a"), data.join("none"));
    env.paddlectl(&["cp", arg(&existing), arg(&missing), &remote])
        .refused(1)
        .says("there is no such file");
}

#[test]
fn cp_n_overwrites_nothing() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "old"), ("b", "b")]);
    let remote = format!("{}/data", home(&env));
    let at = |name: &str| format!("{remote}/{name}");
    env.paddlectl(&["cp", arg(&data.join("a")), &at("a")]).ok();
    plant(&data, &[("a", "newer")]);
    let dest = format!("{}/", home(&env));
    env.paddlectl(&["cp", "-r", "-n", arg(&data), &dest])
        .ok()
        .says("1 kept");
    assert_eq!(env.paddlectl(&["cat", &at("a"), &at("b")]).ok().stdout, "oldb");
    let local = data.join("a");
    env.paddlectl(&["cp", "-n", &at("a"), arg(&local)]).ok();
    assert_eq!(fs::read_to_string(local).unwrap(), "newer");
}

#[test]
fn filters_apply_to_uploads() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(
        &data,
        &[("a.txt", ""), ("a.log", ""), ("tmp/x", ""), ("sub/keep.log", "")],
    );
    let copied = |flags: &[&str], name: &str| -> Vec<String> {
        let remote = format!("{}/{name}", home(&env));
        let line = [&["cp", "-r"], flags, &[arg(&data), &remote]].concat();
        env.paddlectl(&line).ok();
        let listed = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
        listed.lines().map(str::to_owned).collect()
    };
    let filters = ["--include", "keep.log", "--exclude", "*.log", "--exclude", "/tmp"];
    assert_eq!(copied(&filters, "one"), ["a.txt", "sub", "sub/keep.log"]);
    assert_eq!(copied(&["--include", "*.txt"], "two"), ["a.txt"]);
    let list = env.folder("lists").join("list");
    fs::write(&list, "tmp\na.txt\n").unwrap();
    assert_eq!(
        copied(&["--files-from", arg(&list)], "three"),
        ["a.txt", "tmp", "tmp/x"]
    );
}

#[test]
fn cp_and_mv_work_inside_the_cluster() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("sub/b", "2")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["cp", "-r", arg(&data), &at("one")]).ok();
    env.paddlectl(&["cp", &at("one"), &at("two")])
        .refused(1)
        .says("-r");
    env.paddlectl(&["cp", "-r", &at("one"), &at("two")])
        .ok()
        .says("copied");
    env.paddlectl(&["check", &at("one"), &at("two")]).ok();
    env.paddlectl(&["cp", &at("one/a"), &at("one/a")]).refused(1);
    for line in [&["cp", "-r"][..], &["cp", "-r", "--dry-run"], &["mv"]] {
        let inner = at("one/new/inner");
        env.paddlectl(&[line, &[&at("one"), &inner]].concat())
            .refused(1)
            .says(&format!(
                "`{}`: it cannot be put into itself (`{inner}`)",
                at("one")
            ));
    }
    assert_eq!(env.paddlectl(&["ls", &at("one")]).ok().stdout, "a\nsub\n");
    let keeping = ["mv", "-n", &at("one/a"), &at("two/sub/b"), &at("two/")];
    env.paddlectl(&keeping)
        .ok()
        .says(&format!("note: `{}` is left unchanged", at("two/a")));
    env.paddlectl(&["mv", &at("two/b"), &at("two/sub/")]).ok();
    env.paddlectl(&["mv", &at("two"), &at("three")]).ok();
    env.paddlectl(&["stat", &at("two")]).refused(1);
    env.paddlectl(&["mv", &at("three/a"), &at("three/sub/b"), &at("new/")])
        .ok();
    assert_eq!(env.paddlectl(&["ls", &at("new")]).ok().stdout, "a\nb\n");
    env.paddlectl(&["cp", "-r", &at("one"), &at("new")]).ok();
    assert_eq!(env.paddlectl(&["cat", &at("new/one/sub/b")]).ok().stdout, "2");
}

/// By cp(1)'s rules the second try would copy into the folder that the first one created.
#[test]
fn an_interrupted_folder_copy_resumes_in_the_same_place() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.home().join("back"));
    fs::write(data.join("big.bin"), noise(5, 20_000_000)).unwrap();
    plant(&data, &[("small", "x\n")]);
    let remote = format!("{}/up", home(&env));
    let slowly = ["cp", "-r", "--bwlimit", "1M"];

    let first = env.start(&[&slowly[..], &[arg(&data), &remote]].concat());
    wait_until("the folder is there", || {
        let stat = env.paddlectl(&["stat", &remote]);
        (stat.code == Some(0)).then_some(())
    });
    first.interrupt();
    assert!(!first.end().0.success());
    let away = env.home().join("away");
    fs::rename(&data, &away).unwrap();
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).refused(1);
    fs::rename(&away, &data).unwrap();
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();

    let first = env.start(&[&slowly[..], &[&remote, arg(&back)]].concat());
    wait_until("the folder is here", || back.exists().then_some(()));
    first.interrupt();
    assert!(!first.end().0.success());
    let away = format!("{remote}-away");
    env.paddlectl(&["mv", &remote, &away]).ok();
    env.paddlectl(&["cp", &remote, arg(&back)]).refused(1);
    env.paddlectl(&["mv", &away, &remote]).ok();
    env.paddlectl(&["cp", &remote, arg(&back)]).ok();
    assert_same(&data, &back);

    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    env.paddlectl(&["stat", &format!("{remote}/data/small")]).ok();
}

#[test]
fn a_download_follows_a_named_link_and_leaves_pipes_and_broken_links_alone() {
    let env = TestEnvironment::new();
    let here = env.folder("here");
    plant(&here, &[("new", "from the cluster"), ("deep/old", "before")]);
    let remote = format!("{}/new", home(&env));
    env.paddlectl(&["cp", arg(&here.join("new")), &remote]).ok();

    let link = here.join("link");
    symlink("deep/old", &link).unwrap();
    env.paddlectl(&["cp", &remote, arg(&link)]).ok();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("deep/old"));
    assert_eq!(
        fs::read_to_string(here.join("deep/old")).unwrap(),
        "from the cluster"
    );

    let broken = here.join("broken");
    symlink("nowhere", &broken).unwrap();
    env.paddlectl(&["cp", &remote, arg(&broken)])
        .refused(1)
        .says("is a broken link");
    assert!(fs::symlink_metadata(&broken).unwrap().is_symlink());

    let socket = here.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    env.paddlectl(&["cp", &remote, arg(&socket)])
        .refused(1)
        .says("is not a regular file and would be replaced by one; `-` writes to a pipe");
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    fs::remove_file(&socket).unwrap();
}
