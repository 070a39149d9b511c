//! A backup of a running server, restored after its database is lost: nothing newer than the backup is lost.

use std::fs;

use e2e::{PASSWORD, Shared, TestEnvironment};

#[test]
fn a_lost_database_is_restored_and_newer_runs_keep_their_files() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "  admin: true\n");
    shared.configure(&env, PASSWORD);
    let package = env
        .package("job")
        .file("train.sh", "echo done > output/made\necho said\n");
    env.submit(
        "first",
        &package,
        &["-entry", "sh train.sh", "-pservers", "0", "-f"],
    );
    let folder = env.folder("server");
    let words = |name: &str| folder.join(name).display().to_string();
    let (config, backup) = (words("config.yaml"), words("backup"));
    let command = |what: &str| env.run("paddlecloud-server", &[what, "--config", &config, &backup]);
    command("backup").ok().prints("wrote ");
    env.submit(
        "second",
        &package,
        &["-entry", "sh train.sh", "-pservers", "0", "-f"],
    );
    let second = env.describe("second")["job"]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    command("restore")
        .refused(1)
        .says("stop the server, restore, and start it again");
    let server = shared.into_server();
    server.interrupt();
    server.end();
    for name in ["server.db", "server.db-wal", "server.db-shm"] {
        let _ = fs::remove_file(folder.join("data").join(name));
    }
    command("restore").ok().prints("restored ");
    let shared = Shared::start(&env, "", "  admin: true\n");
    shared.configure(&env, PASSWORD);
    assert_eq!(env.status("first"), "Succeeded");
    env.paddlectl(&["describe", "second"]).refused(1);
    env.paddlectl(&["prune", "--older-than", "1h"]).ok();
    let data = folder.join("data");
    assert!(data.join("attempts").join(&second).exists(), "its logs");
    let run = data.join("storage/home/ada/.paddlecloud/runs").join(&second);
    assert!(run.exists(), "its files: {}", run.display());
    env.submit(
        "third",
        &package,
        &["-entry", "sh train.sh", "-pservers", "0", "-f"],
    );
    env.paddlectl(&["admin", "audit"]).ok().prints("backup.restore");
    env.paddlectl(&["admin", "audit", "--verify"])
        .ok()
        .prints("intact");
    env.paddlectl(&["get", "jobs", "-a", "--all-users"])
        .ok()
        .prints("ada");
    let wide = env
        .paddlectl(&["get", "jobs", "-a", "--all-users", "-o", "wide"])
        .ok();
    assert_eq!(wide.stdout.matches("USER").count(), 1, "{wide}");
    env.paddlectl(&["logs", "--raw", "ada/third"]).ok().prints("said");
    env.paddlectl(&["logs", "../../x"])
        .refused(2)
        .says("is not allowed in a job name");
}
