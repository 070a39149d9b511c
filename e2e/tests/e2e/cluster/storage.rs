//! The tree as pods mount it: claims, missing folders, and trees of another server.

use std::path::Path;

use e2e::TestEnvironment;
use e2e::cluster::{Cluster, ClusterServer, Difference};
use serde_json::json;

/// A static volume of a folder, and a claim for it in the first user's namespace.
fn claim(env: &TestEnvironment, cluster: &Cluster, server: &ClusterServer, folder: &Path) {
    server.create_namespace(env, 0);
    let namespace = server.namespace(0);
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": folder},
            "claimRef": {"namespace": namespace, "name": "pfs"},
        },
    }));
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "pfs", "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }));
}

fn by_claim(env: &mut TestEnvironment, cluster: &Cluster, sub_path: &str) -> ClusterServer {
    let server = ClusterServer::start_with(env, cluster, |_| Difference {
        volume: Some(format!("{{claim: pfs, sub_path: \"{sub_path}\"}}")),
        ..Difference::default()
    });
    server.configure(env, 0);
    server
}

fn submit(env: &TestEnvironment, job: &str) {
    let package = env
        .package(job)
        .file("train.sh", "mkdir -p output && echo model > output/model\n");
    env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_runs_on_a_claim_under_restricted_pod_security() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    // The volume is the folder above the storage, so that the tree begins below its root.
    let server = by_claim(&mut env, &cluster, "storage");
    let namespace = server.namespace(0);
    let above = server.path("storage").parent().unwrap().to_owned();
    claim(&env, &cluster, &server, &above);
    let level = "pod-security.kubernetes.io/enforce=restricted";
    cluster.kubectl(&["label", "namespace", namespace, level]);
    submit(&env, "claimed");
    env.wait_for_status("claimed", "Succeeded");
    let model = server.output(&env, 0, "claimed").join("model");
    assert_eq!(std::fs::read_to_string(model).unwrap(), "model\n");
    server.wait_until_empty(0);
    cluster.kubectl(&["delete", "pv", namespace, "--wait=false"]);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_volume_that_is_not_the_servers_storage_is_noticed() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = by_claim(&mut env, &cluster, "");
    let other = server.path("other");
    std::fs::create_dir(&other).unwrap();
    claim(&env, &cluster, &server, &other);
    submit(&env, "elsewhere");
    env.wait_for_status("elsewhere", "Failed");
    let described = env.paddlectl(&["describe", "elsewhere"]).ok().stdout;
    assert!(
        described.contains("the volume of this pod is not the `storage` of its server"),
        "{described}"
    );
    server.wait_until_empty(0);
    cluster.kubectl(&["delete", "pv", server.namespace(0), "--wait=false"]);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_volume_that_does_not_mount_fails_the_job_in_the_kubelets_words() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start_with(&mut env, &cluster, |server| Difference {
        volume: Some(format!("{{host_path: {}}}", server.path("nowhere").display())),
        ..Difference::default()
    });
    server.configure(&env, 0);
    submit(&env, "unmounted");
    env.wait_for_status("unmounted", "Failed");
    let described = env.paddlectl(&["describe", "unmounted"]).ok().stdout;
    assert!(described.contains("FailedMount"), "{described}");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_missing_claim_fails_the_job_in_the_schedulers_words() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = by_claim(&mut env, &cluster, "");
    submit(&env, "unclaimed");
    env.wait_for_status("unclaimed", "Failed");
    let described = env.paddlectl(&["describe", "unclaimed"]).ok().stdout;
    assert!(described.contains("persistentvolumeclaim"), "{described}");
    server.wait_until_empty(0);
}
