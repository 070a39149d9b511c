//! The first accounts of a new server, made as the administrator's guide says.

use std::fs;
use std::path::PathBuf;

use e2e::{Background, PASSWORD, TestEnvironment};

/// Writes a server's configuration without any user.
fn without_users(env: &TestEnvironment) -> PathBuf {
    let folder = env.folder("server");
    let config = folder.join("server.yaml");
    let data = folder.join("data");
    let text = format!(
        "listen: 127.0.0.1:0\ndata: {}\ndatacenter: cloud\n",
        data.display()
    );
    fs::write(&config, text).expect("a file in the test's own folder");
    config
}

fn start(env: &TestEnvironment, config: &str) -> (Background, String) {
    let mut server = env.start_as("paddlecloud-server", &["--config", config]);
    let ready = server.wait_for_line("ready version=");
    let (_, port) = ready.split_once("127.0.0.1:").expect("it says where it listens");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    (server, format!("http://127.0.0.1:{port}"))
}

#[test]
fn the_first_administrator_logs_in_by_name() {
    let mut env = TestEnvironment::new();
    let config = without_users(&env);
    let config = config.to_str().expect("a plain name");
    let (mut server, _) = start(&env, config);
    let lines = server.lines_so_far().join("\n");
    assert!(
        lines.contains("there is no account") && lines.contains("`paddlecloud-server init`"),
        "{lines}"
    );
    server.interrupt();
    server.end();

    env.set("PADDLECLOUD_ADMIN_PASSWORD", PASSWORD);
    env.set("PADDLECLOUD_PASSWORD", PASSWORD);
    let init = ["init", "--config", config, "--admin", "root@example.org"];
    drop(env.run("paddlecloud-server", &init).ok());
    let (mut server, endpoint) = start(&env, config);
    let lines = server.lines_so_far().join("\n");
    assert!(!lines.contains("there is no account"), "{lines}");
    let entry = format!("datacenters:\n- name: cloud\n  endpoint: {endpoint}\n");
    env.configure(&entry);
    drop(env.paddlectl(&["login", "-username", "root@example.org"]).ok());
    let who = env.paddlectl(&["whoami"]).ok();
    drop(who.prints("/pfs/cloud/home/root@example.org"));
    drop(env.paddlectl(&["admin", "user", "add", "bob"]).ok());

    env.configure(&entry.replace("cloud\n", "cloud\n  username: bob\n"));
    drop(env.paddlectl(&["login"]).ok());
    drop(env.paddlectl(&["whoami"]).ok().prints("/pfs/cloud/home/bob"));
    drop(env.paddlectl(&["login", "-username", "root@example.org"]).ok());
    drop(env.paddlectl(&["admin", "user", "list"]).ok().prints("bob"));
    let disabled = env.paddlectl(&["admin", "user", "disable", "bob"]).ok();
    drop(disabled.says("user `bob` is disabled; 0 queued jobs killed, 0 jobs still running"));
    env.set("PADDLECLOUD_SECRET", "a secret");
    drop(env.paddlectl(&["secret", "set", "key"]).ok());
    let rotated = env.paddlectl(&["admin", "rotate-secrets"]).ok();
    drop(rotated.says("1 secret encrypted with the new key"));
}
