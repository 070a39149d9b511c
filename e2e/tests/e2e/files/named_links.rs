//! A link on the cluster, named as the destination of a file: its target is written, as by cp(1).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use e2e::TestEnvironment;

use super::{arg, bytes_moved, home, noise, on_disk, plant, with_stdin};

/// A folder on the cluster with a file and links, and where it lies on the disk.
fn with_links(env: &TestEnvironment) -> (String, PathBuf) {
    let data = env.folder("data");
    plant(&data, &[("v1/model", "old"), ("other", "from the cluster")]);
    let remote = format!("{}/data", home(env));
    env.paddlectl(&["cp", "-r", arg(&data), &remote]).ok();
    let there = on_disk(env, &remote);
    for (name, target) in [
        ("latest", "v1"),
        ("current", "latest/model"),
        ("lost", "nowhere"),
        ("out", "/etc/hostname"),
        ("climbs", "../../../../../data/v1/model"),
    ] {
        symlink(target, there.join(name)).expect("the embedded server is ours");
    }
    (remote, there)
}

#[track_caller]
fn assert_links_to(link: &Path, target: &str) {
    let leads = fs::read_link(link).expect("it is still a link");
    assert_eq!(leads, Path::new(target));
}

#[test]
fn copying_to_a_named_link_writes_its_target() {
    let env = TestEnvironment::new();
    let (remote, there) = with_links(&env);
    let new = env.folder("new").join("new.bin");
    fs::write(&new, "from here").unwrap();
    let (current, other) = (format!("{remote}/current"), format!("{remote}/other"));
    let written = || fs::read_to_string(there.join("v1/model")).expect("it is there");

    env.paddlectl(&["cp", arg(&new), &current]).ok();
    assert_eq!(written(), "from here");
    with_stdin(&env, &["cp", "-", &current], "from a pipe").ok();
    assert_eq!(written(), "from a pipe");
    env.paddlectl(&["cp", &other, &current]).ok();
    assert_eq!(written(), "from the cluster");
    env.paddlectl(&["cp", &format!("{remote}/v1/model"), &current])
        .refused(1)
        .says("source and destination are the same");
    assert_links_to(&there.join("current"), "latest/model");

    // In a folder that is copied the name counts, and nothing is written through.
    let folder = env.folder("folder");
    plant(&folder, &[("current", "a file now")]);
    env.paddlectl(&["cp", "-r", &format!("{}/.", arg(&folder)), &remote])
        .ok();
    assert!(there.join("current").symlink_metadata().unwrap().is_file());
    assert_eq!(written(), "from the cluster");
}

#[test]
fn the_target_of_a_named_link_is_compared_and_kept_like_any_file() {
    let env = TestEnvironment::new();
    let (remote, there) = with_links(&env);
    let new = env.folder("new").join("new.bin");
    let (current, model) = (format!("{remote}/current"), there.join("v1/model"));
    let mut bytes = noise(91, 6 << 20);
    fs::write(&new, &bytes).unwrap();
    env.paddlectl(&["cp", arg(&new), &current]).ok();
    bytes[3 << 20] ^= 1;
    fs::write(&new, &bytes).unwrap();

    let other = format!("{remote}/other");
    for from in [arg(&new), &other] {
        let planned = env.paddlectl(&["cp", "--dry-run", from, &current]).ok();
        assert_eq!(planned.stdout, format!("copy {from}\n"));
        let planned = env.paddlectl(&["cp", "-n", "--dry-run", from, &current]).ok();
        assert_eq!(planned.stdout, format!("keep {from}\n"));
        env.paddlectl(&["cp", "-n", from, &current])
            .ok()
            .says("0 files copied, 1 kept");
    }
    with_stdin(&env, &["cp", "-n", "-", &current], "from a pipe")
        .ok()
        .says("0 files copied, 1 kept");
    assert!(fs::read(&model).unwrap() != bytes, "nothing was to change");

    let sent = env.paddlectl(&["cp", arg(&new), &current]).ok();
    assert!(
        bytes_moved(&sent) < 500_000.0,
        "only what changed is sent\n{sent}"
    );
    assert!(fs::read(&model).unwrap() == bytes);
    fs::File::options()
        .write(true)
        .open(&new)
        .and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH))
        .unwrap();
    env.paddlectl(&["cp", "--checksum", arg(&new), &current])
        .ok()
        .says("0 files copied, 1 unchanged");
    assert_links_to(&there.join("current"), "latest/model");
}

#[test]
fn a_broken_or_outside_named_link_is_neither_followed_nor_replaced() {
    let env = TestEnvironment::new();
    let (remote, there) = with_links(&env);
    let new = env.folder("new").join("new.bin");
    fs::write(&new, "from here").unwrap();
    let other = format!("{remote}/other");
    let nothing = "is a broken link, or points outside the home or public space";
    for (name, target, why) in [
        ("lost", "nowhere", nothing),
        ("out", "/etc/hostname", "is a link to an absolute path"),
        ("climbs", "../../../../../data/v1/model", nothing),
    ] {
        let link = format!("{remote}/{name}");
        for from in [arg(&new), other.as_str(), "-"] {
            let copy = |flags: &[&str]| with_stdin(&env, &[&["cp"], flags, &[from, &link]].concat(), "piped");
            let refused = format!("`{link}` {why} (`{target}`)");
            copy(&[]).refused(1).says(&refused);
            // A pipe has no dry run.
            if from != "-" {
                copy(&["--dry-run"]).refused(1).says(&refused);
                let planned = copy(&["-n", "--dry-run"]).ok();
                assert_eq!(planned.stdout, format!("keep {from}\n"));
            }
            copy(&["-n"]).ok().says("0 files copied, 1 kept");
        }
        assert_links_to(&there.join(name), target);
    }
    assert!(!there.join("nowhere").exists());
    assert_eq!(fs::read_to_string(there.join("v1/model")).unwrap(), "old");
}
