//! How long a line takes from a pod to a follower: `paddlectl logs -f` and `kubectl logs -f`, at the same time.
//!
//! Two pods on one node print the current time, one through our launcher and one without it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use e2e::cluster::Cluster;
use serde_json::{Value, json};

use crate::figures::{Row, median, quantile};
use crate::site::Site;

/// Lines of one round; 20 ms apart.
const LINES: usize = 1000;
/// A follower that has just connected receives what was printed before.
const BACKLOG: usize = 100;

pub fn measure(cluster: &Cluster, rounds: usize) -> Vec<Row> {
    let site = Site::start(cluster);
    // `ts` reads the clock and prints it at once, with microseconds, which `date` of busybox may not.
    let script = "while true; do echo | ts %.s; sleep 0.02; done\n";
    let package = site.env.package("lag").file("train.sh", script);
    site.env.submit(
        "lag",
        &package,
        &["-entry", "sh train.sh", "-cpu", "300m", "-memory", "64Mi"],
    );
    site.env.wait_for_status("lag", "Running");
    let bare = bare_pod(cluster, &site, script);
    cluster.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "-n",
        site.namespace(),
        "pod/bare",
    ]);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds.div_ceil(3) {
        let follow = site.env.command("paddlectl", &["logs", "-f", "lag"]);
        let mut kubectl = Command::new("kubectl");
        kubectl
            .args(["logs", "-f", "-n", site.namespace(), &bare])
            .env("KUBECONFIG", cluster.kubeconfig());
        let followers = [follow, kubectl].map(Follower::start);
        let [our_lags, their_lags] = followers.map(Follower::lags);
        ours.push([0.5, 0.99].map(|share| quantile(&our_lags, share)));
        theirs.push([0.5, 0.99].map(|share| quantile(&their_lags, share)));
    }
    site.env.paddlectl(&["kill", "lag"]).ok();
    let middle = |rounds: &[[f64; 2]], index: usize| {
        median(&rounds.iter().map(|round| round[index]).collect::<Vec<_>>())
    };
    let measured = format!(
        "p99 {:.1} ms, kubectl {:.1} ms (p50 {:.1} and {:.1})",
        middle(&ours, 1),
        middle(&theirs, 1),
        middle(&ours, 0),
        middle(&theirs, 0)
    );
    vec![Row::new(
        "log lag from pod to `logs -f`, p99",
        measured,
        "≤ kubectl logs -f",
    )]
}

/// Starts a pod like the trainer's that prints the same without our launcher; returns its name.
fn bare_pod(cluster: &Cluster, site: &Site, script: &str) -> String {
    let pods = cluster.objects("pods", site.namespace());
    let mut spec: Value = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1});
    let trainer = &pods[0]["spec"];
    spec["securityContext"] = trainer["securityContext"].clone();
    spec["nodeName"] = trainer["nodeName"].clone();
    let container = &trainer["containers"][0];
    spec["containers"] = json!([{"name": "bare", "image": container["image"], "command": ["sh", "-c", script],
        "resources": container["resources"], "securityContext": container["securityContext"]}]);
    let metadata = json!({"name": "bare", "namespace": site.namespace()});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
    "bare".to_owned()
}

/// A command that prints the lines of a pod as they come.
struct Follower {
    child: Child,
    lags: JoinHandle<Vec<f64>>,
}

impl Follower {
    fn start(mut command: Command) -> Follower {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("the program can be started");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let lags = thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            let lags = lines.filter_map(|line| {
                let printed: f64 = line.trim().parse().ok()?;
                Some((now() - printed) * 1e3)
            });
            // Everything printed before the follower came arrives late; wait until it has caught up.
            let fresh = lags.skip_while(|lag| *lag > 1000.0).skip(BACKLOG);
            fresh.take(LINES).collect()
        });
        Follower { child, lags }
    }

    fn lags(mut self) -> Vec<f64> {
        let lags = self.lags.join().expect("the lines can be read");
        let _ = self.child.kill();
        let _ = self.child.wait();
        lags
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is after 1970").as_secs_f64()
}
