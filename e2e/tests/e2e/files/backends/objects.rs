//! What only happens where files are objects: names that stand for something else, moves that copy, nobody's owners.

use std::fs;

use e2e::TestEnvironment;

use super::super::network::Way;
use super::super::site::Site;
use super::super::{arg, noise, plant};
use super::{HOME, s3, service};

#[test]
#[ignore = "needs S3"]
fn s3_refuses_unsupported_names_before_anything_is_sent() {
    let endpoint = service("PADDLECLOUD_TEST_S3");
    let env = TestEnvironment::new();
    let mut site = Site::with(&env, &[("ada", "")], &s3(&env, &endpoint), &[]);
    let large = env.folder("data").join("large");
    fs::write(&large, noise(90, 12 << 20)).expect("ours");
    let before = site.network().passed(Way::Up);
    for (name, reason) in [
        (".pfs-folder", "the storage itself uses the name `.pfs-folder`"),
        ("a\u{1}b", "names have no control characters here"),
    ] {
        let place = format!("{HOME}/{name}");
        let ran = site.run("ada", &["cp", arg(&large), &place]);
        assert_eq!(ran.code, Some(1), "{ran}");
        drop(ran.says(reason));
    }
    let sent = site.network().passed(Way::Up) - before;
    assert!(sent < 1 << 20, "{sent} bytes of 12 MiB were sent");
    let left = site.run("ada", &["pfs", "uploads", "-o", "json"]).ok().json();
    assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");
    assert_eq!(site.run("ada", &["ls", "-a", HOME]).ok().stdout, "");
}

#[test]
#[ignore = "needs S3"]
fn s3_moves_between_public_and_the_home_of_a_system_user() {
    let endpoint = service("PADDLECLOUD_TEST_S3");
    let env = TestEnvironment::new();
    let of_ada = "  admin: true\n  system_user: nobody\n";
    let site = Site::with(&env, &[("ada", of_ada)], &s3(&env, &endpoint), &[]);
    let data = env.folder("data");
    plant(&data, &[("set/a", "alpha"), ("set/d/b", "beta")]);
    let run = |words: &[&str]| site.run("ada", words).ok();
    let (public, own) = ("/pfs/cloud/public/set", format!("{HOME}/set"));
    run(&["cp", "-r", arg(&data.join("set")), public]);
    run(&["mv", public, &own]);
    run(&["check", arg(&data.join("set")), &own]);
    assert_eq!(run(&["ls", "/pfs/cloud/public"]).stdout, "");
    run(&["mv", &format!("{own}/a"), "/pfs/cloud/public/a"]);
    run(&["cat", "/pfs/cloud/public/a"]).prints("alpha");
    run(&["mv", &own, "/pfs/cloud/public/back"]);
    run(&["cat", "/pfs/cloud/public/back/d/b"]).prints("beta");
    assert_eq!(run(&["ls", HOME]).stdout, "");
}
