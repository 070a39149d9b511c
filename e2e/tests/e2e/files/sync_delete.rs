//! What `sync --delete` keeps: excluded entries, even if no listing shows them, and entries that were not copied.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use e2e::TestEnvironment;

use super::{arg, assert_same, home, plant};

#[test]
#[ignore = "needs root"]
fn excluded_entries_that_no_listing_shows_are_not_deleted() {
    let env = TestEnvironment::new();
    let site = super::ordinary_user::site(&env);
    let (data, theirs, here) = (env.folder("data"), env.folder("theirs"), env.folder("here"));
    plant(&data, &[("y", "new")]);
    plant(&theirs, &[("extra/closed/precious.log", ""), ("extra/old", "")]);
    let (remote, other) = ("/pfs/cloud/home/ada/mirror", "/pfs/cloud/home/ada/other");
    site.run("ada", &["sync", arg(&theirs), remote]).ok();
    site.run("ada", &["sync", arg(&data), other]).ok();
    let extra = site.home("ada").join("mirror/extra");
    fs::set_permissions(extra.join("closed"), fs::Permissions::from_mode(0o000)).expect("root may");
    for source in [arg(&data), other] {
        plant(&extra, &[("old", "")]);
        std::os::unix::fs::chown(extra.join("old"), Some(65534), Some(65534)).expect("root may");
        site.run("ada", &["sync", "--delete", "--exclude", "*.log", source, remote])
            .refused(1)
            .says(&format!("cannot list `{remote}/extra/closed`: "));
        assert!(extra.join("closed/precious.log").exists(), "{source}");
        assert!(!extra.join("old").exists(), "{source}");
    }

    plant(&here, &[("extra/old", "")]);
    let _listener = UnixListener::bind(here.join("extra/x.sock")).expect("a socket of the test's own");
    let down = ["sync", "--delete", "--exclude", "*.sock", other, arg(&here)];
    site.run("ada", &down).ok();
    assert!(here.join("extra/x.sock").exists() && !here.join("extra/old").exists());
    site.run("ada", &["sync", "--delete", other, arg(&here)]).ok();
    assert_same(&data, &here);
}

#[test]
fn a_listed_file_that_the_source_lacks_is_not_deleted() {
    let env = TestEnvironment::new();
    let (data, theirs, here) = (env.folder("data"), env.folder("theirs"), env.folder("here"));
    plant(&data, &[("a", "1")]);
    for folder in [&theirs, &here] {
        plant(folder, &[("gone", "only there")]);
    }
    let (remote, other) = (format!("{}/mirror", home(&env)), format!("{}/other", home(&env)));
    env.paddlectl(&["sync", arg(&theirs), &remote]).ok();
    env.paddlectl(&["sync", arg(&data), &other]).ok();
    let list = env.folder("lists").join("list");
    fs::write(&list, "a\ngone\n").unwrap();
    let there = super::on_disk(&env, &remote);
    for (source, dest, folder) in [
        (arg(&data), remote.as_str(), &there),
        (&other, &remote, &there),
        (&other, arg(&here), &here),
    ] {
        env.paddlectl(&["sync", "--delete", "--files-from", arg(&list), source, dest])
            .refused(1)
            .says("it is in the list, but does not exist")
            .says("nothing is deleted at the destination");
        assert!(folder.join("gone").exists(), "{source} to {dest}");
    }
}

#[test]
fn a_folder_with_excluded_files_is_neither_replaced_nor_emptied() {
    let env = TestEnvironment::new();
    let (data, here) = (env.folder("data"), env.folder("here"));
    plant(&data, &[("a", "a file here"), ("b", "new")]);
    plant(&here, &[("a/x", "1"), ("a/y.log", "2")]);
    let (remote, other) = (format!("{}/mirror", home(&env)), format!("{}/other", home(&env)));
    env.paddlectl(&["sync", arg(&here), &remote]).ok();
    env.paddlectl(&["sync", arg(&data), &other]).ok();
    let there = super::on_disk(&env, &remote);
    for (source, dest, folder) in [
        (arg(&data), remote.as_str(), &there),
        (&other, &remote, &there),
        (&other, arg(&here), &here),
    ] {
        for flags in [&["--delete", "--dry-run"][..], &["--delete"], &[]] {
            let words = [&["sync", "--exclude", "*.log"], flags, &[source, dest]].concat();
            let ran = env.paddlectl(&words);
            assert_eq!(ran.code, Some(1), "{ran}");
            let ran = ran
                .says("a folder is in the way")
                .says("excluded files and the folders that contain them are never deleted");
            assert!(!ran.stderr.contains("`--delete` removes"), "{ran}");
            assert!(!ran.stdout.contains("/a\n"), "{ran}");
        }
        assert!(folder.join("a/x").exists() && folder.join("a/y.log").exists());
        assert!(folder.join("b").exists(), "the rest went");
    }
}

#[test]
#[ignore = "needs root"]
fn a_replaced_folder_is_not_reported_as_unlisted() {
    let env = TestEnvironment::new();
    let site = super::ordinary_user::site(&env);
    let (data, theirs) = (env.folder("data"), env.folder("theirs"));
    plant(&data, &[("x", "a file here")]);
    plant(&theirs, &[("x/closed/a", ""), ("x/b", ""), ("old", "")]);
    let remote = "/pfs/cloud/home/ada/mirror";
    site.run("ada", &["sync", arg(&theirs), remote]).ok();
    let there = site.home("ada").join("mirror");
    fs::set_permissions(there.join("x/closed"), fs::Permissions::from_mode(0o000)).expect("root may");
    for flags in [&["--dry-run"][..], &[]] {
        site.run(
            "ada",
            &[&["sync", "--delete"], flags, &[arg(&data), remote]].concat(),
        )
        .ok();
    }
    assert_same(&data, &there);
}
