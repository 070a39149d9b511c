//! From `submit` to a running gang, compared with `kubectl create` of the same pods; and from there to the trainers.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use e2e::Package;
use e2e::cluster::Cluster;
use serde_json::{Value, json};

use crate::figures::{Row, median, milliseconds, quantile};
use crate::pod_watch::{PodWatch, Seen};
use crate::processes::{first_start, milliseconds_since_boot};
use crate::site::{PODS, Site, TRAINERS};

/// The secret that the copied pods mount.
const LINK_SECRET: &str = "bench-link";
/// Nobody listens there, so the launchers of copied pods keep trying.
const DEAD_PORT: u16 = 9;
const SERVER_LABEL: &str = "cloud.paddlepaddle.org/server";

pub fn measure(cluster: &Cluster, rounds: usize) -> Vec<Row> {
    let bench = Bench::prepare(cluster);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut gates, mut seen_gates) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // The first contender of a round is the last one of the next.
        let name = format!("gang-{round}");
        let (submitted, created) = if round % 2 == 0 {
            let submitted = bench.submit(&name);
            (submitted, bench.create(cluster))
        } else {
            let created = bench.create(cluster);
            (bench.submit(&name), created)
        };
        gates.extend(submitted.since_last_container);
        seen_gates.extend(submitted.since_last_seen_running);
        ours.push(submitted.created);
        theirs.push(created);
    }
    let middle =
        |turns: &[Created], of: fn(&Created) -> f64| median(&turns.iter().map(of).collect::<Vec<_>>());
    let ratios = ours
        .iter()
        .zip(&theirs)
        .map(|(ours, theirs)| ours.ran / theirs.ran);
    let ratios: Vec<f64> = ratios.collect();
    let started = format!(
        "{:.0} ms, kubectl {:.0} ms: {:.2} × (rounds {:.2} to {:.2})",
        middle(&ours, |turn| turn.ran),
        middle(&theirs, |turn| turn.ran),
        median(&ratios),
        quantile(&ratios, 0.0),
        quantile(&ratios, 1.0)
    );
    let existed = format!(
        "{:.0} ms, kubectl {:.0} ms",
        middle(&ours, |turn| turn.existed),
        middle(&theirs, |turn| turn.existed)
    );
    let seen = format!(
        "{:.0} ms (negative: before the cluster says so)",
        median(&seen_gates)
    );
    vec![
        Row::new(
            "submit → all running, 3 + 2 pods",
            started,
            "≤ 1.1 × kubectl create",
        ),
        Row::new("… of that, until all pods exist", existed, ""),
        Row::new(
            "last pod reported running → all trainers started",
            seen,
            "≤ 50 ms",
        ),
        Row::new(
            "last container started → all trainers started",
            format!("{:.0} ms", median(&gates)),
            "",
        ),
    ]
}

struct Bench {
    site: Site,
    package: Package,
    watch: PodWatch,
    /// The pods of an earlier run, for `kubectl create`.
    manifest: PathBuf,
}

/// One turn: how long it took until all pods existed and until all were running, in milliseconds.
struct Created {
    existed: f64,
    ran: f64,
}

impl Created {
    fn since(started: Instant, running: &BTreeMap<String, Seen>) -> Created {
        Created {
            existed: milliseconds(last_created(running) - started),
            ran: milliseconds(last(running) - started),
        }
    }
}

/// One turn of ours; times in milliseconds.
struct Submitted {
    created: Created,
    since_last_container: Option<f64>,
    since_last_seen_running: Option<f64>,
}

impl Bench {
    fn prepare(cluster: &Cluster) -> Bench {
        let site = Site::start(cluster);
        let package = site
            .env
            .package("gang")
            .file("train.sh", "while true; do sleep 1; done\n");
        site.env.paddlectl(&site.submit_gang("warm", package.arg())).ok();
        site.env.wait_for_status("warm", "Running");
        let pods = cluster.objects("pods", site.namespace());
        let manifest = site.env.folder("manifests").join("pods.json");
        copy_of(cluster, &site, pods, &manifest);
        site.env.paddlectl(&["kill", "warm"]).ok();
        site.server.wait_until_empty(0);
        let watch = PodWatch::start(cluster, site.namespace());
        Bench {
            site,
            package,
            watch,
            manifest,
        }
    }

    fn submit(&self, name: &str) -> Submitted {
        let args = self.site.submit_gang(name, self.package.arg());
        let started = Instant::now();
        self.site.env.paddlectl(&args).ok();
        let running = self.watch.wait_until_running(PODS, started);
        let created = Created::since(started, &running);
        self.site.env.wait_for_status(name, "Running");
        let gate = Gate::read(&running);
        self.site.env.paddlectl(&["kill", name]).ok();
        self.watch.wait_until_deleted(PODS);
        Submitted {
            created,
            since_last_container: gate.as_ref().map(|gate| gate.trainers - gate.containers),
            since_last_seen_running: gate.as_ref().map(|gate| gate.trainers - gate.seen),
        }
    }

    fn create(&self, cluster: &Cluster) -> Created {
        let manifest = self
            .manifest
            .to_str()
            .expect("temporary folders have plain names");
        let started = Instant::now();
        cluster.kubectl(&["create", "-f", manifest]);
        let running = self.watch.wait_until_running(PODS, started);
        let created = Created::since(started, &running);
        cluster.kubectl(&["delete", "--wait=false", "-f", manifest]);
        self.watch.wait_until_deleted(PODS);
        created
    }
}

fn last(running: &BTreeMap<String, Seen>) -> Instant {
    let times = running.values().map(|seen| seen.at);
    times.max().expect("a gang has pods")
}

/// When the last pod was created.
fn last_created(running: &BTreeMap<String, Seen>) -> Instant {
    let times = running.values().map(|seen| seen.created);
    times.max().expect("a gang has pods")
}

/// The last start of each kind, in milliseconds since boot.
struct Gate {
    containers: f64,
    trainers: f64,
    /// When the last pod was seen running.
    seen: f64,
}

impl Gate {
    /// `None` where the pods run on other machines.
    fn read(running: &BTreeMap<String, Seen>) -> Option<Gate> {
        let uid = |seen: &Seen| seen.pod["metadata"]["uid"].as_str().map(str::to_owned);
        let uids: Vec<String> = running.values().filter_map(uid).collect();
        let containers = uids.iter().filter_map(|uid| first_start(uid, "paddle launch"));
        let containers: Vec<f64> = containers.collect();
        let trainers: Vec<f64> = uids
            .iter()
            .filter_map(|uid| first_start(uid, "train.sh"))
            .collect();
        let all = containers.len() == PODS && trainers.len() == TRAINERS;
        let seen = milliseconds_since_boot() - milliseconds(last(running).elapsed());
        all.then(|| Gate {
            containers: containers.into_iter().fold(f64::MIN, f64::max),
            trainers: trainers.into_iter().fold(f64::MIN, f64::max),
            seen,
        })
    }
}

/// Writes the same pods under other names: without an owner, and with a link that leads nowhere.
fn copy_of(cluster: &Cluster, site: &Site, pods: Vec<Value>, file: &PathBuf) {
    let owner = pods[0]["metadata"]["ownerReferences"][0]["name"]
        .as_str()
        .expect("pods of a run have an owner")
        .to_owned();
    let secrets = cluster.objects("secrets", site.namespace());
    let link = secrets.iter().find(|secret| secret["metadata"]["name"] == *owner);
    let link = link.expect("the owner is a secret");
    let name = json!({"name": LINK_SECRET, "namespace": site.namespace()});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": name, "data": link["data"]}));
    let copies: Vec<Value> = pods
        .iter()
        .enumerate()
        .map(|(index, pod)| copied(pod, index))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": copies});
    let text = list.to_string().replace(&owner, LINK_SECRET);
    fs::write(file, text).expect("a file in the test's own folder");
}

pub fn copied(pod: &Value, index: usize) -> Value {
    let mut pod = pod.clone();
    let mut labels = pod["metadata"]["labels"].clone();
    labels[SERVER_LABEL] = "bench".into();
    let namespace = &pod["metadata"]["namespace"];
    pod["metadata"] = json!({"name": format!("copy-{index}"), "namespace": namespace, "labels": labels});
    let fields = pod.as_object_mut().expect("a pod is an object");
    fields.remove("status");
    let spec = pod["spec"].as_object_mut().expect("a pod has a spec");
    spec.remove("nodeName");
    for variable in pod["spec"]["containers"][0]["env"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if variable["name"] == "PADDLECLOUD_LINK" {
            variable["value"] = format!("127.0.0.1:{DEAD_PORT}").into();
        }
    }
    pod
}
