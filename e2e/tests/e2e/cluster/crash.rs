//! Workers outlive their server, and no report or output is lost meanwhile.

use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, wait_until};

#[test]
fn a_worker_goes_on_while_its_server_is_away_and_its_log_is_complete() {
    let Some(cluster) = Cluster::here() else { return };
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
    wait_until("the worker must go on alone", || {
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
