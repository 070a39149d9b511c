//! Workers outlive their server and a lost database, and no report or output is lost meanwhile.

use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, wait_until};

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_worker_continues_without_its_server_and_its_log_is_complete() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    // The gate is a file in the package, which the test sees too.
    let package = env.package("lasting").file(
        "train.sh",
        "echo begun\nmkdir -p output\nuntil [ -e output/gate ]; do sleep 0.1; done\n\
         for i in $(seq 1 2000); do echo line $i; done\ntouch output/done\n",
    );
    env.submit("lasting", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the trainer must begin", || {
        env.logs("lasting")
            .iter()
            .any(|line| line.ends_with("begun"))
            .then_some(())
    });
    let id = env.describe("lasting")["job"]["id"].as_str().unwrap().to_owned();
    let output = server
        .home(0)
        .join(".paddlecloud/runs")
        .join(id)
        .join("lasting/output");
    server.crash();
    std::fs::write(output.join("gate"), "").unwrap();
    wait_until("the worker must continue alone", || {
        output.join("done").exists().then_some(())
    });
    server.revive(&env);
    server.configure(&env, 0);
    env.wait_for_status("lasting", "Succeeded");
    let logs = env.logs("lasting");
    let numbered = logs.iter().filter(|line| line.contains("line ")).count();
    assert_eq!(numbered, 2000);
    server.wait_until_empty(0);
}

/// Never ends by itself, and says that it runs when the test writes `output/more`.
const ENDLESS: &str = "mkdir -p output\necho begun\nwhile true; do\n\
                       if [ -e output/more ]; then rm output/more; echo still here; fi\nsleep 0.1; done\n";

/// Starts such a job; returns its id.
fn start_endless(env: &TestEnvironment, job: &str) -> String {
    let package = env.package(job).file("train.sh", ENDLESS);
    env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    env.wait_for_status(job, "Running");
    let described = env.describe(job);
    described["job"]["id"]
        .as_str()
        .expect("a job has an id")
        .to_owned()
}

/// Loses the database, and restores the backup.
fn lose_and_restore(server: &ClusterServer) {
    for name in ["server.db", "server.db-wal", "server.db-shm"] {
        let _ = std::fs::remove_file(server.data().join(name));
    }
    server.maintain("restore", &server.data().join("backup"));
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_restored_backup_forgets_no_pod_of_a_newer_run() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    let old = start_endless(&env, "old");
    server.maintain("backup", &server.data().join("backup"));
    let newer = start_endless(&env, "newer");
    let label = |id: &str| format!("cloud.paddlepaddle.org/run={id}");
    server.crash();
    lose_and_restore(&server);
    server.revive(&env);
    server.configure(&env, 0);
    // The job that the backup has runs on; nobody could ever kill the other.
    let namespace = server.namespace(0).to_owned();
    let pods = |id: &str| cluster.kubectl(&["get", "pods", "-n", &namespace, "-l", &label(id), "-o", "name"]);
    wait_until("the pods of the newer run must go", || {
        pods(&newer).is_empty().then_some(())
    });
    assert_eq!(env.status("old"), "Running");
    assert!(!pods(&old).is_empty());
    std::fs::write(server.output(&env, 0, "old").join("more"), "").expect("it has a folder for its output");
    wait_until("the restored server must accept the running pod", || {
        let logs = env.logs("old");
        logs.iter().any(|line| line.ends_with("still here")).then_some(())
    });
    let files = server.home(0).join(".paddlecloud/runs").join(&newer);
    assert!(files.exists() && server.data().join("attempts").join(&newer).exists());

    // Without the records of attempts, the server says which pods it does not know.
    let lost = start_endless(&env, "lost");
    server.crash();
    let attempts = server.data().join("attempts");
    std::fs::remove_dir_all(attempts.join(&lost)).expect("it has records");
    lose_and_restore(&server);
    server.revive(&env);
    server.configure(&env, 0);
    let named = server
        .log()
        .iter()
        .find(|line| line.contains("does not know"))
        .cloned();
    let named = named.expect("the pods of the lost run are named");
    let secret = named
        .split("secret=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let secret = secret.expect("the line names the secret").trim_matches('"');
    assert!(!pods(&lost).is_empty());
    cluster.kubectl(&["delete", "secret", "-n", &namespace, secret]);
    wait_until("the pods must go with it", || {
        pods(&lost).is_empty().then_some(())
    });
    assert_eq!(env.status("old"), "Running");

    // The same for the job of the backup: nobody knows how it ended, or that it runs.
    server.crash();
    std::fs::remove_dir_all(attempts.join(&old)).expect("it has records");
    lose_and_restore(&server);
    server.revive(&env);
    server.configure(&env, 0);
    assert_eq!(env.status("old"), "Lost");
    let why = env.paddlectl(&["why", "old"]).ok().stdout;
    assert!(
        why.contains("the database was restored from a backup of "),
        "{why}"
    );
    let phase = "jsonpath={.items[*].status.phase}";
    let phase = ["get", "pods", "-n", &namespace, "-l", &label(&old), "-o", phase];
    wait_until("its launcher must be told to exit", || {
        (cluster.kubectl(&phase) != "Running").then_some(())
    });
}
