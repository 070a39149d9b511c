//! Gangs that other systems place: Kueue, Volcano, an autoscaler. None runs here: stand-ins show what the server sends them.

use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};
use serde_json::{Value, json};

/// A kind of object that the cluster does not have; taken away when dropped.
struct StandIn {
    cluster: Cluster,
    name: String,
}

impl StandIn {
    fn make(cluster: &Cluster, group: &str, kind: &str, plural: &str) -> StandIn {
        let name = format!("{plural}.{group}");
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let manifest = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1beta1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": anything}}],
            },
        });
        cluster.apply(&manifest);
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            &name,
        ];
        cluster.kubectl(&established);
        StandIn {
            cluster: cluster.clone(),
            name,
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.cluster
            .kubectl(&["delete", "crd", &self.name, "--wait=false"]);
    }
}

fn start(cluster: &Cluster, placement: &str, seat_limit: &str) -> (TestEnvironment, ClusterServer) {
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start_with(&mut env, cluster, |_| Difference {
        kubernetes: format!(
            "  placement: {placement}\n  seat_limit: {seat_limit}\n  lost_limit: 6s\n  trouble_limit: 1s\n"
        ),
        ..Difference::default()
    });
    server.configure(&env, 0);
    (env, server)
}

fn submit(env: &TestEnvironment, job: &str, cpu: &str) {
    let package = env.package(job).file("train.sh", "echo begun\n");
    let flags = [
        "-entry",
        "sh train.sh",
        "-cpu",
        cpu,
        "-memory",
        "32Mi",
        "-pservers",
        "0",
    ];
    env.submit(job, &package, &[&flags[..], &["-parallelism", "2"]].concat());
}

fn pods(cluster: &Cluster, server: &ClusterServer) -> Vec<Value> {
    wait_until("the job must have its pods", || {
        let pods = cluster.objects("pods", server.namespace(0));
        (pods.len() == 2).then_some(pods)
    })
}

/// What other systems call the gang of a job.
fn group(env: &TestEnvironment, job: &str) -> String {
    let id = env.describe(job)["job"]["id"]
        .as_str()
        .expect("a job has an id")
        .to_owned();
    format!("run-{}", id.trim_start_matches("j_"))
}

fn why_says(env: &TestEnvironment, job: &str, words: &str) {
    wait_until(&format!("`why` must say {words:?}"), || {
        env.paddlectl(&["why", job])
            .ok()
            .stdout
            .contains(words)
            .then_some(())
    });
}

/// A kubelet may reject a pod that it was given. Here nobody has bound the pods yet, so no kubelet contradicts.
fn reject_one_pod(
    env: &TestEnvironment,
    cluster: &Cluster,
    server: &ClusterServer,
    pod: &Value,
) -> Vec<Value> {
    let name = pod["metadata"]["name"].as_str().expect("a pod has a name");
    let rejected = json!({"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}});
    let namespace = server.namespace(0);
    let patch = [
        "patch",
        "pod",
        name,
        "-n",
        namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    cluster.kubectl(&[&patch[..], &[&rejected.to_string()]].concat());
    let pods = wait_until("another pod must take its place", || {
        let pods = cluster.objects("pods", namespace);
        let waiting = pods.into_iter().filter(|pod| pod["status"]["phase"] == "Pending");
        let waiting: Vec<Value> = waiting.collect();
        (waiting.len() == 2).then_some(waiting)
    });
    let described = env.paddlectl(&["describe", "gang"]).ok().stdout;
    assert!(
        described.contains("OutOfcpu: Node didn't have enough resource: cpu"),
        "{described}"
    );
    pods
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn volcano_gets_a_pod_group_and_its_answer_is_shown() {
    let cluster = Cluster::here();
    let _kind = StandIn::make(&cluster, "scheduling.volcano.sh", "PodGroup", "podgroups");
    let (env, server) = start(&cluster, "volcano\n  queue: training", "6s");
    submit(&env, "gang", "50m");
    let pods = pods(&cluster, &server);
    let group = group(&env, "gang");
    for pod in &pods {
        assert_eq!(pod["spec"]["schedulerName"], "volcano");
        assert_eq!(
            pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"],
            group
        );
    }
    let objects = env.paddlectl(&["describe", "--objects", "gang"]).ok().stdout;
    assert!(
        objects.contains(&format!("PodGroup\t{}\t{group}\n", server.namespace(0))),
        "{objects}"
    );
    let kind = "podgroups.scheduling.volcano.sh";
    let made = cluster.objects(kind, server.namespace(0));
    assert_eq!(made[0]["spec"], json!({"minMember": 2, "queue": "training"}));
    let pods = reject_one_pod(&env, &cluster, &server, &pods[0]);
    let answer = json!({"status": {"conditions": [{
        "type": "Unschedulable", "status": "True", "message": "2/2 tasks in gang unschedulable: queue is full",
    }]}});
    let patch = [
        "patch",
        kind,
        &group,
        "-n",
        server.namespace(0),
        "--type=merge",
        "-p",
        &answer.to_string(),
    ];
    cluster.kubectl(&patch);
    why_says(&env, "gang", "2/2 tasks in gang unschedulable: queue is full");
    // Volcano would bind the pods when there is room for all of them.
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", server.namespace(0));
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"}});
        cluster.send(&["create", "--raw", &path, "-f", "-"], &binding);
    }
    env.wait_for_status("gang", "Succeeded");
    server.wait_until_empty(0);
    wait_until("the pod group must go with its run", || {
        cluster
            .objects(kind, server.namespace(0))
            .is_empty()
            .then_some(())
    });
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn kueue_gets_a_pod_group_and_its_answer_is_shown() {
    let cluster = Cluster::here();
    let _kind = StandIn::make(&cluster, "kueue.x-k8s.io", "Workload", "workloads");
    let (env, server) = start(&cluster, "kueue\n  queue: training", "6s");
    // More than any node has: Kueue would hold the pods back with a gate, which only it can set.
    submit(&env, "gang", "1000");
    let group = group(&env, "gang");
    for pod in pods(&cluster, &server) {
        let (labels, annotations) = (&pod["metadata"]["labels"], &pod["metadata"]["annotations"]);
        assert_eq!(labels["kueue.x-k8s.io/queue-name"], "training");
        assert_eq!(labels["kueue.x-k8s.io/pod-group-name"], group);
        assert_eq!(annotations["kueue.x-k8s.io/pod-group-total-count"], "2");
    }
    let answer = "couldn't assign flavors to pod set main: insufficient quota for cpu";
    cluster.apply(&json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": {"name": group, "namespace": server.namespace(0)},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": answer}]},
    }));
    why_says(&env, "gang", answer);
    env.paddlectl(&["kill", "gang"]).ok();
    env.wait_for_status("gang", "Killed");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn the_events_of_an_autoscaler_are_shown_while_pods_wait_for_nodes() {
    let cluster = Cluster::here();
    let (env, server) = start(&cluster, "on_demand", "60s");
    // More than any node has.
    submit(&env, "grows", "1000");
    let pod = pods(&cluster, &server)[0]["metadata"].clone();
    let namespace = server.namespace(0);
    why_says(&env, "grows", "nodes are available");
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Event", "type": "Normal",
        "metadata": {"name": "scale-up", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": pod["name"], "namespace": namespace, "uid": pod["uid"]},
        "reason": "TriggeredScaleUp", "message": "pod triggered scale-up: [{pool 1->3 (max: 9)}]",
        "source": {"component": "cluster-autoscaler"},
    }));
    why_says(
        &env,
        "grows",
        "TriggeredScaleUp: pod triggered scale-up: [{pool 1->3 (max: 9)}]",
    );
    env.paddlectl(&["kill", "grows"]).ok();
    env.wait_for_status("grows", "Killed");
    server.wait_until_empty(0);
}
