//! `sync`: one folder becomes like the other.

use std::fs;
use std::path::PathBuf;

use e2e::TestEnvironment;

use super::site::Site;
use super::{arg, assert_same, home, make_pipe, noise, ordinary_user, plant};

#[test]
fn a_synced_folder_is_equal_and_extra_files_are_removed_only_with_delete() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    plant(&data, &[("a", "1"), ("sub/b", "2"), ("old/c", "3")]);
    let remote = format!("{}/mirror", home(&env));
    env.paddlectl(&["sync", arg(&data), &remote])
        .ok()
        .says("3 files copied");
    env.paddlectl(&["sync", arg(&data), &remote])
        .ok()
        .says("0 files copied, 3 unchanged");

    fs::remove_dir_all(data.join("old")).unwrap();
    plant(&data, &[("a", "11")]);
    env.paddlectl(&["sync", arg(&data), &remote]).ok();
    env.paddlectl(&["check", arg(&data), &remote])
        .prints("only right\told/c");

    let dry = ["sync", "--delete", "--dry-run", arg(&data), &remote];
    let planned = env.paddlectl(&dry).ok();
    assert_eq!(planned.stdout, format!("delete {remote}/old\n"));
    env.paddlectl(&["sync", "--delete", arg(&data), &remote])
        .ok()
        .says("1 removed");
    env.paddlectl(&["check", arg(&data), &remote]).ok();

    plant(&back, &[("stray", ""), ("a/is/a/folder/here", "")]);
    env.paddlectl(&["sync", "--delete", &remote, arg(&back)]).ok();
    assert_same(&data, &back);
}

#[test]
fn with_n_entries_of_another_kind_fail_and_nothing_changes() {
    let env = TestEnvironment::new();
    let (new, old) = (env.folder("new"), env.folder("old"));
    plant(&new, &[("a/f", ""), ("g", "file"), ("same", "new")]);
    plant(
        &old,
        &[("a", "file"), ("g/h", ""), ("same", "old"), ("stray", "")],
    );
    let (source, dest) = (format!("{}/new", home(&env)), format!("{}/old", home(&env)));
    for (from, to) in [(&new, &source), (&old, &dest)] {
        env.paddlectl(&["sync", arg(from), to]).ok();
    }
    let before = env.paddlectl(&["ls", "-r", &dest]).ok().stdout;
    for (from, to) in [(arg(&new), dest.as_str()), (source.as_str(), arg(&old))] {
        let contents = format!("{from}/.");
        for words in [
            &["sync", "-n", "--delete", from, to][..],
            &["sync", "-n", from, to],
            &["cp", "-r", "-n", &contents, to],
        ] {
            for flags in [&["--dry-run"][..], &[]] {
                let ran = env.paddlectl(&[words, flags].concat());
                assert_eq!(ran.code, Some(1), "{ran}");
                let ran = ran
                    .says("a: a file is in the way")
                    .says("g: a folder is in the way");
                match flags.is_empty() {
                    true => ran.says(" ... Done, 2 failed"),
                    false => ran.says("1 kept, 2 would fail"),
                };
                assert_eq!(
                    env.paddlectl(&["ls", "-r", &dest]).ok().stdout,
                    before,
                    "{words:?}"
                );
                env.paddlectl(&["check", arg(&old), &dest]).ok();
            }
        }
    }
    let single = [arg(&new.join("g")), &format!("{source}/g")].map(str::to_owned);
    for (from, to) in single.iter().zip([dest.as_str(), arg(&old)]) {
        env.paddlectl(&["cp", "-n", from, to])
            .refused(1)
            .says("a folder is in the way");
    }
}

#[test]
fn a_nonempty_folder_is_replaced_only_with_delete() {
    let env = TestEnvironment::new();
    let (data, theirs) = (env.folder("data"), env.folder("theirs"));
    plant(&data, &[("x", "a file here"), ("y", "new")]);
    plant(&theirs, &[("x/precious", "a folder there")]);
    let remote = format!("{}/mirror", home(&env));
    let other = format!("{}/other", home(&env));
    env.paddlectl(&["sync", arg(&theirs), &remote]).ok();
    let in_the_way = "a folder is in the way";
    env.paddlectl(&["sync", arg(&data), &remote])
        .refused(1)
        .says(in_the_way)
        .says("--delete");
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "x\nx/precious\ny\n", "the rest went");

    env.paddlectl(&["sync", arg(&data), &other]).ok();
    env.paddlectl(&["sync", &other, arg(&theirs)])
        .refused(1)
        .says(in_the_way);
    assert!(theirs.join("x/precious").exists() && theirs.join("y").exists());
    env.paddlectl(&["sync", &other, &remote])
        .refused(1)
        .says(in_the_way);
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "x\nx/precious\ny\n");

    env.paddlectl(&["sync", "--delete", arg(&data), &remote]).ok();
    assert_eq!(env.paddlectl(&["ls", "-r", &remote]).ok().stdout, "x\ny\n");
}

#[test]
fn extra_files_stay_until_everything_was_copied() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 4Mi, files: 1000}\n");
    let (data, theirs, new) = (env.folder("data"), env.folder("theirs"), env.folder("new"));
    let remote = "/pfs/cloud/home/ada/mirror";
    plant(&theirs, &[("old/a", "1"), ("way/b", "in the way")]);
    site.run("ada", &["sync", arg(&theirs), remote]).ok();
    fs::write(data.join("way"), noise(3, 5 << 20)).unwrap();
    let sync = ["sync", "--delete", arg(&data), remote];
    site.run("ada", &sync)
        .refused(1)
        .says("nothing is deleted at the destination")
        .says("0 files copied, 1 removed, 1 failed");
    let there = site.home("ada").join("mirror");
    assert!(there.join("old/a").exists(), "nobody needs its room");

    plant(&data, &[("way", "small")]);
    site.run("ada", &sync).ok().says("1 file copied, 1 removed;");
    assert_same(&data, &there);

    // Downwards: a link that leads out is not followed, and nothing goes for it.
    plant(&new, &[("only here", "")]);
    std::os::unix::fs::symlink("/etc", there.join("out")).unwrap();
    let down = ["sync", "--delete", remote, arg(&new)];
    site.run("ada", &down)
        .refused(1)
        .says("nothing is deleted at the destination");
    assert!(new.join("only here").exists() && new.join("way").exists());
    fs::remove_file(there.join("out")).unwrap();
    site.run("ada", &down).ok();
    assert_same(&data, &new);
}

/// Listings do not tell of pipes and sockets.
#[test]
fn a_folder_that_is_listed_as_empty_is_replaced_only_with_delete() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(
        &data,
        &[
            ("x", "a file here"),
            ("y", "new"),
            ("z", "in the place of an empty folder"),
        ],
    );
    let (remote, other) = (format!("{}/mirror", home(&env)), format!("{}/other", home(&env)));
    env.paddlectl(&["sync", arg(&data), &other]).ok();
    env.paddlectl(&["mkdir", "-p", &format!("{remote}/x"), &format!("{remote}/z")])
        .ok();
    let there = super::on_disk(&env, &remote);
    let here = env.folder("here");
    for folder in [&there, &here] {
        fs::create_dir_all(folder.join("x")).unwrap();
        fs::create_dir_all(folder.join("z")).unwrap();
        make_pipe(&folder.join("x/pipe"));
    }
    for (source, dest, folder) in [
        (arg(&data), remote.as_str(), &there),
        (&other, &remote, &there),
        (&other, arg(&here), &here),
    ] {
        for flags in [&["--dry-run"][..], &[]] {
            let ran = env.paddlectl(&[&["sync"], flags, &[source, dest]].concat());
            assert_eq!(ran.code, Some(1), "{ran}");
            let said = ran.says("a folder is in the way").says("--delete");
            assert!(!said.stdout.contains("/x\n"), "{said}");
        }
        assert!(folder.join("x/pipe").exists(), "{source} to {dest}");
        assert!(folder.join("z").is_dir(), "nothing goes unasked");
        assert!(folder.join("y").is_file(), "the rest went");
    }
    env.paddlectl(&["sync", "--delete", arg(&data), &remote]).ok();
    env.paddlectl(&["sync", "--delete", &remote, arg(&here)]).ok();
    for folder in [&there, &here] {
        assert!(folder.join("x").is_file() && folder.join("z").is_file());
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_reported_even_in_a_dry_run() {
    let env = TestEnvironment::new();
    let (data, here) = (env.folder("data"), env.folder("here"));
    plant(
        &data,
        &[("x", "a file here"), ("y", "new"), ("z/in", "a folder here")],
    );
    let (remote, other) = (format!("{}/mirror", home(&env)), format!("{}/other", home(&env)));
    env.paddlectl(&["sync", arg(&data), &other]).ok();
    env.paddlectl(&["mkdir", &remote]).ok();
    let there = super::on_disk(&env, &remote);
    for pipe in [there.join("x"), there.join("z"), here.join("x"), here.join("z")] {
        make_pipe(&pipe);
    }
    for (source, dest, folder) in [
        (arg(&data), remote.as_str(), &there),
        (&other, &remote, &there),
        (&other, arg(&here), &here),
    ] {
        for flags in [&["--dry-run"][..], &["--dry-run", "--delete"], &["--delete"], &[]] {
            let ran = env.paddlectl(&[&["sync"], flags, &[source, dest]].concat());
            assert_eq!(ran.code, Some(1), "{ran}");
            let ran = ran
                .says(&format!("{dest}/x: a socket, pipe or device is in the way"))
                .says(&format!("{dest}/z: a socket, pipe or device is in the way"));
            let is_promised = ran.stdout.contains("/x\n") || ran.stdout.contains("/z");
            assert!(!is_promised, "{ran}");
        }
        assert!(!folder.join("x").is_file() && !folder.join("z").is_dir());
        assert!(folder.join("y").is_file(), "the rest went");
    }
}

#[test]
fn a_folder_with_only_excluded_files_is_not_replaced() {
    let env = TestEnvironment::new();
    let (data, theirs) = (env.folder("data"), env.folder("theirs"));
    plant(&data, &[("x", "a file here"), ("y", "new")]);
    plant(&theirs, &[("x/precious.log", "")]);
    let remote = format!("{}/mirror", home(&env));
    env.paddlectl(&["sync", arg(&theirs), &remote]).ok();
    env.paddlectl(&["sync", "--exclude", "*.log", arg(&data), &remote])
        .refused(1)
        .says("a folder is in the way");
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "x\nx/precious.log\ny\n");
}

const MIRROR: &str = "/pfs/cloud/home/ada/mirror";

/// A server that is not root, with these files in a mirror; and a folder with a file `x` and a file `y` that is to
/// become one.
fn site_with_mirror<'a>(env: &'a TestEnvironment, theirs: &[(&str, &str)]) -> (Site<'a>, PathBuf) {
    let site = ordinary_user::site(env);
    let (data, folder) = (env.folder("data"), env.folder("theirs"));
    plant(&data, &[("x", "a file here"), ("y", "new")]);
    plant(&folder, theirs);
    site.run("ada", &["sync", arg(&folder), MIRROR]).ok();
    (site, data)
}

/// What a locked folder holds is in no listing.
#[test]
#[ignore = "needs root"]
fn a_folder_with_unreadable_contents_is_not_replaced() {
    let env = TestEnvironment::new();
    let (site, data) = site_with_mirror(&env, &[("x/closed/precious", "")]);
    let other = "/pfs/cloud/home/ada/other";
    site.run("ada", &["sync", arg(&data), other]).ok();
    let locked = site.home("ada").join("mirror/x/closed");
    ordinary_user::lock(&locked);
    for (source, flags) in [(arg(&data), &["--dry-run"][..]), (arg(&data), &[]), (other, &[])] {
        let ran = site.run("ada", &[&["sync"], flags, &[source, MIRROR]].concat());
        assert_eq!(ran.code, Some(1), "{ran}");
        ran.says("a folder is in the way");
        assert!(locked.join("precious").exists());
        let went = site.home("ada").join("mirror/y").exists();
        assert_eq!(went, flags.is_empty(), "the rest went");
    }
}

#[test]
#[ignore = "needs root"]
fn failed_and_unlisted_entries_are_counted_separately() {
    let env = TestEnvironment::new();
    let theirs = [("x/precious", ""), ("closed/a", "")];
    let (site, data) = site_with_mirror(&env, &theirs);
    let remote = MIRROR;
    let ran = site.run("ada", &["sync", arg(&data), remote]).refused(1);
    ran.says(" ... Done, 1 failed\n1 file copied, 1 failed;");

    let there = site.home("ada").join("mirror");
    fs::remove_dir_all(there.join("x")).expect("root may");
    ordinary_user::lock(&there.join("closed"));
    site.run("ada", &["sync", arg(&data), remote])
        .refused(1)
        .says(" ... Done\n1 file copied, 1 unchanged, 1 not listed;")
        .says(&format!("cannot list `{remote}/closed`: "));
    // It is not removed unseen, but goes with the folder that holds it.
    let sync = ["sync", "--delete", arg(&data), remote];
    site.run("ada", &sync)
        .refused(1)
        .says(" ... Done\n")
        .says(&format!("cannot list `{remote}/closed`: "));
    site.run("ada", &["mkdir", &format!("{remote}/extra")]).ok();
    fs::rename(there.join("closed"), there.join("extra/closed")).expect("root may");
    site.run("ada", &sync)
        .ok()
        .says("0 files copied, 2 unchanged, 1 removed;");
    assert_same(&data, &there);

    // What is somebody else's stays.
    plant(&there, &[("theirs/b", "")]);
    site.run("ada", &sync)
        .refused(1)
        .says(" ... Done\n")
        .says(&format!("cannot remove `{remote}/theirs`: "));
    assert!(there.join("theirs/b").exists());
}

#[test]
fn sync_on_the_cluster_compares_contents_on_request_and_keeps_links() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("f", "one"), ("d/g", "2")]);
    std::os::unix::fs::symlink("f", data.join("l")).unwrap();
    std::os::unix::fs::symlink("d", data.join("m")).unwrap();
    let (from, to) = (format!("{}/from", home(&env)), format!("{}/to", home(&env)));
    env.paddlectl(&["sync", arg(&data), &from]).ok();
    env.paddlectl(&["sync", &from, &to]).ok().says("4 files copied");
    let path_of = |path: &str| super::on_disk(&env, path);
    assert_same(&data, &path_of(&to));

    // The same size and time, other bytes: only contents tell.
    let (mine, theirs) = (path_of(&from).join("f"), path_of(&to).join("f"));
    let time = fs::metadata(&theirs).unwrap().modified().unwrap();
    fs::write(&mine, "two").unwrap();
    fs::File::options()
        .write(true)
        .open(&mine)
        .unwrap()
        .set_modified(time)
        .unwrap();
    env.paddlectl(&["sync", &from, &to]).ok().says("0 files copied");
    env.paddlectl(&["sync", "--checksum", &from, &to])
        .ok()
        .says("1 file copied");
    assert_eq!(fs::read(&theirs).unwrap(), b"two");
}

#[test]
fn excluded_files_are_neither_sent_nor_deleted() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("x.log", "mine")]);
    let remote = format!("{}/mirror", home(&env));
    let theirs = env.folder("theirs");
    plant(
        &theirs,
        &[("y.log", "theirs"), ("gone/z", ""), ("gone/z.log", "")],
    );
    env.paddlectl(&["sync", arg(&theirs), &remote]).ok();
    let line = ["sync", "--delete", "--exclude", "*.log", arg(&data), &remote];
    env.paddlectl(&line).ok();
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "a\ngone\ngone/z.log\ny.log\n");
}

#[test]
fn a_home_is_synced_without_the_servers_own_folder() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "echo done\n");
    env.submit("once", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "once"]).ok();
    let (data, back, home) = (env.folder("data"), env.folder("back"), home(&env));
    plant(&data, &[("a", "1"), ("sub/b", "2")]);
    env.paddlectl(&["mkdir", &format!("{home}/extra")]).ok();
    // The package's name leads to its latest run and is the user's to remove.
    let words = ["sync", "--delete", "--dry-run", arg(&data), &home];
    let planned = env.paddlectl(&words).ok();
    assert!(planned.stdout.contains("extra"), "{planned}");
    assert!(!planned.stdout.contains(".paddlecloud"), "{planned}");
    env.paddlectl(&["sync", "--delete", arg(&data), &home]).ok();
    env.paddlectl(&["check", arg(&data), &home]).ok();
    env.paddlectl(&["ls", &format!("{home}/.paddlecloud")])
        .ok()
        .prints("runs");
    env.paddlectl(&["sync", &home, arg(&back)]).ok();
    assert_same(&data, &back);

    // Somebody's copy of a whole home can go back into one.
    plant(&back, &[(".paddlecloud/latest", "not ours")]);
    env.paddlectl(&["cp", "-r", &format!("{}/.", arg(&back)), &home])
        .ok()
        .says("the server manages that folder of a home");
    env.paddlectl(&["sync", "--delete", arg(&back), &home]).ok();
    env.paddlectl(&["sync", "--delete", &home, arg(&back)]).ok();
    assert!(back.join(".paddlecloud/latest").exists());
}

#[test]
fn two_folders_on_the_cluster_are_synced() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("sub/b", "2")]);
    let home = home(&env);
    let (one, two) = (format!("{home}/one"), format!("{home}/two"));
    env.paddlectl(&["sync", arg(&data), &one]).ok();
    env.paddlectl(&["sync", &one, &two]).ok().says("2 files copied");
    env.paddlectl(&["sync", &one, &two])
        .ok()
        .says("0 files copied, 2 unchanged");
    env.paddlectl(&["rm", &format!("{one}/a")]).ok();
    env.paddlectl(&["sync", "--delete", &one, &two])
        .ok()
        .says("1 removed");
    env.paddlectl(&["check", &one, &two]).ok();
    env.paddlectl(&["sync", &one, &format!("{one}/sub")]).refused(1);
}

#[test]
fn folders_that_are_nested_through_a_link_are_not_synced() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("v1/a", "1"), ("v2/b", "2")]);
    let home = home(&env);
    let at = |name: &str| format!("{home}/{name}");
    env.paddlectl(&["sync", arg(&data), &at("data")]).ok();
    let on_disk = super::on_disk(&env, &home);
    for (target, link) in [("data/v2", "current"), ("current", "latest"), ("data", "all")] {
        std::os::unix::fs::symlink(target, on_disk.join(link)).unwrap();
    }
    for (src, dest, says) in [
        ("current", "data", "is inside"),
        ("latest", "data", "is inside"),
        ("data", "current", "is inside"),
        ("data", "all/new", "is inside"),
        ("data/v2", "all", "is inside"),
        ("current", "data/v2", "the same folder"),
        ("data", "all", "the same folder"),
        ("data", "data", "the same folder"),
    ] {
        for flags in [&["--delete"][..], &[], &["--dry-run"]] {
            env.paddlectl(&[&["sync"], flags, &[&at(src), &at(dest)]].concat())
                .refused(1)
                .says(says);
            assert_same(&data, &on_disk.join("data"));
        }
    }
    // Beside each other they are folders like others.
    env.paddlectl(&["sync", "--delete", &at("current"), &at("data/v1")])
        .ok();
    assert_eq!(
        env.paddlectl(&["ls", "-r", &at("data")]).ok().stdout,
        "v1\nv1/b\nv2\nv2/b\n"
    );
}
