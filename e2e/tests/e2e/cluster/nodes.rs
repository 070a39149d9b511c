//! Nodes that fall silent, and nodes that are taken away.

use std::fs;
use std::process::Command;

use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, wait_until};

/// A number that no other test uses.
const NUMBER: &str = "7";
const NODE: &str = "node7";

/// A second node; removed when dropped.
pub struct SecondNode {
    command: String,
    cluster: Cluster,
}

impl SecondNode {
    /// `None` and a word where nodes cannot be added.
    pub fn add(cluster: &Cluster) -> Option<SecondNode> {
        let command = std::env::var("PADDLECLOUD_CLUSTER_NODE").ok();
        let Some(command) = command.filter(|command| !command.is_empty()) else {
            eprintln!("skipped: `PADDLECLOUD_CLUSTER_NODE` is not set");
            return None;
        };
        let node = SecondNode {
            command,
            cluster: cluster.clone(),
        };
        assert!(node.run("add"), "a node could not be added");
        Some(node)
    }

    fn run(&self, what: &str) -> bool {
        let mut node = Command::new(&self.command);
        node.args([what, NUMBER])
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Makes jobs start on this node only, while `work` lasts.
    pub fn alone_while<T>(&self, work: impl FnOnce() -> T) -> T {
        self.cluster.kubectl(&["cordon", "node1"]);
        let done = work();
        self.cluster.kubectl(&["uncordon", "node1"]);
        done
    }

    fn is_ready(&self) -> bool {
        let condition = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        self.cluster.kubectl(&["get", "node", NODE, "-o", condition]) == "True"
    }
}

impl Drop for SecondNode {
    fn drop(&mut self) {
        let _ = Command::new("kubectl").args(["uncordon", "node1"]).output();
        self.run("del");
    }
}

/// Processes whose command line or environment has all of these.
pub fn processes_with(file: &str, words: &[&str]) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("this is Linux").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let text = fs::read(entry.path().join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        if words.iter().all(|word| text.contains(word)) {
            found.push(pid);
        }
    }
    found
}

/// Ends processes without warning.
pub fn kill(pids: &[i32]) {
    assert!(!pids.is_empty(), "there is nothing to kill");
    for pid in pids {
        // SAFETY: sends a signal and touches no memory.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
}

/// Counts up while it runs, and ends when the test writes `output/gate`.
const COUNTS: &str = "mkdir -p output\necho begun\ni=0\nuntil [ -e output/gate ]; do\n\
                      if [ -e output/more ]; then rm output/more; echo still here; fi\nsleep 0.1; done\n";

fn start_on_second_node(env: &TestEnvironment, node: &SecondNode, job: &str) {
    let package = env.package(job).file("train.sh", COUNTS);
    node.alone_while(|| {
        env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
        wait_until("the trainer must begin", || {
            env.logs(job)
                .iter()
                .any(|line| line.ends_with("begun"))
                .then_some(())
        });
    });
}

fn attempt(env: &TestEnvironment, job: &str) -> u64 {
    env.describe(job)["workers"][0]["attempt"]
        .as_u64()
        .expect("a worker has an attempt")
}

#[test]
fn a_silent_kubelet_ends_nothing_and_a_lost_node_is_left() {
    let Some(cluster) = Cluster::here() else { return };
    let mut env = TestEnvironment::alone();
    let Some(node) = SecondNode::add(&cluster) else {
        return;
    };
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    start_on_second_node(&env, &node, "silent");
    kill(&processes_with(
        "cmdline",
        &["kubelet", &format!("--hostname-override={NODE}")],
    ));
    wait_until("the cluster must notice", || (!node.is_ready()).then_some(()));
    let output = server.output(&env, 0, "silent");
    fs::write(output.join("more"), "").unwrap();
    wait_until("the worker must continue and be heard", || {
        let logs = env.logs("silent");
        logs.iter().any(|line| line.ends_with("still here")).then_some(())
    });
    assert_eq!(attempt(&env, "silent"), 1);
    // Now the worker is gone too.
    let id = env.describe("silent")["job"]["id"].as_str().unwrap().to_owned();
    kill(&processes_with("environ", &["PADDLECLOUD_LINK_ATTEMPT", &id]));
    wait_until("the worker must be restarted", || {
        (attempt(&env, "silent") == 2).then_some(())
    });
    let described = env.paddlectl(&["describe", "silent"]).ok().stdout;
    assert!(
        described.contains(&format!("its node `{NODE}` is lost")),
        "{described}"
    );
    fs::write(output.join("gate"), "").unwrap();
    env.wait_for_status("silent", "Succeeded");
    server.wait_until_empty(0);
}

#[test]
fn a_node_that_is_removed_loses_its_workers_to_another() {
    let Some(cluster) = Cluster::here() else { return };
    let mut env = TestEnvironment::alone();
    let Some(node) = SecondNode::add(&cluster) else {
        return;
    };
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    start_on_second_node(&env, &node, "moved");
    let output = server.output(&env, 0, "moved");
    drop(node);
    wait_until("the worker must be restarted", || {
        (attempt(&env, "moved") == 2).then_some(())
    });
    fs::write(output.join("gate"), "").unwrap();
    env.wait_for_status("moved", "Succeeded");
    server.wait_until_empty(0);
}
