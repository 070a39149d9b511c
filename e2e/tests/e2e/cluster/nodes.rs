//! Nodes that stop responding, and nodes that are removed.

use std::fs;
use std::process::Command;

use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};
use serde_json::json;

/// A number that no other test uses.
const NUMBER: &str = "7";
const NODE: &str = "node7";

/// A second node; removed when dropped.
pub struct SecondNode {
    command: String,
    cluster: Cluster,
}

impl SecondNode {
    pub fn add(cluster: &Cluster) -> SecondNode {
        let command = std::env::var("PADDLECLOUD_CLUSTER_NODE").expect("the test needs a second node");
        let node = SecondNode {
            command,
            cluster: cluster.clone(),
        };
        assert!(node.run("add"), "a node could not be added");
        node
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
    signal(pids, libc::SIGKILL);
}

pub fn signal(pids: &[i32], signal: i32) {
    assert!(!pids.is_empty(), "there is no process");
    for pid in pids {
        // SAFETY: sends a signal and touches no memory.
        unsafe { libc::kill(*pid, signal) };
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
    assert_eq!(env.describe(job)["workers"][0]["node"], NODE);
}

/// Trains as `examples/fit_a_line` does, and waits in the middle until the test writes `output/gate`.
const GATED: &str = "import os, time, model
draw = model.batch
def batch(trainer, number):
    if number == 75:
        print('half way', flush=True)
        while not os.path.exists('output/gate'):
            time.sleep(0.1)
    return draw(trainer, number)
model.batch = batch
import train
train.main()
";

/// Two trainers and two parameter servers, all on the second node, in the middle of their training. It writes no
/// checkpoints, so a lost parameter server means that training begins again.
fn train_on_second_node(env: &TestEnvironment, node: &SecondNode, job: &str, image: &str) {
    node.alone_while(|| train_to_half(env, job, image, "200m"));
}

/// Submits the training and waits until both trainers are in the middle of it.
fn train_to_half(env: &TestEnvironment, job: &str, image: &str, cpu: &str) {
    let package = env
        .package(job)
        .file("gated.py", GATED)
        .file(
            "model.py",
            include_str!("../../../../examples/fit_a_line/model.py"),
        )
        .file(
            "train.py",
            include_str!("../../../../examples/fit_a_line/train.py"),
        );
    let command = "-entry|python gated.py|-parallelism|2|-pservers|2|-image";
    let sizes = "-memory|256Mi|-pscpu|100m|-psmemory|64Mi|-cpu";
    let words = command
        .split('|')
        .chain([image])
        .chain(sizes.split('|'))
        .chain([cpu]);
    env.submit(job, &package, &words.collect::<Vec<_>>());
    wait_until("both trainers must be half way", || {
        let logs = env.logs(job);
        let half = logs.iter().filter(|line| line.ends_with("half way")).count();
        (half == 2).then_some(())
    });
}

/// Opens the gate of a job whose workers were all restarted, and waits for its model.
fn training_ends_well(env: &TestEnvironment, server: &ClusterServer, job: &str) {
    wait_until("every worker must be restarted elsewhere", || {
        let workers = env.describe(job)["workers"].clone();
        let restarted = |worker: &serde_json::Value| worker["attempt"].as_u64() > Some(1);
        let workers = workers.as_array().filter(|workers| !workers.is_empty())?;
        workers.iter().all(restarted).then_some(())
    });
    let output = server.output(env, 0, job);
    fs::write(output.join("gate"), "").expect("the output is writable");
    env.wait_for_status(job, "Succeeded");
    let saved = fs::metadata(output.join("pass-00000/w")).expect("the model is saved");
    assert!(saved.len() > 0);
    env.paddlectl(&["kill", "-rm", job]).ok();
}

fn attempt(env: &TestEnvironment, job: &str) -> u64 {
    env.describe(job)["workers"][0]["attempt"]
        .as_u64()
        .expect("a worker has an attempt")
}

#[test]
#[ignore = "needs a Kubernetes cluster and a second node"]
fn a_silent_kubelet_ends_nothing_and_a_lost_node_is_left() {
    let cluster = Cluster::here();
    let image = cluster.training_image();
    let mut env = TestEnvironment::alone();
    let node = SecondNode::add(&cluster);
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    start_on_second_node(&env, &node, "silent");
    train_on_second_node(&env, &node, "lost", &image);
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
    for job in ["lost", "silent"] {
        let id = env.describe(job)["job"]["id"].as_str().unwrap().to_owned();
        kill(&processes_with("environ", &["PADDLECLOUD_LINK_ATTEMPT", &id]));
    }
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
    training_ends_well(&env, &server, "lost");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster and a second node"]
fn a_node_that_is_removed_loses_its_workers_to_another() {
    let cluster = Cluster::here();
    let image = cluster.training_image();
    let mut env = TestEnvironment::alone();
    let node = SecondNode::add(&cluster);
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    start_on_second_node(&env, &node, "moved");
    train_on_second_node(&env, &node, "drained", &image);
    let output = server.output(&env, 0, "moved");
    drop(node);
    wait_until("the worker must be restarted", || {
        (attempt(&env, "moved") == 2).then_some(())
    });
    fs::write(output.join("gate"), "").unwrap();
    env.wait_for_status("moved", "Succeeded");
    training_ends_well(&env, &server, "drained");
    server.wait_until_empty(0);
}

/// A job that needs the whole second node waits for another job and for a foreign pod, and then for the node itself. What
/// they hold stays the same when the job's pod is restarted and when the node was closed for a while.
fn why_names_what_others_hold_and_closed_nodes(env: &TestEnvironment, cluster: &Cluster, namespace: &str) {
    let package = env.package("holds").file("train.sh", COUNTS);
    let flags = "-entry|sh train.sh|-memory|64Mi|-pservers|0|-cpu|200m".split('|');
    env.submit("holds", &package, &flags.collect::<Vec<_>>());
    env.wait_for_status("holds", "Running");
    let pod = format!("foreign-{namespace}");
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": cluster.shell_image(),
                "resources": {"requests": {"cpu": "1500m"}},
            }],
        },
    }));
    let cores = ["get", "node", NODE, "-o", "jsonpath={.status.allocatable.cpu}"];
    let package = env.package("waits").file("train.sh", "echo begun\n");
    let flags = "-entry|sh train.sh|-memory|64Mi|-pservers|0|-cpu".split('|');
    let cores = cluster.kubectl(&cores);
    env.submit(
        "waits",
        &package,
        &flags.chain([cores.as_str()]).collect::<Vec<_>>(),
    );
    let why_says = |words: &str| {
        wait_until(&format!("`why` must say {words:?}"), || {
            let why = env.paddlectl(&["why", "waits"]).ok().stdout;
            why.contains(words).then_some(())
        });
    };
    let id = env.describe("holds")["job"]["id"].clone();
    let id = id.as_str().expect("a job has an id");
    let held = format!("held by `holds ({id})`; pods outside PaddleCloud hold 1.5 cores");
    why_says(&held);
    let worker = env.describe("holds")["workers"][0]["name"].clone();
    let worker = worker.as_str().expect("a worker has a name");
    cluster.kubectl(&["delete", "pod", worker, "-n", namespace, "--wait=false"]);
    wait_until("the worker must be restarted", || {
        let workers = env.describe("holds")["workers"].clone();
        (workers[0]["attempt"] == 2 && workers[0]["status"] == "Running").then_some(())
    });
    why_says(&held);
    cluster.kubectl(&["cordon", NODE]);
    why_says("; 1 node of the cluster is cordoned, tainted or not ready");
    cluster.kubectl(&["uncordon", NODE]);
    why_says(&held);
    for job in ["waits", "holds"] {
        env.paddlectl(&["kill", "--now", job]).ok();
        env.wait_for_status(job, "Killed");
    }
    cluster.kubectl(&["delete", "pod", &pod, "-n", "default", "--wait=false"]);
}

/// The node is for this test alone, so that nobody else takes or frees room.
#[test]
#[ignore = "needs a Kubernetes cluster and a second node"]
fn a_job_whose_room_is_reclaimed_trains_again_afterwards() {
    let cluster = Cluster::here();
    let image = cluster.training_image();
    let mut env = TestEnvironment::alone();
    let _node = SecondNode::add(&cluster);
    let server = ClusterServer::start_with(&mut env, &cluster, |_| Difference {
        kubernetes: format!("  node_selector: {{kubernetes.io/hostname: {NODE}}}\n"),
        // The first line belongs to the last user.
        settings: "  quota: {guaranteed_cpu: 1, guaranteed_memory: 256Mi}\nreclaim: 1s\n".into(),
        ..Difference::default()
    });
    server.configure(&env, 0);
    why_names_what_others_hold_and_closed_nodes(&env, &cluster, server.namespace(0));
    train_to_half(&env, "borrows", &image, "750m");
    server.configure(&env, 1);
    let package = env.package("claims").file("train.sh", "echo begun\n");
    let flags = "-entry|sh train.sh|-cpu|1|-memory|64Mi".split('|');
    env.submit("claims", &package, &flags.collect::<Vec<_>>());
    env.wait_for_status("claims", "Succeeded");
    server.wait_until_empty(1);
    server.configure(&env, 0);
    let described = env.paddlectl(&["describe", "borrows"]).ok().stdout;
    assert!(
        described.contains("are needed for another user's guarantee"),
        "{described}"
    );
    training_ends_well(&env, &server, "borrows");
    server.wait_until_empty(0);
}

/// The node is for this test alone, so that nobody else takes or frees room.
#[test]
#[ignore = "needs a Kubernetes cluster and a second node"]
fn a_running_job_that_lacks_a_worker_makes_room_for_another_and_trains_again() {
    let cluster = Cluster::here();
    let image = cluster.training_image();
    let mut env = TestEnvironment::alone();
    let _node = SecondNode::add(&cluster);
    let server = ClusterServer::start_with(&mut env, &cluster, |_| Difference {
        kubernetes: format!("  node_selector: {{kubernetes.io/hostname: {NODE}}}\n  recovery_limit: 20s\n"),
        ..Difference::default()
    });
    server.configure(&env, 0);
    let namespace = server.namespace(0);
    train_to_half(&env, "lacks", &image, "600m");
    let why_says = |words: &str| {
        wait_until(&format!("`why` must say {words:?}"), || {
            let why = env.paddlectl(&["why", "lacks"]).ok().stdout;
            why.contains(words).then_some(())
        });
    };
    // A trainer is gone, and another pod takes its room.
    let workers = env.describe("lacks")["workers"].clone();
    let trainer = workers
        .as_array()
        .and_then(|all| all.last())
        .expect("it has workers");
    let trainer = trainer["name"].as_str().expect("a worker has a name");
    cluster.kubectl(&["cordon", NODE]);
    cluster.kubectl(&["delete", "pod", trainer, "-n", namespace]);
    why_says("nodes are available");
    let pod = format!("foreign-{namespace}");
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": cluster.shell_image(),
                "resources": {"requests": {"cpu": "1000m"}},
            }],
        },
    }));
    cluster.kubectl(&["uncordon", NODE]);
    why_says("the job keeps its room until another job needs it");
    let package = env.package("urgent").file("train.sh", "echo begun\n");
    let flags = "-entry|sh train.sh|-pservers|0|-memory|64Mi|-priority|1|-cpu|500m".split('|');
    env.submit("urgent", &package, &flags.collect::<Vec<_>>());
    why_says("other jobs wait for room, so without a node by");
    env.wait_for_status("urgent", "Succeeded");
    let described = env.paddlectl(&["describe", "lacks"]).ok().stdout;
    assert!(
        described.contains("withdrawn: trainer 1 had no node for 20s, and other jobs wait for room"),
        "{described}"
    );
    cluster.kubectl(&["delete", "pod", &pod, "-n", "default", "--wait=false"]);
    training_ends_well(&env, &server, "lacks");
    server.wait_until_empty(0);
}
