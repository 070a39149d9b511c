//! Links to files: readable by anyone who has one, until they expire or are revoked; only for the user's own files.

use std::process::{Command, Output};

use e2e::{TestEnvironment, wait_until};

use super::site::Site;
use super::{arg, home, plant};

/// As a stranger without an account does it.
fn get(link: &str, more: &[&str]) -> Output {
    Command::new("curl")
        .args(["-sS", "-f"])
        .args(more)
        .arg(link.trim())
        .output()
        .expect("there is a curl")
}

fn status(link: &str) -> String {
    let output = Command::new("curl")
        .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", link.trim()])
        .output()
        .expect("there is a curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs root"]
fn a_published_file_is_readable_by_its_link_until_that_is_revoked() {
    let env = TestEnvironment::new();
    let mut site = Site::start(&env, "");
    let data = env.folder("data");
    plant(&data, &[("a", "shared on purpose")]);
    let path = "/pfs/cloud/home/ada/a";
    site.run("ada", &["cp", arg(&data.join("a")), path]).ok();
    let published = site.run("ada", &["publish", "--expires", "1h", path]).ok();
    let link = published.stdout.trim().to_owned();
    assert!(link.starts_with("http://127.0.0.1:"), "{link}");
    assert_eq!(get(&link, &[]).stdout, b"shared on purpose");
    assert_eq!(get(&link, &["-r", "7-8"]).stdout, b"on");
    let token = link.rsplit('/').next().expect("a link has a last part");
    // The token is hexadecimal, so `ada` itself can be part of it by chance.
    for name in ["/ada/", "home"] {
        let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(
            !token.contains(name) && !token.contains(&hex),
            "{token} reveals `{name}`"
        );
    }

    // Another file's name in its place, or a changed letter, is no link.
    let forged = format!("{}x", &link[..link.len() - 1]);
    assert_eq!(status(&forged), "404");

    let listed = site.run("ada", &["publish", "-o", "json"]).ok().json();
    let id = listed[0]["id"].as_str().expect("a link has an id").to_owned();
    assert!(listed[0]["link"].is_null(), "lists do not show secrets");
    let theirs = site.run("bob", &["publish", "-o", "json"]).ok().json();
    assert_eq!(theirs.as_array().map(Vec::len), Some(0));
    site.run("bob", &["publish", "--revoke", &id]).refused(1);
    site.run("ada", &["publish", "--revoke", &id]).ok();
    assert_eq!(status(&link), "404", "it has been revoked");
    site.run("ada", &["publish", "--revoke", &id]).refused(1);

    // Taken back is taken back, whatever happens to the server.
    let second = site.run("ada", &["publish", path]).ok().stdout;
    site.server().killer()();
    site.start_again();
    let after = |link: &str| {
        let (_, token) = link.split_once("/api/").expect("a link has a path");
        format!("http://{}/api/{}", site.endpoint(), token.trim())
    };
    assert_eq!(status(&after(&link)), "404");
    assert_eq!(get(&after(&second), &[]).stdout, b"shared on purpose");
}

#[test]
#[ignore = "needs root"]
fn a_link_expires_and_only_own_files_can_be_published() {
    let env = TestEnvironment::new();
    let site = Site::start(&env, "");
    let data = env.folder("data");
    plant(&data, &[("a", "for a moment"), ("d/b", "")]);
    site.run(
        "ada",
        &["cp", "-r", &format!("{}/.", arg(&data)), "/pfs/cloud/home/ada/"],
    )
    .ok();
    let path = "/pfs/cloud/home/ada/a";
    let link = site.run("ada", &["publish", "--expires", "1s", path]).ok().stdout;
    wait_until("the link must expire", || (status(&link) == "404").then_some(()));
    let listed = site.run("ada", &["publish", "-o", "json"]).ok().json();
    assert_eq!(listed.as_array().map(Vec::len), Some(0));

    site.run("bob", &["publish", path])
        .refused(1)
        .says("is not in your home");
    site.run("ada", &["publish", "/pfs/cloud/home/ada/d"]).refused(1);
    site.run("ada", &["publish", "/pfs/cloud/public/a"]).refused(1);
    site.run("ada", &["publish", "--expires", "400d", path])
        .refused(1)
        .says("366 days");
    site.run("ada", &["publish", "--revoke", "nonsense"])
        .refused(1)
        .says("error: you have no link `nonsense`\nhint: `paddlectl publish` lists your links\n");
}

#[test]
#[ignore = "needs root"]
fn a_link_to_a_removed_file_reveals_nothing() {
    let env = TestEnvironment::new();
    let site = Site::start(&env, "");
    let data = env.folder("data");
    plant(&data, &[("a", "secretly named")]);
    let path = "/pfs/cloud/home/ada/a";
    site.run("ada", &["cp", arg(&data.join("a")), path]).ok();
    let link = site.run("ada", &["publish", path]).ok().stdout;
    let file = site.home("ada").join("a");
    let assert_reveals_nothing = |what: &str| {
        assert_eq!(status(&link), "404", "{what}");
        let output = Command::new("curl").args(["-sS", link.trim()]).output();
        let body = String::from_utf8(output.expect("there is a curl").stdout).unwrap();
        assert!(
            body.contains("the file of this link no longer exists"),
            "{what}: {body}"
        );
        assert!(!body.contains("ada") && !body.contains("/pfs"), "{what}: {body}");
    };
    let beyond = Command::new("curl")
        .args(["-sS", "-r", "99-", link.trim()])
        .output();
    let body = String::from_utf8(beyond.expect("there is a curl").stdout).unwrap();
    assert!(
        body.contains("the requested range is outside the file") && !body.contains("ada"),
        "{body}"
    );
    std::fs::remove_file(&file).unwrap();
    assert_reveals_nothing("it is gone");
    std::fs::create_dir(&file).unwrap();
    assert_reveals_nothing("it is a folder");
    std::fs::remove_dir(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    assert_reveals_nothing("it leads out");
}

#[test]
fn a_server_without_a_public_address_refuses_to_publish() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1")]);
    let remote = format!("{}/a", home(&env));
    env.paddlectl(&["cp", arg(&data.join("a")), &remote]).ok();
    env.paddlectl(&["publish", &remote])
        .refused(1)
        .says("no address that others can reach")
        .says("hint: ");
    assert_eq!(
        env.paddlectl(&["publish", "-o", "json"])
            .ok()
            .json()
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
