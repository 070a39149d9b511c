//! `cp` inside the cluster: only what differs is copied, what cannot be copied is named, and an interrupted copy is resumed.

use std::fs;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use e2e::{LIMIT, TestEnvironment};

use super::site::Site;
use super::{arg, home, on_disk, ordinary_user, plant};

#[test]
fn unchanged_files_are_not_copied_again() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("sub/b", "2")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    let (one, contents, two) = (at("one"), at("one/."), at("two"));
    env.paddlectl(&["cp", "-r", arg(&data), &one]).ok();
    env.paddlectl(&["cp", "-r", &contents, &two])
        .ok()
        .says(&format!("Copying {one} ... Done\n"))
        .says("2 files copied; 2 bytes copied\n");
    let again = ["cp", "-r", &contents, &two];
    env.paddlectl(&again).ok().says(&format!(
        "Copying {one} ... Done\n0 files copied, 2 unchanged; 0 bytes copied\n"
    ));
    env.paddlectl(&["cp", &at("one/a"), &at("one/sub/b"), &at("flat/")])
        .ok()
        .says("2 files copied");
    let flat = ["cp", &at("one/a"), &at("one/sub/b"), &at("flat/")];
    env.paddlectl(&flat).ok().says("0 files copied, 2 unchanged");

    plant(&data, &[("sub/b", "22"), ("sub/new", "3")]);
    env.paddlectl(&["sync", arg(&data), &one]).ok();
    let dry = [&again[..], &["--dry-run"]].concat();
    let planned = env.paddlectl(&dry).ok();
    assert_eq!(planned.stdout, format!("copy {one}/sub/b\ncopy {one}/sub/new\n"));
    env.paddlectl(&again)
        .ok()
        .says("2 files copied, 1 unchanged; 3 bytes copied");
    env.paddlectl(&["check", &one, &two]).ok();
}

#[test]
fn checksum_compares_contents() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "before"), ("b", "same")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["cp", "-r", arg(&data), &at("one")]).ok();
    env.paddlectl(&["cp", "-r", &at("one"), &at("two")]).ok();
    // The same size and time, other bytes.
    let file = on_disk(&env, &at("one/a"));
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "after!").unwrap();
    let open = fs::File::options().write(true).open(&file).unwrap();
    open.set_modified(time).unwrap();

    let folder = ["cp", "-r", &at("one/."), &at("two")];
    env.paddlectl(&folder).ok().says("0 files copied, 2 unchanged");
    let single = ["cp", &at("one/a"), &at("two")];
    env.paddlectl(&single).ok().says("0 files copied, 1 unchanged");
    let by_content = [&folder[..], &["--checksum"]].concat();
    env.paddlectl(&by_content).ok().says("1 file copied, 1 unchanged");
    assert_eq!(env.paddlectl(&["cat", &at("two/a")]).ok().stdout, "after!");

    // Another time, the same bytes.
    open.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000))
        .unwrap();
    env.paddlectl(&by_content)
        .ok()
        .says("0 files copied, 2 unchanged");
    let by_content = [&single[..], &["--checksum", "--transfers", "1"]].concat();
    env.paddlectl(&by_content)
        .ok()
        .says("0 files copied, 1 unchanged");
}

#[test]
fn cp_n_overwrites_nothing_on_the_cluster() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("one/a", "new"), ("one/b", "b"), ("two/a", "old")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["sync", arg(&data), &home]).ok();
    let folder = ["cp", "-n", "-r", &at("one/."), &at("two")];
    let planned = env.paddlectl(&[&folder[..], &["--dry-run"]].concat()).ok();
    let one = at("one");
    assert_eq!(planned.stdout, format!("keep {one}/a\ncopy {one}/b\n"));
    env.paddlectl(&folder).ok().says("1 file copied, 1 kept");
    let single = ["cp", "-n", &at("one/a"), &at("two/a")];
    let planned = env.paddlectl(&[&single[..], &["--dry-run"]].concat()).ok();
    assert_eq!(planned.stdout, format!("keep {one}/a\n"));
    env.paddlectl(&single).ok().says("0 files copied, 1 kept");
    let contents = env.paddlectl(&["cat", &at("two/a"), &at("two/b")]).ok().stdout;
    assert_eq!(contents, "oldb");
}

#[test]
fn entries_of_another_kind_stay_and_the_rest_is_copied() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(
        &data,
        &[
            ("one/x", "file"),
            ("one/y/z", "in a folder"),
            ("one/new", ""),
            ("two/x/precious", ""),
            ("two/y", "file"),
        ],
    );
    let home = home(&env);
    env.paddlectl(&["sync", arg(&data), &home]).ok();
    let two = format!("{home}/two");
    env.paddlectl(&["cp", "-r", &format!("{home}/one/."), &two])
        .refused(1)
        .says(" ... Done, 2 failed")
        .says(&format!("{two}/x: a folder is in the way"))
        .says(&format!("{two}/y: a file is in the way"));
    let left = env.paddlectl(&["ls", "-r", &two]).ok().stdout;
    assert_eq!(left, "new\nx\nx/precious\ny\n");

    let y = on_disk(&env, &two).join("y");
    fs::remove_file(&y).unwrap();
    std::os::unix::fs::symlink("x", &y).unwrap();
    env.paddlectl(&["cp", "-r", &format!("{home}/one/."), &two])
        .refused(1)
        .says(&format!("{two}/y: a link is in the way"));
}

#[test]
fn with_n_only_a_file_in_the_place_of_a_file_counts_as_kept() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("k1/a/f", ""), ("k1/g", "file"), ("k1/same", "new")]);
    plant(&data, &[("k2/a", "file"), ("k2/g/h", ""), ("k2/same", "old")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["sync", arg(&data), &home]).ok();
    let before = env.paddlectl(&["ls", "-r", &at("k2")]).ok().stdout;
    let (k1, k2, contents) = (at("k1"), at("k2"), at("k1/."));
    for words in [&["cp", "-r", "-n", &contents, &k2][..], &["sync", "-n", &k1, &k2]] {
        for flags in [&["--dry-run"][..], &[]] {
            let ran = env.paddlectl(&[words, flags].concat());
            assert_eq!(ran.code, Some(1), "{ran}");
            match flags.is_empty() {
                true => ran.says(" ... Done, 2 failed"),
                false => ran.says("1 kept, 2 would fail"),
            };
            assert_eq!(env.paddlectl(&["ls", "-r", &k2]).ok().stdout, before);
        }
    }
    env.paddlectl(&["cp", "-n", &at("k1/g"), &k2])
        .refused(1)
        .says("a folder is in the way");
    assert_eq!(env.paddlectl(&["cat", &at("k2/same")]).ok().stdout, "old");
}

#[test]
fn no_file_is_tried_in_a_folder_that_cannot_be_created() {
    const FILES: usize = 200;
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let data = env.folder("data");
    for number in 0..FILES {
        plant(
            &data,
            &[(&format!("f{number}"), ""), (&format!("sub{number}/f"), "")],
        );
    }
    plant(&data, &[("taken", "")]);
    let home = "/pfs/cloud/home/ada";
    let at = |name: &str| format!("{home}/{name}");
    site.run("ada", &["cp", "-r", arg(&data), &at("data")]).ok();
    site.run("ada", &["mkdir", &at("dst")]).ok();
    site.run("ada", &["cp", &at("data/taken"), &at("dst/data")]).ok();
    for flags in [&[][..], &["--exclude", "none"]] {
        for dest in ["dst", "dst/data/new"] {
            let before = site.network().exchanges().requests();
            let (from, to) = (at("data"), at(dest));
            let words = [&["cp", "-r"], flags, &[&from, &to]].concat();
            let refused = site.run("ada", &words).refused(1).says(&at("dst/data"));
            assert!(!refused.stderr.contains("/f0"), "{refused}");
            assert!(!refused.stderr.contains("/sub0"), "{refused}");
            let requests = site.network().exchanges().requests() - before;
            assert!((1..=15).contains(&requests), "{words:?}: {requests} requests");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_locked_folder_is_reported_and_the_rest_is_copied() {
    let env = TestEnvironment::new();
    let files = [("a", "1"), ("closed/b", "2"), ("sub/unreadable", "3"), ("z", "4")];
    let site = ordinary_user::site_with(&env, &files);
    let (from, to) = (ordinary_user::TREE, "/pfs/cloud/home/ada/copy");
    let lock = |name: &str| ordinary_user::lock(&site.home("ada").join("t").join(name));
    // One that the listing does not tell of, but the copy does.
    lock("sub/unreadable");
    site.run("ada", &["cp", "-r", from, to])
        .refused(1)
        .says(&format!("{from}/sub/unreadable"))
        .says(" ... Done, 1 failed");
    let copied = site.run("ada", &["ls", "-r", to]).ok().stdout;
    assert_eq!(copied, "a\nclosed\nclosed/b\nsub\nz\n");
    site.run("ada", &["rm", "-r", to]).ok();

    // A folder without any in it.
    let (from_sub, to_sub) = (format!("{from}/sub"), "/pfs/cloud/home/ada/flat");
    plant(&site.home("ada"), &[("t/sub/readable", "5")]);
    site.run("ada", &["cp", "-r", &from_sub, to_sub])
        .refused(1)
        .says(&format!("{from}/sub/unreadable"))
        .says(" ... Done, 1 failed");
    assert_eq!(site.run("ada", &["ls", "-r", to_sub]).ok().stdout, "readable\n");
    fs::remove_file(site.home("ada").join("t/sub/readable")).expect("root may");

    lock("closed");
    site.run("ada", &["cp", "-r", from, to])
        .refused(1)
        .says(&format!("{from}/closed"))
        .says(&format!("{from}/sub/unreadable"))
        .says(" ... Done, 2 failed");
    let copied = site.run("ada", &["ls", "-r", to]).ok().stdout;
    assert_eq!(copied, "a\nsub\nz\n");

    // Also then nothing goes into itself, by whatever name.
    std::os::unix::fs::symlink("t", site.home("ada").join("link")).expect("it is root's to make");
    for inside in ["t/inner", "link/inner"] {
        site.run(
            "ada",
            &["cp", "-r", from, &format!("/pfs/cloud/home/ada/{inside}")],
        )
        .refused(1)
        .says("cannot be put into itself");
    }
    assert!(!site.home("ada").join("t/inner").exists());
}

#[test]
fn an_interrupted_copy_resumes_in_the_same_place() {
    const FILES: usize = 200;
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let data = env.folder("data");
    for number in 0..FILES {
        plant(&data, &[(&format!("f{number}"), &number.to_string())]);
    }
    let (from, to) = ("/pfs/cloud/home/ada/a", "/pfs/cloud/home/ada/new");
    site.run("ada", &["cp", "-r", arg(&data), from]).ok();
    let copy = ["cp", "-r", "--transfers", "1", "--exclude", "none", from, to];
    // The wire stands still in the middle, until the client was interrupted.
    let (report, reached) = channel();
    let (release, wait) = channel::<()>();
    site.network().after(100_000, move || {
        report.send(()).expect("somebody waits");
        let _ = wait.recv_timeout(LIMIT);
    });
    let first = site.spawn("ada", &copy);
    reached.recv_timeout(LIMIT).expect("this many bytes pass");
    first.interrupt();
    assert!(!first.end().0.success());
    drop(release);
    let count = || fs::read_dir(site.home("ada").join("new")).unwrap().count();
    let copied = count();
    assert!((1..FILES).contains(&copied), "{copied} files were there");

    let second = site.run("ada", &copy).ok();
    assert!(
        !second.stderr.contains(&format!("{FILES} files copied")),
        "{second}"
    );
    assert_eq!(count(), FILES, "all lie where the first try put them");
    site.run("ada", &["check", from, to]).ok();
    site.run("ada", &copy).ok();
    assert!(
        site.home("ada").join("new/a/f0").exists(),
        "cp(1)'s rules hold again"
    );
}

#[test]
fn links_that_point_outside_the_folder_are_reported_and_the_rest_is_copied() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("one/a", "1"), ("one/sub/b", "2"), ("beside", "")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["sync", arg(&data), &home]).ok();
    let there = on_disk(&env, &at("one"));
    for (name, target) in [
        ("in", "sub/b"),
        ("out", "/etc/passwd"),
        ("sub/up", "../../beside"),
    ] {
        std::os::unix::fs::symlink(target, there.join(name)).expect("the embedded server is ours");
    }
    let (one, contents, new, synced) = (at("one"), at("one/."), at("new"), at("synced"));
    plant(
        &on_disk(&env, &home),
        &[("synced/out/of/the/way", ""), ("synced/only", "")],
    );
    for (words, left) in [
        (&["cp", "-r", &one, &new][..], "a\nin\nsub\nsub/b\n"),
        // Where something is there.
        (&["cp", "-r", &contents, &new], "a\nin\nsub\nsub/b\n"),
        (
            &["sync", "--delete", &one, &synced],
            "a\nin\nonly\nout\nout/of\nout/of/the\nout/of/the/way\nsub\nsub/b\n",
        ),
    ] {
        let planned = env.paddlectl(&[words, &["--dry-run"]].concat());
        assert_eq!(planned.code, Some(1), "{planned}");
        planned.says("2 would fail");
        env.paddlectl(words)
            .refused(1)
            .says(" ... Done, 2 failed")
            .says(&format!(
                "{one}/out: the symbolic link `out` points outside the folder, to `/etc/passwd`"
            ))
            .says(&format!("{one}/sub/up: "));
        let dest = words.last().expect("a destination");
        assert_eq!(env.paddlectl(&["ls", "-r", dest]).ok().stdout, left, "{words:?}");
    }
    // Who leaves them out themselves hears nothing of them.
    env.paddlectl(&[
        "cp",
        "-r",
        "--exclude",
        "out",
        "--exclude",
        "up",
        &one,
        &at("chosen"),
    ])
    .ok();
}
