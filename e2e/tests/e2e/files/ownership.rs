//! What an administrator moves between the public folder and a home belongs to the owner of its new place.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use e2e::TestEnvironment;

use super::site::Site;
use super::{arg, plant};

#[test]
#[ignore = "needs root"]
fn a_file_moved_between_public_and_a_home_changes_its_owner() {
    let env = TestEnvironment::new();
    // Bob is an administrator whose files belong to a system user of his own.
    let site = Site::start(&env, "  admin: true\n");
    let data = env.folder("data");
    plant(&data, &[("set/a", "alpha"), ("set/run.sh", "echo\n")]);
    let program = data.join("set/run.sh");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |words: &[&str]| site.run("bob", words).ok();
    run(&["cp", "-r", arg(&data.join("set")), "/pfs/cloud/public/set"]);
    let (public, home) = (site.storage().join("public"), site.home("bob"));
    let owner = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().uid();
    let (server, bob) = (owner(&public), owner(&home));
    assert_ne!(server, bob, "otherwise there is nothing to see here");
    assert_eq!(owner(&public.join("set/a")), server);

    run(&["mv", "/pfs/cloud/public/set", "/pfs/cloud/home/bob/set"]);
    assert!(!public.join("set").exists());
    for name in ["set", "set/a", "set/run.sh"] {
        assert_eq!(owner(&home.join(name)), bob, "{name}");
    }
    run(&["check", arg(&data.join("set")), "/pfs/cloud/home/bob/set"]);
    // His jobs can change it, and so can he.
    let package = env
        .package("job")
        .file("train.sh", "echo beta > /pfs/cloud/home/bob/set/a\n");
    let words = ["submit", "-jobname", "writer", "-pservers", "0", "-cpu", "20m"];
    let more = ["-memory", "32Mi", "-entry", "sh train.sh", package.arg()];
    run(&[&words[..], &more].concat());
    run(&["wait", "writer"]);
    assert_eq!(run(&["cat", "/pfs/cloud/home/bob/set/a"]).stdout, "beta\n");

    run(&["mv", "/pfs/cloud/home/bob/set", "/pfs/cloud/public/back"]);
    assert_eq!(
        owner(&public.join("back/a")),
        server,
        "nobody can change it from a home"
    );
    let read = site.run("ada", &["cat", "/pfs/cloud/public/back/a"]).ok();
    assert_eq!(read.stdout, "beta\n");

    // A folder that is there is not mixed with another one.
    run(&["mkdir", "/pfs/cloud/home/bob/back"]);
    run(&["cp", "-r", "/pfs/cloud/public/back", "/pfs/cloud/home/bob/"]);
    let onto = [
        "mv",
        "-n",
        "/pfs/cloud/public/back/a",
        "/pfs/cloud/home/bob/back/a",
    ];
    run(&onto).says("is left unchanged");
    assert!(public.join("back/a").exists());
}
