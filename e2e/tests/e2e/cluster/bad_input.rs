//! Clusters that cannot be used: the server says why in one sentence, and does not start.

use std::fs;

use e2e::cluster::{Cluster, ClusterServer, Difference};
use serde_json::json;

fn with_kubeconfig(cluster: &Cluster, text: &str) -> String {
    ClusterServer::refusal(cluster, |server| {
        let file = server.path("other.conf");
        fs::write(&file, text).expect("a file in the server's folder");
        Difference {
            kubeconfig: Some(file),
            ..Difference::default()
        }
    })
}

#[test]
fn a_cluster_that_cannot_be_used_is_named() {
    let Some(cluster) = Cluster::here() else { return };
    let nowhere = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    let said = with_kubeconfig(&cluster, &nowhere.to_string());
    assert!(said.contains("the cluster does not answer"), "{said}");
    let said = with_kubeconfig(&cluster, "no: kubeconfig");
    assert!(
        said.contains("cannot find out how to reach the cluster"),
        "{said}"
    );
}

#[test]
fn credentials_that_do_not_do_are_named() {
    let Some(cluster) = Cluster::here() else { return };
    let with_token = |token: &str| {
        ClusterServer::refusal(&cluster, |server| Difference {
            kubeconfig: Some(cluster.kubeconfig_with_token(&server.path("token.conf"), token)),
            ..Difference::default()
        })
    };
    let said = with_token("expired");
    assert!(said.contains("Unauthorized"), "{said}");
    let token = cluster.kubectl(&["create", "token", "default", "-n", "default"]);
    let said = with_token(token.trim());
    assert!(
        said.contains("this server may not list and watch nodes"),
        "{said}"
    );
}
