//! Users are isolated from each other, and the server needs no more rights than it was given.

use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};
use serde_json::json;

fn submit(env: &TestEnvironment, job: &str) {
    let package = env.package(job).file("train.sh", "echo begun in $NAMESPACE\n");
    env.submit(job, &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
}

/// The testbed's network enforces no policy: that it is there, and what it says, is all that can be tested.
#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_user_has_a_namespace_with_fences() {
    let cluster = Cluster::here();
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
#[ignore = "needs a Kubernetes cluster"]
fn a_server_with_given_namespaces_needs_all_rights_there_and_none_elsewhere() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start_with(&mut env, &cluster, |server| {
        let namespace = server.namespace(0);
        cluster.kubectl(&["create", "namespace", namespace]);
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "server", "namespace": namespace}});
        cluster.apply(&account);
        cluster.apply(&role(namespace, &["get", "delete"]));
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
    submit(&env, "refused");
    env.wait_for_status("refused", "Failed");
    let described = env.paddlectl(&["describe", "refused"]).ok().stdout;
    assert!(described.contains("the cluster refused: secrets"), "{described}");
    assert!(
        described.contains("cannot create resource \"secrets\""),
        "{described}"
    );

    let all = role(server.namespace(0), &["create", "get", "delete"]);
    cluster.send(&["replace", "-f", "-"], &all);
    submit(&env, "confined");
    env.wait_for_status("confined", "Succeeded");
    let given = server.namespace(0);
    let begun = format!("begun in {given}");
    let logs = env.logs("confined");
    assert!(logs.iter().any(|line| line.ends_with(&begun)), "{logs:?}");
    for shown in ["whoami", "get jobs -a"] {
        let words: Vec<&str> = shown.split(' ').chain(["-o", "json"]).collect();
        let shown = env.paddlectl(&words).ok().stdout;
        assert!(shown.contains(given), "{shown}");
    }
    server.wait_until_empty(0);
}

/// What a server with given namespaces needs, but for the verbs on secrets.
fn role(namespace: &str, secrets: &[&str]) -> serde_json::Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "server", "namespace": namespace},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": secrets},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        ],
    })
}

const PASSWORD: &str = "an account of the database";

fn quota_of(cluster: &Cluster, namespace: &str) -> String {
    let cpu = "jsonpath={.spec.hard.requests\\.cpu}";
    cluster.kubectl(&["get", "resourcequota", "paddlecloud", "-n", namespace, "-o", cpu])
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_namespace_follows_its_account_and_the_next_account_gets_another() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut server = ClusterServer::start_with(&mut env, &cluster, |_| Difference {
        administrator: true,
        ..Difference::default()
    });
    let carol = server.namespace(0).replacen("ada", "carol", 1);
    env.set("PADDLECLOUD_PASSWORD", PASSWORD);
    server.delete_at_end(&carol);
    let administer = |words: &[&str]| {
        server.configure(&env, 0);
        env.paddlectl(&[&["admin", "user"], words].concat()).ok();
        server.configure_as(&env, &carol, PASSWORD);
    };
    administer(&["add", &carol, "--quota", "cpu=2"]);
    submit(&env, "first");
    env.wait_for_status("first", "Succeeded");
    assert_eq!(quota_of(&cluster, &carol), "2");

    administer(&["set", &carol, "--quota", "cpu=1500m"]);
    wait_until("the quota must follow without a job", || {
        (quota_of(&cluster, &carol) == "1500m").then_some(())
    });

    // A pod that is still about to leave writes to the home.
    cluster.wait_until_empty(&carol);
    administer(&["delete", &carol, "--purge"]);
    administer(&["add", &carol, "--quota", "cpu=3"]);
    submit(&env, "second");
    env.wait_for_status("second", "Succeeded");
    let of_server = "jsonpath={.metadata.labels.cloud\\.paddlepaddle\\.org/server}";
    let id = cluster.kubectl(&["get", "namespace", &carol, "-o", of_server]);
    let all = format!("cloud.paddlepaddle.org/server={id}");
    let names = cluster.kubectl(&["get", "namespaces", "-l", &all, "-o", "name"]);
    let new = names
        .lines()
        .filter_map(|name| name.strip_prefix("namespace/"))
        .find(|name| *name != carol)
        .unwrap_or_else(|| panic!("only {names}"))
        .to_owned();
    server.delete_at_end(&new);
    assert!(new.starts_with(&carol), "{new}");
    assert_eq!(quota_of(&cluster, &new), "3");
    assert_eq!(quota_of(&cluster, &carol), "1500m", "the old one is left alone");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_foreign_namespace_is_refused_until_it_is_labelled() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 1);
    // It is refused first, and the hint works as it stands.
    server.create_namespace(&env, 1);
    submit(&env, "welcome");
    env.wait_for_status("welcome", "Succeeded");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn two_servers_have_namespaces_of_their_own_for_users_of_one_name() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut server = ClusterServer::start(&mut env, &cluster, "");
    let usual = server.namespace(0).to_owned();
    let foreign = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": usual, "labels": {"cloud.paddlepaddle.org/server": "another"}}});
    cluster.apply(&foreign);
    server.configure(&env, 0);
    let package = env
        .package("beside")
        .file("train.sh", "echo begun in $NAMESPACE\nsleep 600\n");
    let small = ["-entry", "sh train.sh", "-cpu", "50m", "-memory", "32Mi"];
    env.submit("beside", &package, &small);
    let begun = wait_until("the trainer must begin", || {
        let logs = env.logs("beside");
        let begun = logs.iter().find_map(|line| line.split_once("begun in "));
        begun.map(|(_, namespace)| namespace.to_owned())
    });
    server.delete_at_end(&begun);
    let id = begun.strip_prefix(&format!("{usual}--"));
    let of_server = "jsonpath={.metadata.labels.cloud\\.paddlepaddle\\.org/server}";
    let label = cluster.kubectl(&["get", "namespace", &begun, "-o", of_server]);
    assert_eq!(id, Some(label.as_str()), "{begun}");
    let shows = |words: &[&str]| {
        let shown = env.paddlectl(words).ok().stdout;
        assert!(shown.contains(&begun), "{words:?}: {shown}");
    };
    shows(&["whoami"]);
    shows(&["describe", "--objects", "beside"]);
    let kinds = "pods,secrets,resourcequotas,networkpolicies.networking.k8s.io";
    assert!(cluster.objects(kinds, &usual).is_empty(), "nothing is made there");

    // The next server finds it, even if the usual name has become free.
    server.crash();
    cluster.kubectl(&["delete", "namespace", &usual]);
    server.revive(&env);
    server.configure(&env, 0);
    shows(&["describe", "--objects", "beside"]);
    env.paddlectl(&["kill", "beside"]).ok();
    env.wait_for_status("beside", "Killed");
    cluster.wait_until_empty(&begun);
    server.crash();
    server.revive(&env);
    server.configure(&env, 0);
    submit(&env, "later");
    env.wait_for_status("later", "Succeeded");
    shows(&["whoami"]);
}
