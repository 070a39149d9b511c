//! One job from submit to its end: pods, logs, output, kill.

use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, wait_until};
use serde_json::Value;

/// A server, and `ada` as its user.
fn start() -> (TestEnvironment, Cluster, ClusterServer) {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    (env, cluster, server)
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_runs_in_pods_and_everything_it_left_can_be_read() {
    let (env, _cluster, server) = start();
    let package = env.package("words").file(
        "train.sh",
        "set -e\n\
         echo id $(cat /trainer_id) of $(cat /trainer_count) on $PADDLE_PSERVERS_IP_PORT_LIST\n\
         echo list > /train.list\n\
         grep -q pserver /etc/hosts && echo peers are known\n\
         echo shared memory of $(df -k /dev/shm | tail -n 1 | awk '{print $2}') KiB\n\
         mkdir -p output/pass-00000 && echo model > output/pass-00000/$TRAINER_ID\n",
    );
    env.submit(
        "words",
        &package,
        &[
            "-parallelism",
            "2",
            "-pservers",
            "1",
            "-entry",
            "sh train.sh",
            "-cpu",
            "100m",
            "-memory",
            "48Mi",
            "-pscpu",
            "100m",
            "-psmemory",
            "32Mi",
        ],
    );
    env.wait_for_status("words", "Succeeded");
    let logs = env.logs("words").join("\n");
    for line in [
        "label selector: paddle-job-pserver=words, desired: 1",
        "running pod list:  [('Running', '10.",
        "id 0 of 2 on words-pserver-",
        "id 1 of 2 on words-pserver-",
        "peers are known",
        "shared memory of 49152 KiB",
    ] {
        assert!(logs.contains(line), "no {line:?} in\n{logs}");
    }
    let output = env.describe("words")["job"]["id"].as_str().unwrap().to_owned();
    let run = server
        .home(0)
        .join(".paddlecloud/runs")
        .join(output)
        .join("words");
    for file in [
        "output/pass-00000/0",
        "output/pass-00000/1",
        "output/node_0/train.log",
    ] {
        assert!(run.join(file).is_file(), "{file} is missing in {}", run.display());
    }
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_killed_job_ends_politely_and_leaves_no_object() {
    let (env, cluster, server) = start();
    let package = env.package("endless").file(
        "train.sh",
        "trap 'echo told to stop; exit 0' TERM\necho begun\nwhile true; do sleep 1 & wait $!; done\n",
    );
    env.submit("endless", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the trainer must begin", || {
        env.logs("endless")
            .iter()
            .any(|line| line.ends_with("begun"))
            .then_some(())
    });
    let pods = cluster.objects("pods", server.namespace(0));
    assert_eq!(pods.len(), 1);
    check_restricted(&pods[0]);
    env.paddlectl(&["kill", "endless"]).ok();
    env.wait_for_status("endless", "Killed");
    assert!(
        env.logs("endless")
            .iter()
            .any(|line| line.ends_with("told to stop"))
    );
    server.wait_until_empty(0);
}

/// What a tenant's pod must not have.
fn check_restricted(pod: &Value) {
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    let volumes = spec["volumes"].as_array().expect("a pod has volumes");
    assert!(
        volumes.iter().all(|volume| volume["projected"].is_null()),
        "{volumes:?}"
    );
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_failed_program_is_explained_and_a_retry_is_a_new_pod() {
    let (env, _cluster, server) = start();
    let package = env.package("fails").file(
        "train.sh",
        "mkdir -p output; echo attempt >> output/attempts; test $(wc -l < output/attempts) -gt 1 || exit 3\necho second\n",
    );
    // A name that no object of a cluster can have.
    let fails = format!("Fails.{}", "x".repeat(57));
    env.submit(
        &fails,
        &package,
        &["-entry", "sh train.sh", "-retries", "1", "-cpu", "100m"],
    );
    env.wait_for_status(&fails, "Succeeded");
    assert!(env.logs(&fails).iter().any(|line| line.ends_with("second")));
    env.submit(
        "fails-again",
        &package,
        &["-entry", "echo last words; exit 7", "-cpu", "100m"],
    );
    env.wait_for_status("fails-again", "Failed");
    let described = env.paddlectl(&["describe", "fails-again"]).ok().stdout;
    assert!(described.contains("exit code 7"), "{described}");
    assert!(
        env.logs("fails-again")
            .iter()
            .any(|line| line.ends_with("last words"))
    );
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_image_that_does_not_exist_fails_the_job_in_the_clusters_words() {
    let (env, _cluster, server) = start();
    let package = env.package("nowhere").file("a", "b");
    env.submit(
        "nowhere",
        &package,
        &["-entry", "true", "-image", "testbed.local/nowhere:1"],
    );
    env.wait_for_status("nowhere", "Failed");
    let described = env.paddlectl(&["describe", "nowhere"]).ok().stdout;
    assert!(described.contains("testbed.local/nowhere:1"), "{described}");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn the_status_of_the_server_shows_the_resources_of_the_cluster() {
    let (env, cluster, _server) = start();
    // Other tests add nodes and remove them.
    wait_until("the cards of all nodes must be shown", || {
        let shown = env.paddlectl(&["server", "status", "-o", "json"]).ok().stdout;
        let shown: Value = serde_json::from_str(&shown).expect("JSON was asked for");
        let nodes = cluster.kubectl(&["get", "nodes", "-o", "json"]);
        let nodes: Value = serde_json::from_str(&nodes).expect("JSON was asked for");
        let nodes = nodes["items"].as_array().expect("a list has items");
        let cards = nodes.iter().filter_map(|node| {
            let cards = &node["status"]["allocatable"]["nvidia.com/gpu"];
            cards.as_str()?.parse::<u64>().ok()
        });
        let cards: u64 = cards.sum();
        assert!(
            cards > 0,
            "the server's own machine has none, so this tells them apart"
        );
        (shown["gpus"] == cards).then_some(())
    });
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_worker_that_writes_more_than_its_disk_has_failed() {
    let (env, cluster, server) = start();
    // In the usual image of the tests, only root may write to `/tmp`.
    let image = cluster.runtime_image();
    let package = env.package("greedy").file(
        "train.sh",
        "echo begun\ndd if=/dev/zero of=/tmp/much bs=1M count=600 && exec sleep 600\n",
    );
    let small = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "100m",
        "-memory",
        "64Mi",
        "-pservers",
        "0",
    ];
    let disk = ["-disk", "300Mi", "-image", &image];
    env.submit("greedy", &package, &[&small[..], &disk].concat());
    env.wait_for_status("greedy", "Failed");
    let described = env.describe("greedy");
    assert_eq!(described["job"]["disk"], "300Mi");
    assert_eq!(described["workers"][0]["attempt"], 1, "it is not restarted");
    let why = env.paddlectl(&["why", "greedy"]).stdout;
    assert!(why.contains("ephemeral") && why.contains("300Mi"), "{why}");
    server.wait_until_empty(0);
}
