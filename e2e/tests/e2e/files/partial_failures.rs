//! One unreadable file among many is reported, and the others are transferred.

use std::fs;
use std::os::unix::fs::symlink;

use e2e::TestEnvironment;

use super::{arg, home, ordinary_user, plant};

#[test]
fn a_broken_link_does_not_stop_a_pattern() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    plant(&data, &[("a", "1"), ("z", "23")]);
    symlink("nowhere", data.join("broken")).unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    let all = format!("{remote}/*");

    env.paddlectl(&["cp", &all, arg(&back)])
        .refused(1)
        .says("2 files copied, 1 failed")
        .says(&format!("cannot copy `{remote}/broken`"));
    assert_eq!(fs::read_to_string(back.join("a")).unwrap(), "1");
    assert_eq!(fs::read_to_string(back.join("z")).unwrap(), "23");
    assert_eq!(fs::read_dir(&back).unwrap().count(), 2);

    let copy = format!("{}/copy/", home(&env));
    env.paddlectl(&["cp", &all, &copy])
        .refused(1)
        .says(&format!("`{remote}/broken`"));
    assert_eq!(env.paddlectl(&["ls", &copy]).ok().stdout, "a\nz\n");

    let printed = env.paddlectl(&["cat", &all]);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(1), "123"));
    printed.says(&format!("`{remote}/broken`"));
}

#[test]
#[ignore = "needs root"]
fn unreadable_entries_are_reported_and_the_rest_is_shown() {
    let env = TestEnvironment::new();
    let files = [
        ("a", "1"),
        ("closed/b", "2"),
        ("shut/c", "3"),
        ("secret", "4"),
        ("z", "5"),
    ];
    let site = ordinary_user::site_with(&env, &files);
    let remote = ordinary_user::TREE;
    for name in ["closed", "shut", "secret"] {
        ordinary_user::lock(&site.home("ada").join("t").join(name));
    }
    let names = |of: &[&str]| -> Vec<String> { of.iter().map(|name| format!("{remote}/{name}")).collect() };

    let listed = site.run("ada", &["ls", "-r", remote]);
    assert_eq!(listed.stdout, "a\nsecret\nz\n");
    assert_eq!(listed.code, Some(1), "{listed}");
    let unreadable = names(&["closed", "shut"]);
    unreadable.iter().fold(listed, |listed, name| listed.says(name));

    let all = format!("{remote}/*");
    let seen = site.run("ada", &["stat", "--digest", "-o", "json", &all]);
    assert_eq!(seen.code, Some(1), "{seen}");
    let rows: serde_json::Value = serde_json::from_str(&seen.stdout).unwrap();
    let paths: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["path"]).collect();
    assert_eq!(
        paths,
        names(&["a", "closed", "shut", "z"]).iter().collect::<Vec<_>>()
    );
    seen.says(&format!("`{remote}/secret`"));
    site.run("ada", &["rm", "-r", remote]).ok();
}

#[test]
fn du_continues_after_a_broken_link() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("z", "23")]);
    symlink("nowhere/at/all", data.join("broken")).unwrap();
    let remote = format!("{}/data", home(&env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    let measured = env.paddlectl(&["du", "-o", "name", &format!("{remote}/*")]);
    assert_eq!(measured.code, Some(1), "{measured}");
    assert_eq!(measured.stdout, format!("{remote}/a\n{remote}/z\n"));
    measured.says(&format!("`{remote}/broken`"));
}

/// The same command does the same again.
#[test]
fn a_copy_with_a_failed_entry_is_repeated_in_the_same_place() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1")]);
    symlink("/etc/passwd", data.join("outside")).unwrap();
    let remote = format!("{}/up", home(&env));
    let copy = ["cp", "-r", arg(&data), &remote];
    env.paddlectl(&copy).refused(1).says("1 file copied, 1 failed");
    assert_eq!(env.paddlectl(&["ls", &remote]).ok().stdout, "a\n");
    env.paddlectl(&copy).refused(1).says("Done, 1 failed");
    assert_eq!(env.paddlectl(&["ls", "-r", &remote]).ok().stdout, "a\n");
    fs::remove_file(data.join("outside")).unwrap();
    env.paddlectl(&copy).ok();
    env.paddlectl(&copy).ok();
    assert_eq!(
        env.paddlectl(&["ls", "-r", &remote]).ok().stdout,
        "a\ndata\ndata/a\n",
        "all of it was there"
    );
}

/// A change is reported by one check.
#[test]
fn fsck_reports_a_change_once() {
    let env = TestEnvironment::new();
    let file = env.folder("data").join("large");
    fs::write(&file, super::noise(86, 2 << 20)).unwrap();
    let remote = format!("{}/large", home(&env));
    env.paddlectl(&["cp", arg(&file), &remote]).ok();
    env.paddlectl(&["pfs", "fsck"]).ok().says("none damaged");
    let there = super::server_data(&env)
        .join("local/storage")
        .join(remote.trim_start_matches("/pfs/local/"));
    fs::write(&there, "a job wrote this").unwrap();
    let found = env.paddlectl(&["pfs", "fsck"]).ok();
    assert!(
        found.stdout.starts_with("FOUND\tPATH\nchanged outside\thome/"),
        "{found}"
    );
    assert_eq!(env.paddlectl(&["pfs", "fsck"]).ok().stdout, "");
}
