//! Many jobs on nodes that kwok simulates: how fast the server creates their pods, compared with a bare client that creates
//! the same pods and nothing else; and what memory the server needs while all of them are linked.
//!
//! The pods have no processes. Launchers without a worker link them to the server afterwards and end the jobs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::PASSWORD;
use e2e::cluster::Cluster;
use serde_json::{Value, json};

use crate::figures::Row;
use crate::gang::copied;
use crate::rest::{Connection, token};
use crate::site::{PODS, PSERVERS, Site, TRAINERS};

/// Requests at once, of ours to the server and of the bare client to the API server.
const CLIENTS: usize = 16;
/// The pods of the server, and those of the bare client.
const OURS: &str = "cloud.paddlepaddle.org/server!=bench";
const BARE: &str = "cloud.paddlepaddle.org/server=bench";
const NODES: usize = 100;
/// Trainers and parameter servers of a job.
const GANG: [usize; 2] = [TRAINERS, PSERVERS];
/// Jobs of one pod.
const SINGLE: usize = 300;
const LABEL: &str = "bench.paddlecloud.test/simulated";
/// What happens to nodes and pods, in files of kwok: nodes are ready, pods run at once and go when they are deleted.
const STAGES: [&str; 4] = [
    "node/fast/node-initialize",
    "node/heartbeat/node-heartbeat",
    "pod/fast/pod-ready",
    "pod/fast/pod-delete",
];
/// How long cleaning up may take.
const LONG: Duration = Duration::from_secs(1200);

pub fn measure(cluster: &Cluster, jobs: usize) -> Vec<Row> {
    on_simulated_nodes(cluster, |site| {
        let bench = Bench { cluster, site, jobs };
        bench.rows()
    })
}

/// How fast jobs of one pod are bound. kube-scheduler binds them, as fast as its `clientConnection` lets it.
pub fn measure_single(cluster: &Cluster) -> Vec<Row> {
    on_simulated_nodes(cluster, |site| {
        let bench = Bench {
            cluster,
            site,
            jobs: SINGLE,
        };
        bench.single()
    })
}

fn on_simulated_nodes(cluster: &Cluster, rows: impl Fn(&Site) -> Vec<Row>) -> Vec<Row> {
    let Ok(kwok) = std::env::var("PADDLECLOUD_BENCH_KWOK") else {
        return Vec::new();
    };
    let _simulation = Simulation::start(cluster, &kwok);
    let settings =
        format!("  node_selector: {{\"{LABEL}\": \"yes\"}}\n  tolerations: [{{key: \"{LABEL}\"}}]\n");
    let site = Site::start_with(cluster, None, &settings);
    rows(&site)
}

struct Bench<'a> {
    cluster: &'a Cluster,
    site: &'a Site,
    jobs: usize,
}

impl Bench<'_> {
    fn rows(&self) -> Vec<Row> {
        let pods = self.jobs * PODS;
        let package = self.site.env.package("many").file("train.sh", "true\n");
        self.site
            .env
            .paddlectl(&self.site.submit_gang("many", package.arg()))
            .ok();
        self.observe(OURS, PODS).wait_for("running");
        let template = self.template();
        let before = self.bare(&template);
        eprintln!("the bare client: {before:.1} pods/s");
        // One job more, which made the namespace and brought the package.
        let mut observer = self.observe(OURS, pods + PODS);
        let started = Instant::now();
        self.submit_all(GANG);
        observer.wait_for("running");
        let ours = pods as f64 / started.elapsed().as_secs_f64();
        let created = self.memory("VmRSS:");
        eprintln!("the server: {ours:.1} pods/s, {created:.0} MB when all run");
        let mut launchers = self.of_pods("launch", OURS, pods + PODS);
        let linking = Instant::now();
        launchers.wait_for("started");
        let linked = linking.elapsed().as_secs_f64();
        let all_linked = self.memory("VmRSS:");
        eprintln!("the server: {all_linked:.0} MB when all are linked; the jobs end now");
        let ending = Instant::now();
        drop(launchers.child.stdin.take());
        self.wait_until_no_pod_is_left(OURS, pods);
        let ended = ending.elapsed().as_secs_f64();
        let peak = self.memory("VmHWM:");
        // Before and after ours, so that a machine that becomes slower burdens neither.
        let after = self.bare(&template);
        let theirs = (before + after) / 2.0;
        let rate = format!(
            "{ours:.1} pods/s, bare client {before:.1} and {after:.1} pods/s: {:.2} ×",
            ours / theirs
        );
        let memory = format!(
            "{created:.0} MB when all run, {all_linked:.0} MB when all are linked, peak {peak:.0} MB"
        );
        let lives = format!(
            "all linked and started in {linked:.0} s ({:.0} pods/s), all gone in {ended:.0} s ({:.0} pods/s)",
            pods as f64 / linked,
            pods as f64 / ended
        );
        vec![
            Row::new(
                format!("{} jobs of 5 pods, simulated nodes", self.jobs),
                rate,
                "≥ 0.8 × a bare client",
            ),
            Row::new("… the server's memory", memory, "< 200 MB"),
            Row::new("… launchers without a worker", lives, ""),
        ]
    }

    fn single(&self) -> Vec<Row> {
        let package = self.site.env.package("many").file("train.sh", "true\n");
        let first = self.site.submit("many", package.arg(), ["1", "0"]);
        self.site.env.paddlectl(&first).ok();
        self.observe(OURS, 1).wait_for("running");
        let mut observer = self.observe(OURS, self.jobs + 1);
        let started = Instant::now();
        self.submit_all([1, 0]);
        observer.wait_for("running");
        let took = started.elapsed().as_secs_f64();
        let rate = format!("{:.1} pods/s, all run after {took:.1} s", self.jobs as f64 / took);
        let what = format!("{} jobs of one pod, simulated nodes", self.jobs);
        vec![Row::new(
            what,
            rate,
            "≥ 150 pods/s with kube-scheduler's qps raised",
        )]
    }

    /// The pods of the first job, for the bare client.
    fn template(&self) -> std::path::PathBuf {
        let pods = self.cluster.objects("pods", self.site.namespace());
        let copies: Vec<Value> = pods
            .iter()
            .enumerate()
            .map(|(index, pod)| copied(pod, index))
            .collect();
        let file = self.site.env.folder("manifests").join("many.json");
        std::fs::write(&file, json!(copies).to_string()).expect("a file in the test's own folder");
        file
    }

    fn submit_all(&self, [trainers, pservers]: [usize; 2]) {
        let described = self.site.env.describe("many");
        let package = described["job"]["job_package"]
            .as_str()
            .expect("it has a package");
        let endpoint = self.site.server.endpoint();
        let token = token(endpoint, self.site.namespace(), PASSWORD);
        let (next, jobs) = (AtomicUsize::new(0), self.jobs);
        let submit = || {
            let mut connection = Connection::open(endpoint, &token);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= jobs {
                    return;
                }
                let body = json!({"name": format!("many-{index}"), "job_package": package, "entry": "sh train.sh",
                    "parallelism": trainers, "pservers": pservers, "cpu": "200m", "pscpu": "200m", "memory": "64Mi",
                    "psmemory": "64Mi"});
                connection.ask("POST", "/api/v1/jobs", &body);
            }
        };
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(submit);
            }
        });
    }

    fn bare(&self, template: &std::path::Path) -> f64 {
        let pods = self.jobs * PODS;
        let mut observer = self.observe(BARE, pods);
        let file = template.to_str().expect("temporary folders have plain names");
        let started = Instant::now();
        let mut client = self.simulated(&[
            "create",
            file,
            &self.jobs.to_string(),
            &CLIENTS.to_string(),
            &NODES.to_string(),
        ]);
        observer.wait_for("running");
        let rate = pods as f64 / started.elapsed().as_secs_f64();
        let _ = client.child.wait();
        let _ = self
            .simulated(&["delete", self.site.namespace(), BARE])
            .child
            .wait();
        self.wait_until_no_pod_is_left(BARE, pods);
        rate
    }

    fn observe(&self, selector: &str, pods: usize) -> Simulated {
        self.of_pods("observe", selector, pods)
    }

    fn of_pods(&self, what: &str, selector: &str, pods: usize) -> Simulated {
        self.simulated(&[what, self.site.namespace(), selector, &pods.to_string()])
    }

    fn simulated(&self, args: &[&str]) -> Simulated {
        let this = std::env::current_exe().expect("a running program has a path");
        let mut child = Command::new(this.with_file_name("simulated"))
            .args(args)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("PADDLECLOUD_LINK", self.site.server.link())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`cargo xtask bench k8s` builds it");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Simulated { child, lines }
    }

    /// A line of the server's status, in MB.
    fn memory(&self, key: &str) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.site.server.pid()));
        let text = text.expect("the server runs");
        let line = text
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_default();
        let kib = line
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<f64>().ok());
        kib.unwrap_or(f64::NAN) * 1024.0 / 1e6
    }

    /// Looks rarely: every look lists all pods.
    fn wait_until_no_pod_is_left(&self, selector: &str, pods: usize) {
        let pause = Duration::from_millis(200) + Duration::from_millis(pods as u64 / 10);
        let started = Instant::now();
        let list = [
            "get",
            "pods",
            "-l",
            selector,
            "-n",
            self.site.namespace(),
            "-o",
            "name",
        ];
        while !self.cluster.kubectl(&list).is_empty() {
            assert!(started.elapsed() < LONG, "pods are left");
            thread::park_timeout(pause);
        }
    }
}

/// A running part of the simulation; ended when dropped.
struct Simulated {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Simulated {
    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it prints a line");
        assert_eq!(line.trim(), word, "the simulation failed");
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// kwok and its nodes; taken away when dropped.
struct Simulation<'a> {
    cluster: &'a Cluster,
    kwok: Child,
}

impl<'a> Simulation<'a> {
    fn start(cluster: &'a Cluster, kwok: &str) -> Simulation<'a> {
        let module = std::env::var("PADDLECLOUD_BENCH_KWOK_MODULE").expect("the folder of kwok's own stages");
        let kwok = Command::new(kwok)
            .args(STAGES.map(|stage| format!("--config={module}/kustomize/stage/{stage}.yaml")))
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .args([
                "--manage-all-nodes=false",
                // With leases, a node that another kwok has just simulated is ignored until its lease ends.
                "--node-lease-duration-seconds=0",
                &format!("--manage-nodes-with-label-selector={LABEL}=yes"),
            ])
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("kwok was built");
        let simulation = Simulation { cluster, kwok };
        let items: Vec<Value> = (0..NODES).map(node).collect();
        cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
        let selector = format!("{LABEL}=yes");
        cluster.kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=120s",
            "node",
            "-l",
            &selector,
        ]);
        simulation
    }
}

impl Drop for Simulation<'_> {
    fn drop(&mut self) {
        self.cluster
            .kubectl(&["delete", "nodes", "-l", &format!("{LABEL}=yes")]);
        let _ = self.kwok.kill();
        let _ = self.kwok.wait();
    }
}

/// A node with room for 150 of our pods. Pods of others do not tolerate it.
fn node(index: usize) -> Value {
    let room = json!({"cpu": "30", "memory": "64Gi", "pods": "1000"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("simulated-{index}"), "labels": {LABEL: "yes"}},
        "spec": {"taints": [{"key": LABEL, "value": "yes", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    })
}
