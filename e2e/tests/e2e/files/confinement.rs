//! Nobody gets at what is not theirs, by whatever spelling; and what is shared is shared on purpose.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use e2e::{Background, Ran, TestEnvironment};

use super::{arg, home, plant};

/// A server on a port of its own with the users `ada` and `bob`; ended when dropped.
struct Shared<'a> {
    env: &'a TestEnvironment,
    endpoint: String,
    _server: Background,
}

impl<'a> Shared<'a> {
    /// `None`, with a line that says so, when not root: only root serves users who are kept apart.
    fn start(env: &'a TestEnvironment, of_bob: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can serve several users");
            return None;
        }
        let of_bob = format!("  system_user: nobody\n{of_bob}");
        let folder = env.folder("server");
        let mut users = String::new();
        for (name, more) in [("ada", ""), ("bob", of_bob.as_str())] {
            let password = folder.join(name);
            fs::write(&password, format!("secret of {name}")).expect("a file in the test's own folder");
            fs::set_permissions(&password, fs::Permissions::from_mode(0o600))
                .expect("a file in the test's own folder");
            users += &format!("- name: {name}\n  password_file: {}\n{more}", arg(&password));
        }
        let config = folder.join("config.yaml");
        let text = format!(
            "listen: 127.0.0.1:0\ndata: {}\ndatacenter: cloud\ninventory: {{cpu: 2, memory: 1Gi}}\nusers:\n{users}",
            arg(&folder.join("data"))
        );
        fs::write(&config, text).expect("a file in the test's own folder");
        let mut server = env.start_as("paddlecloud-server", &["--config", arg(&config)]);
        let ready = server.wait_for_line("ready");
        let (_, rest) = ready.split_once("127.0.0.1:").expect("it says where it listens");
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(Self {
            env,
            endpoint: format!("127.0.0.1:{port}"),
            _server: server,
        })
    }

    /// The configuration of one of the users.
    fn config(&self, user: &str) -> PathBuf {
        let path = self.env.folder("configs").join(user);
        let endpoint = &self.endpoint;
        let text = format!(
            "datacenters:\n- name: cloud\n  username: {user}\n  password: secret of {user}\n  endpoint: {endpoint}\n"
        );
        fs::write(&path, text).expect("a file in the test's own folder");
        path
    }

    fn run(&self, user: &str, words: &[&str]) -> Ran {
        let config = self.config(user);
        self.env.paddlectl(&[&["--config", arg(&config)], words].concat())
    }
}

#[test]
fn what_belongs_to_another_user_does_not_exist() {
    let env = TestEnvironment::new();
    let Some(shared) = Shared::start(&env, "") else {
        return;
    };
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
            &["cp", "PATH", &here],
            &["mv", "PATH", "/pfs/cloud/home/bob/x"],
            &["cp", "-r", &here, "PATH"],
            &["mkdir", "PATH"],
            &["publish", "PATH"],
        ] {
            let of_nothing = said(command, "/pfs/cloud/home/nobody/x");
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
fn a_path_names_the_datacenter_as_the_configuration_does() {
    let env = TestEnvironment::new();
    let Some(shared) = Shared::start(&env, "") else {
        return;
    };
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
}

#[test]
fn the_public_space_is_read_by_all_and_written_by_none() {
    let env = TestEnvironment::new();
    let Some(shared) = Shared::start(&env, "") else {
        return;
    };
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
fn a_quota_stops_an_upload_and_says_how_much_there_is() {
    let env = TestEnvironment::new();
    let Some(shared) = Shared::start(&env, "  quota: {storage: 1Mi}\n") else {
        return;
    };
    let data = env.folder("data");
    fs::write(data.join("big"), super::noise(7, 3 << 20)).unwrap();
    plant(&data, &[("small", "1")]);
    let big = data.join("big");
    shared
        .run("bob", &["cp", arg(&big), "/pfs/cloud/home/bob/big"])
        .refused(1)
        .says("0 of 1048576 bytes are used");
    shared.run("bob", &["stat", "/pfs/cloud/home/bob/big"]).refused(1);
    shared
        .run("bob", &["cp", arg(&data.join("small")), "/pfs/cloud/home/bob/"])
        .ok();
    shared.run("bob", &["du"]).ok().says("quota: ");
    shared
        .run("ada", &["cp", arg(&big), "/pfs/cloud/home/ada/big"])
        .ok();
}

#[test]
fn a_published_file_is_read_by_its_link_until_that_is_taken_back() {
    let env = TestEnvironment::new();
    let Some(shared) = Shared::start(&env, "") else {
        return;
    };
    let data = env.folder("data");
    plant(&data, &[("a", "shared on purpose")]);
    let path = "/pfs/cloud/home/ada/a";
    shared.run("ada", &["cp", arg(&data.join("a")), path]).ok();
    let link = shared
        .run("ada", &["publish", "--expires", "1h", path])
        .ok()
        .stdout;
    let get = |link: &str| {
        let curl = std::process::Command::new("curl")
            .args(["-sS", "-f", link.trim()])
            .output();
        curl.expect("there is a curl")
    };
    assert_eq!(get(&link).stdout, b"shared on purpose");

    let listed = shared.run("ada", &["publish", "-o", "json"]).ok().json();
    let id = listed[0]["id"].as_str().expect("a link has an id").to_owned();
    assert!(listed[0]["link"].is_null(), "lists do not show secrets");
    shared.run("bob", &["publish", "--revoke", &id]).refused(1);
    shared.run("ada", &["publish", "--revoke", &id]).ok();
    assert!(!get(&link).status.success(), "it works no more");
}

#[test]
fn no_spelling_climbs_out_of_the_home() {
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
            assert_ne!(ran.code, Some(0), "{ran}");
            assert!(!ran.stderr.contains("panicked"), "{ran}");
        }
    }
    // Nothing is decoded: this is a plain name.
    let plain = format!("{home}/%2e%2e");
    env.paddlectl(&["cp", arg(&data.join("a")), &plain]).ok();
    assert_eq!(env.paddlectl(&["ls", &home]).ok().stdout, "%2e%2e\n");
}

#[test]
fn a_link_made_on_the_server_leads_nowhere_outside() {
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
