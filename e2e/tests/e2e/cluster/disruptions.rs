//! What a cluster does to a job, and whether it counts as the job's failure.

use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};
use serde_json::json;

use super::nodes::{processes_with, signal};

/// Begins, and ends when the test writes `output/gate`.
const WAITS: &str = "echo begun\nmkdir -p output\nuntil [ -e output/gate ]; do sleep 0.1; done\n";

fn lines_with(env: &TestEnvironment, job: &str, text: &str) -> usize {
    env.logs(job).iter().filter(|line| line.contains(text)).count()
}

fn start() -> (TestEnvironment, Cluster, ClusterServer) {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    (env, cluster, server)
}

fn submit_and_wait_for_start(env: &TestEnvironment, job: &str) {
    let package = env.package(job).file("train.sh", WAITS);
    env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the trainer must begin", || {
        (lines_with(env, job, "begun") == 1).then_some(())
    });
}

fn pod_of(cluster: &Cluster, server: &ClusterServer) -> String {
    let pods = cluster.objects("pods", server.namespace(0));
    pods[0]["metadata"]["name"]
        .as_str()
        .expect("a pod has a name")
        .to_owned()
}

/// Waits for the second attempt, lets it end, and returns what `describe` says of it.
fn second_attempt_ends_well(env: &TestEnvironment, server: &ClusterServer, job: &str) -> String {
    wait_until("the trainer must begin again", || {
        let worker = &env.describe(job)["workers"][0];
        (worker["attempt"] == 2).then_some(())
    });
    std::fs::write(server.output(env, 0, job).join("gate"), "").expect("the run has a folder for its output");
    env.wait_for_status(job, "Succeeded");
    server.wait_until_empty(0);
    env.paddlectl(&["describe", job]).ok().stdout
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_deleted_pod_is_restarted_and_uses_no_retry() {
    let (env, cluster, server) = start();
    submit_and_wait_for_start(&env, "robbed");
    let pod = pod_of(&cluster, &server);
    cluster.kubectl(&["delete", "pod", "-n", server.namespace(0), &pod, "--wait=false"]);
    let described = second_attempt_ends_well(&env, &server, "robbed");
    assert!(described.contains("the server did not see why"), "{described}");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_deleted_pod_whose_launcher_cannot_report_in_time_is_restarted() {
    let (env, cluster, server) = start();
    submit_and_wait_for_start(&env, "mute");
    let (pod, id) = (
        pod_of(&cluster, &server),
        env.describe("mute")["job"]["id"].clone(),
    );
    let id = id.as_str().expect("a job has an id");
    // As on a busy node: the kubelet kills the launcher before that has handled the first signal.
    signal(
        &processes_with("environ", &["PADDLECLOUD_LINK_ATTEMPT", id]),
        libc::SIGSTOP,
    );
    let at_once = ["--wait=false", "--grace-period=1"];
    cluster.kubectl(&[&["delete", "pod", "-n", server.namespace(0), &pod], &at_once[..]].concat());
    let described = second_attempt_ends_well(&env, &server, "mute");
    assert!(described.contains("the server did not see why"), "{described}");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_evicted_pod_is_restarted_with_the_clusters_reason() {
    let (env, cluster, server) = start();
    submit_and_wait_for_start(&env, "evicted");
    evict(&cluster, server.namespace(0), &pod_of(&cluster, &server));
    let described = second_attempt_ends_well(&env, &server, "evicted");
    assert!(described.contains("evicted"), "{described}");
}

fn evict(cluster: &Cluster, namespace: &str, pod: &str) {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
    cluster.send(&["create", "--raw", &path, "-f", "-"], &eviction);
}

/// Submits a job with one trainer and one parameter server that runs this program. Returns the pod of the latter.
fn submit_with_pserver(
    env: &TestEnvironment,
    cluster: &Cluster,
    server: &ClusterServer,
    job: &str,
    program: &str,
) -> String {
    let package = env.package(job).file("train.sh", WAITS);
    let flags = "-entry|sh train.sh|-cpu|100m|-pservers|1|-pscpu|100m|-psmemory|64Mi|-psentry".split('|');
    env.submit(job, &package, &flags.chain([program]).collect::<Vec<_>>());
    wait_until("the trainer must begin", || {
        (lines_with(env, job, "begun") == 1).then_some(())
    });
    let pods = cluster.objects("pods", server.namespace(0));
    let is_pserver = |pod: &&serde_json::Value| pod["metadata"]["labels"]["paddle-job-pserver"].is_string();
    let pod = pods.iter().find(is_pserver).expect("it runs");
    pod["metadata"]["name"]
        .as_str()
        .expect("a pod has a name")
        .to_owned()
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_evicted_pserver_that_exits_with_0_is_restarted() {
    let (env, cluster, server) = start();
    let program = "trap 'exit 0' TERM; paddle pserver & wait";
    let pod = submit_with_pserver(&env, &cluster, &server, "polite", program);
    evict(&cluster, server.namespace(0), &pod);
    second_attempt_ends_well(&env, &server, "polite");
}

/// A trainer that obeys a request to stop, as the documents ask of it, and exits with 0.
fn submit_polite_trainer(env: &TestEnvironment, job: &str) {
    let package = env
        .package(job)
        .file("train.sh", format!("trap 'exit 0' TERM\n{WAITS}"));
    env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the trainer must begin", || {
        (lines_with(env, job, "begun") == 1).then_some(())
    });
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_evicted_trainer_that_exits_with_0_has_not_succeeded() {
    let (env, cluster, server) = start();
    submit_polite_trainer(&env, "obedient");
    evict(&cluster, server.namespace(0), &pod_of(&cluster, &server));
    second_attempt_ends_well(&env, &server, "obedient");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_pod_that_is_deleted_while_the_server_is_away_uses_no_retry() {
    let (env, cluster, mut server) = start();
    for (job, is_polite) in [("unseen", false), ("unseen-polite", true)] {
        match is_polite {
            true => submit_polite_trainer(&env, job),
            false => submit_and_wait_for_start(&env, job),
        }
        let pod = pod_of(&cluster, &server);
        server.crash();
        cluster.kubectl(&["delete", "pod", "-n", server.namespace(0), &pod]);
        server.revive(&env);
        server.configure(&env, 0);
        second_attempt_ends_well(&env, &server, job);
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_worker_that_is_disrupted_too_often_fails() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start_with(&mut env, &cluster, |_| Difference {
        kubernetes: "  disruption_limit: 0\n".into(),
        ..Difference::default()
    });
    server.configure(&env, 0);
    submit_and_wait_for_start(&env, "often");
    let pod = pod_of(&cluster, &server);
    cluster.kubectl(&["delete", "pod", "-n", server.namespace(0), &pod, "--wait=false"]);
    env.wait_for_status("often", "Failed");
    let described = env.paddlectl(&["describe", "often"]).ok().stdout;
    assert!(described.contains("which is the limit"), "{described}");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_gang_that_exceeds_a_quota_waits_until_all_its_pods_fit() {
    let (env, cluster, server) = start();
    let namespace = server.namespace(0);
    server.create_namespace(&env, 0);
    cluster.kubectl(&["create", "quota", "narrow", "-n", namespace, "--hard=pods=1"]);
    let package = env.package("gang").file("train.sh", "echo begun\n");
    env.submit(
        "gang",
        &package,
        &["-entry", "sh train.sh", "-cpu", "100m", "-parallelism", "2"],
    );
    wait_until("the gang must be withdrawn", || {
        let described = env.paddlectl(&["describe", "gang"]).ok().stdout;
        let withdrawn = described.contains("withdrawn") && described.contains("exceeded quota");
        withdrawn.then_some(())
    });
    assert_eq!(
        lines_with(&env, "gang", "begun"),
        0,
        "none starts before all are there"
    );
    cluster.kubectl(&["delete", "quota", "narrow", "-n", namespace]);
    env.wait_for_status("gang", "Succeeded");
    assert_eq!(lines_with(&env, "gang", "begun"), 2);
    server.wait_until_empty(0);
}

/// A pod that keeps those of a job away from its node, which our own count does not see.
fn repelling_pod(cluster: &Cluster, job: &str) -> serde_json::Value {
    let term = json!({
        "labelSelector": {"matchLabels": {"paddle-job": job}},
        "namespaceSelector": {},
        "topologyKey": "kubernetes.io/os",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("keeps-{job}-away"), "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            "containers": [{"name": "main", "image": cluster.shell_image()}],
        },
    })
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_gang_whose_seat_is_taken_is_withdrawn_with_the_schedulers_numbers() {
    let (env, cluster, server) = start();
    let job = format!("crowded-{}", server.namespace(0));
    let pod = format!("keeps-{job}-away");
    cluster.apply(&repelling_pod(&cluster, &job));
    wait_until("the foreign pod must run", || {
        let phase = cluster.kubectl(&[
            "get",
            "pod",
            &pod,
            "-n",
            "default",
            "-o",
            "jsonpath={.status.phase}",
        ]);
        (phase == "Running").then_some(())
    });
    let package = env.package(&job).file("train.sh", "echo begun\n");
    env.submit(&job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the gang must be withdrawn", || {
        let described = env.paddlectl(&["describe", &job]).ok().stdout;
        let withdrawn = described.contains("withdrawn: 0/") && described.contains("nodes are available");
        withdrawn.then_some(())
    });
    cluster.kubectl(&["delete", "pod", &pod, "-n", "default", "--wait=false"]);
    env.wait_for_status(&job, "Succeeded");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_trainer_that_exceeds_its_memory_fails_and_says_so() {
    let (env, _cluster, server) = start();
    let package = env
        .package("greedy")
        .file("train.sh", "echo begun\ntail /dev/zero\n");
    let flags = ["-entry", "sh train.sh", "-cpu", "100m", "-memory", "48Mi"];
    env.submit("greedy", &package, &flags);
    env.wait_for_status("greedy", "Failed");
    let described = env.paddlectl(&["describe", "greedy"]).ok().stdout;
    assert!(described.contains("out of memory"), "{described}");
    assert_eq!(lines_with(&env, "greedy", "begun"), 1);
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_pserver_that_is_killed_ends_its_job_and_its_log_is_complete() {
    let (env, cluster, server) = start();
    let program = "for i in $(seq 1 500); do echo line $i; done; echo all; exec paddle pserver";
    let pod = submit_with_pserver(&env, &cluster, &server, "served", program);
    let namespace = server.namespace(0);
    // Everything but the launcher, which is the first process; the shell itself is killed with the rest.
    let script = "kill -9 -1 || true";
    let exec = ["exec", "-n", namespace, &pod, "--", "sh", "-c", script];
    let killed = std::process::Command::new("kubectl")
        .args(exec)
        .env("KUBECONFIG", cluster.kubeconfig())
        .output();
    assert!(killed.is_ok(), "{killed:?}");
    env.wait_for_status("served", "Failed");
    assert_eq!(lines_with(&env, "served", "line "), 500);
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_image_without_a_shell_fails_the_job() {
    let (env, cluster, server) = start();
    let package = env.package("bare").file("a", "b");
    let flags = [
        "-entry",
        "true",
        "-cpu",
        "100m",
        "-image",
        cluster.image_without_shell(),
    ];
    env.submit("bare", &package, &flags);
    env.wait_for_status("bare", "Failed");
    let described = env.paddlectl(&["describe", "bare"]).ok().stdout;
    assert!(described.contains("sh"), "{described}");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_image_that_cannot_be_pulled_is_named_while_the_job_starts() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    // A job that failed would name the image too.
    let server = ClusterServer::start_with(&mut env, &cluster, |_| Difference {
        kubernetes: "  trouble_limit: 10m\n".into(),
        ..Difference::default()
    });
    server.configure(&env, 0);
    let package = env.package("unpulled").file("train.sh", "echo begun\n");
    let image = "127.0.0.1:1/nobody:1";
    let flags = ["-entry", "sh train.sh", "-cpu", "100m", "-image", image];
    env.submit("unpulled", &package, &flags);
    wait_until("the reason must be shown", || {
        let why = env.paddlectl(&["why", "unpulled"]).ok().stdout;
        why.contains(&format!("trainer 0 waits: image `{image}`: "))
            .then_some(())
    });
    env.paddlectl(&["kill", "unpulled"]).ok();
    env.wait_for_status("unpulled", "Killed");
    server.wait_until_empty(0);
}

/// A pod of somebody else that takes the cards of a node.
fn pod_with_cards(cluster: &Cluster, name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": cluster.shell_image(),
                "resources": {"limits": {"nvidia.com/gpu": "2"}},
            }],
        },
    })
}

/// There are no real cards: the node only says that it has some.
#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_gang_and_a_foreign_pod_that_race_for_cards_both_get_them_in_turn() {
    let (env, cluster, server) = start();
    let cards = r#"{"status":{"capacity":{"nvidia.com/gpu":"2"}}}"#;
    let patch = [
        "patch",
        "node",
        "node1",
        "--subresource=status",
        "--type=merge",
        "-p",
        cards,
    ];
    cluster.kubectl(&patch);
    wait_until("the node must offer its cards", || {
        let offered = "jsonpath={.status.allocatable.nvidia\\.com/gpu}";
        (cluster.kubectl(&["get", "node", "node1", "-o", offered]) == "2").then_some(())
    });
    let package = env.package("race").file(
        "train.sh",
        "echo begun with ${CUDA_VISIBLE_DEVICES-all cards of its pod}\n",
    );
    let flags = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "50m",
        "-gpu",
        "1",
        "-parallelism",
        "2",
    ];
    for round in 0..3 {
        let (job, rival) = (
            format!("race-{round}"),
            format!("rival-{round}-{}", server.namespace(0)),
        );
        std::thread::scope(|both| {
            both.spawn(|| cluster.apply(&pod_with_cards(&cluster, &rival)));
            env.submit(&job, &package, &flags);
        });
        let (rival, job) = (rival.as_str(), job.as_str());
        wait_until("one of them must have the cards", || {
            let phase = [
                "get",
                "pod",
                rival,
                "-n",
                "default",
                "-o",
                "jsonpath={.status.phase}",
            ];
            let ended = env.status(job) == "Succeeded";
            (ended || cluster.kubectl(&phase) == "Running").then_some(())
        });
        cluster.kubectl(&["delete", "pod", rival, "-n", "default", "--wait=false"]);
        env.wait_for_status(job, "Succeeded");
        assert_eq!(lines_with(&env, job, "begun with all cards of its pod"), 2);
    }
    check_preemption(&env, &cluster, &server, &flags);
    server.wait_until_empty(0);
}

/// A pod of a higher priority takes the cards of a running job, which gets them back and uses no retry.
fn check_preemption(env: &TestEnvironment, cluster: &Cluster, server: &ClusterServer, flags: &[&str]) {
    let urgent = format!("urgent-{}", server.namespace(0));
    cluster.apply(&json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": urgent}, "value": 1000,
    }));
    let package = env.package("yields").file("train.sh", WAITS);
    env.submit("yields", &package, flags);
    wait_until("the trainers must begin", || {
        (lines_with(env, "yields", "begun") == 2).then_some(())
    });
    let mut pod = pod_with_cards(cluster, &urgent);
    pod["spec"]["priorityClassName"] = json!(urgent);
    cluster.apply(&pod);
    wait_until("the trainers must be preempted", || {
        let described = env.paddlectl(&["describe", "yields"]).ok().stdout;
        described.contains("preempted").then_some(())
    });
    cluster.kubectl(&["delete", "pod", &urgent, "-n", "default", "--wait=false"]);
    cluster.kubectl(&["delete", "priorityclass", &urgent]);
    std::fs::write(server.output(env, 0, "yields").join("gate"), "")
        .expect("the run has a folder for its output");
    env.wait_for_status("yields", "Succeeded");
}
