//! Follows the pods of one namespace, and says when each was first seen running.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use e2e::LIMIT;
use e2e::cluster::Cluster;
use serde_json::Value;

/// One change of a pod, and when it arrived here.
struct Change {
    at: Instant,
    event: Value,
}

/// `kubectl get --watch`, read as it comes: the same clock for every contender. Ended when dropped.
pub struct PodWatch {
    kubectl: Child,
    changes: Receiver<Change>,
}

/// A pod that was seen running.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub pod: Value,
}

impl PodWatch {
    pub fn start(cluster: &Cluster, namespace: &str) -> PodWatch {
        let mut kubectl = Command::new("kubectl")
            .args(["get", "pods", "-n", namespace, "-o", "json"])
            .args(["--watch", "--output-watch-events"])
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`kubectl` is in PATH where there is a cluster");
        let stdout = BufReader::new(kubectl.stdout.take().expect("it is piped"));
        let (sender, changes) = channel();
        thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
            for event in events.map_while(Result::ok) {
                let at = Instant::now();
                if sender.send(Change { at, event }).is_err() {
                    return;
                }
            }
        });
        PodWatch { kubectl, changes }
    }

    /// Waits until this many pods are running that were not before this call, and says when each was first seen so.
    pub fn wait_until_running(&self, count: usize, since: Instant) -> BTreeMap<String, Seen> {
        let mut running = BTreeMap::new();
        while running.len() < count {
            let Change { at, event } = self.next(LIMIT);
            let pod = &event["object"];
            let is_running = pod["status"]["phase"] == "Running" && at >= since;
            if event["type"] == "DELETED" || !is_running || pod["metadata"]["deletionTimestamp"].is_string() {
                continue;
            }
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let pod = pod.clone();
            running.entry(name).or_insert(Seen { at, pod });
        }
        running
    }

    /// Waits until this many pods are deleted.
    pub fn wait_until_deleted(&self, count: usize) {
        let mut left = count;
        while left > 0 {
            if self.next(LIMIT).event["type"] == "DELETED" {
                left -= 1;
            }
        }
    }

    fn next(&self, limit: Duration) -> Change {
        self.changes
            .recv_timeout(limit)
            .expect("the pods of the benchmark change in time")
    }
}

impl Drop for PodWatch {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}
