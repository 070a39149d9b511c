//! Users are kept apart, and the server does with the rights that it was given.

use e2e::TestEnvironment;
use e2e::cluster::{Cluster, ClusterServer, Difference};
use serde_json::json;

fn submit(env: &TestEnvironment, job: &str) {
    let package = env.package(job).file("train.sh", "echo begun\n");
    env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
}

/// The testbed's network enforces no policy: that it is there, and what it says, is all that can be tested.
#[test]
fn a_user_has_a_namespace_with_fences() {
    let Some(cluster) = Cluster::here() else { return };
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    submit(&env, "fenced");
    env.wait_for_status("fenced", "Succeeded");
    let namespace = server.namespace(0);
    let kinds = "resourcequotas,limitranges,networkpolicies.networking.k8s.io";
    let fences = cluster.objects(kinds, namespace);
    let kind_of = |fence: &serde_json::Value| fence["kind"].as_str().unwrap().to_owned();
    let kinds: std::collections::BTreeSet<String> = fences.iter().map(kind_of).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    let level = "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}";
    let level = cluster.kubectl(&["get", "namespace", namespace, "-o", level]);
    assert_eq!(level, "privileged", "which a folder of the nodes needs");
    server.wait_until_empty(0);
}

#[test]
fn a_server_with_given_namespaces_needs_no_right_outside_of_them() {
    let Some(cluster) = Cluster::here() else { return };
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start_with(&mut env, &cluster, |server| {
        let namespace = server.namespace(0);
        cluster.kubectl(&["create", "namespace", namespace]);
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "server", "namespace": namespace}});
        cluster.apply(&account);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "server", "namespace": namespace},
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "delete"]},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
            ],
        });
        cluster.apply(&role);
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "server", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "server"},
            "subjects": [{"kind": "ServiceAccount", "name": "server", "namespace": namespace}],
        });
        cluster.apply(&binding);
        let token = cluster.kubectl(&["create", "token", "server", "-n", namespace]);
        Difference {
            kubeconfig: Some(cluster.kubeconfig_with_token(&server.path("token.conf"), token.trim())),
            kubernetes: format!("  namespaces: {{\"*\": {namespace}}}\n"),
            ..Difference::default()
        }
    });
    server.configure(&env, 1);
    submit(&env, "confined");
    env.wait_for_status("confined", "Succeeded");
    server.wait_until_empty(0);
}
