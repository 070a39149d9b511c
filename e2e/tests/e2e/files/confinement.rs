//! Nobody can access other users' files, by whatever spelling; and what is shared is shared on purpose.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use e2e::TestEnvironment;

use super::site::Site;
use super::{arg, home, plant};

#[test]
#[ignore = "needs root"]
fn a_path_of_another_user_is_refused_like_one_that_does_not_exist() {
    let env = TestEnvironment::new();
    let shared = Site::start(&env, "");
    let data = env.folder("data");
    plant(&data, &[("a", "ada's"), ("sub/b", "ada's too")]);
    shared
        .run("ada", &["cp", "-r", arg(&data), "/pfs/cloud/home/ada/data"])
        .ok();
    let here = arg(&data).to_owned();

    // The same command about a path of hers and about one that nobody has must say the same.
    let said = |command: &[&str], path: &str| {
        let words: Vec<String> = command.iter().map(|word| word.replace("PATH", path)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        shared.run("bob", &words).refused(1).stderr.replace(path, "PATH")
    };
    for path in [
        "/pfs/cloud/home/ada",
        "/pfs/cloud/home/ada/data",
        "/pfs/cloud/home/ada/data/a",
    ] {
        for command in [
            &["ls", "PATH"][..],
            &["stat", "PATH"],
            &["cat", "PATH"],
            &["du", "PATH"],
            &["rm", "-r", "PATH"],
            &["rm", "-rf", "PATH"],
            &["cp", "PATH", &here],
            &["mv", "PATH", "/pfs/cloud/home/bob/x"],
            &["cp", "-r", &here, "PATH"],
            &["mkdir", "PATH"],
            &["publish", "PATH"],
        ] {
            let of_nothing = said(command, "/pfs/cloud/home/nobody/x");
            assert!(
                of_nothing.contains("is not in your home, `/pfs/cloud/home/bob`"),
                "{command:?} names the caller's own home: {of_nothing}"
            );
            assert_eq!(
                said(command, path),
                of_nothing,
                "{command:?} tells whether {path} exists"
            );
        }
    }
    shared
        .run("ada", &["check", &here, "/pfs/cloud/home/ada/data"])
        .ok();
    let nothing = shared.run("bob", &["ls", "/pfs/cloud/home/*/data"]);
    assert_eq!(nothing.stdout, "", "{nothing}");
}

#[test]
#[ignore = "needs root"]
fn a_path_names_the_datacenter_as_the_configuration_does() {
    let env = TestEnvironment::new();
    let shared = Site::start(&env, "");
    let theirs = fs::read_to_string(shared.config("ada")).unwrap();
    let config = env.folder("configs").join("renamed");
    fs::write(&config, theirs.replace("name: cloud", "name: mine")).unwrap();
    let data = env.folder("data");
    plant(&data, &[("a.txt", "1")]);
    let run = |words: &[&str]| {
        let words = [&["--config", arg(&config)], words].concat();
        env.paddlectl(&words).ok()
    };
    run(&["cp", "-r", arg(&data), "/pfs/mine/home/ada/data"]);
    assert_eq!(run(&["cat", "/pfs/mine/home/ada/data/*.txt"]).stdout, "1");
    run(&["mv", "/pfs/mine/home/ada/data", "/pfs/cloud/home/ada/moved"]);
    run(&["check", arg(&data), "/pfs/mine/user/ada/moved"]);

    // A job's package on the cluster, too.
    plant(&data, &[("train.sh", "cat a.txt\n")]);
    run(&["cp", "-r", arg(&data), "/pfs/mine/home/ada/package"]);
    let words = [
        "submit",
        "-jobname",
        "named",
        "-pservers",
        "0",
        "-cpu",
        "20m",
        "-memory",
        "32Mi",
    ];
    let more = ["-entry", "sh train.sh", "/pfs/mine/home/ada/package"];
    run(&[&words[..], &more].concat());
    run(&["wait", "named"]);
    assert_eq!(
        run(&["logs", "--raw", "--role", "trainer", "named"])
            .stdout
            .lines()
            .last(),
        Some("1")
    );
}

#[test]
#[ignore = "needs root"]
fn the_public_space_is_read_by_all_and_written_by_none() {
    let env = TestEnvironment::new();
    let shared = Site::start(&env, "");
    let data = env.folder("data");
    plant(&data, &[("a", "1")]);
    shared.run("bob", &["ls", "/pfs/public"]).ok();
    shared
        .run("bob", &["cp", arg(&data.join("a")), "/pfs/public/a"])
        .refused(1)
        .says("public");
    shared.run("bob", &["mkdir", "/pfs/cloud/public/d"]).refused(1);
}

#[test]
fn no_spelling_of_a_path_escapes_the_home() {
    let env = TestEnvironment::new();
    let home = home(&env);
    let data = env.folder("data");
    plant(&data, &[("a", "1")]);
    for path in [
        format!("{home}/../x"),
        format!("{home}/a/../../x"),
        "/pfs/local/home".to_owned(),
        "/pfs/local".to_owned(),
        "/pfs".to_owned(),
        "/pfs/local/home/..".to_owned(),
        "/pfs/elsewhere/home/me".to_owned(),
        format!("{home}/.pfs-staging/x"),
    ] {
        for words in [
            &["ls", &path][..],
            &["rm", "-r", &path],
            &["cp", arg(&data.join("a")), &path],
        ] {
            let ran = env.paddlectl(words);
            // The folders above the home can be listed; they show the caller's own and nothing else.
            let is_listing_above = words[0] == "ls" && "/pfs/local/home".starts_with(&path);
            assert_eq!(ran.code == Some(0), is_listing_above, "{ran}");
            assert!(!ran.stderr.contains("panicked"), "{ran}");
        }
    }
    // Nothing is decoded: this is a plain name.
    let plain = format!("{home}/%2e%2e");
    env.paddlectl(&["cp", arg(&data.join("a")), &plain]).ok();
    assert_eq!(env.paddlectl(&["ls", &home]).ok().stdout, "%2e%2e\n");
}

#[test]
fn a_link_made_on_the_server_does_not_lead_out_of_the_home() {
    let env = TestEnvironment::new();
    let home = home(&env);
    env.paddlectl(&["mkdir", &format!("{home}/d")]).ok();
    let storage = env.paddlectl(&["server", "status", "-o", "json"]).ok().json();
    let storage = PathBuf::from(storage["storage"].as_str().expect("the server's storage"));
    let user = home.rsplit('/').next().expect("a home has a name");
    let on_disk = storage.join("home").join(user);
    assert!(on_disk.join("d").is_dir(), "{}", on_disk.display());
    symlink("/etc", on_disk.join("d/etc")).unwrap();
    env.paddlectl(&["cat", &format!("{home}/d/etc/passwd")])
        .refused(1);
    env.paddlectl(&["ls", &format!("{home}/d/etc")]).refused(1);
    let back = env.folder("back");
    env.paddlectl(&["cp", &format!("{home}/d"), arg(&back)])
        .refused(1)
        .says("etc");
    assert!(!back.join("d/etc").exists());
    env.paddlectl(&["rm", "-r", &format!("{home}/d")]).ok();
    assert!(fs::exists("/etc/passwd").unwrap());
}
