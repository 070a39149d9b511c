//! Every error about a cluster, or in it, is reported in one sentence, and nothing is left half created.

use std::fs;

use e2e::api_proxy::Fault;
use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};
use serde_json::{Value, json};

use super::start_behind_proxy;

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
#[ignore = "needs a Kubernetes cluster"]
fn an_unusable_cluster_is_reported() {
    let cluster = Cluster::here();
    let nowhere = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    let said = with_kubeconfig(&cluster, &nowhere.to_string());
    assert!(said.contains("the cluster does not answer"), "{said}");
    let said = with_kubeconfig(&cluster, "no: kubeconfig");
    assert!(said.contains("cannot find the cluster's configuration"), "{said}");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn insufficient_credentials_are_reported() {
    let cluster = Cluster::here();
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

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn only_allowed_images_and_the_default_one_are_accepted() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let settings = "allowed_images: ['registry.example.org/team/*', 'python:3*']\n";
    let server = ClusterServer::start(&mut env, &cluster, settings);
    server.configure(&env, 0);
    let package = env.package("images").file("train.sh", "echo begun\n");
    let submit = |more: &[&str]| {
        let words = [
            "submit",
            "--dry-run",
            "-jobname",
            "images",
            "-entry",
            "sh train.sh",
        ];
        env.paddlectl(&[&words[..], more, &[package.arg()]].concat())
    };
    for image in [
        "python:3.13",
        "docker.io/library/python:3",
        "registry.example.org/team/a:1",
    ] {
        submit(&["-image", image]).ok();
    }
    for image in [
        "python:2",
        "registry.example.org/team/sub/a",
        "python.example.org/a",
    ] {
        submit(&["-image", image])
            .refused(1)
            .says(&format!("`{image}` is not among the images of this server"))
            .says("it allows `registry.example.org/team/*`, `python:3*`");
    }
    submit(&[]).ok();
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_server_that_pods_cannot_reach_is_reported() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    // Nobody listens at this port of the machine.
    let nowhere = |server: &ClusterServer| {
        let link = server.link();
        let (machine, _) = link.rsplit_once(':').expect("an address has a port");
        format!("{machine}:9")
    };
    let server = ClusterServer::start_with(&mut env, &cluster, |server| Difference {
        link_address: Some(nowhere(server)),
        ..Difference::default()
    });
    server.configure(&env, 0);
    let package = env.package("cut-off").file("train.sh", "echo begun\n");
    env.submit("cut-off", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    let sentence = format!(
        "has not reached this server at {} (`kubernetes.link.address`)",
        nowhere(&server)
    );
    wait_until("the reason must be shown", || {
        let described = env.paddlectl(&["describe", "cut-off"]).ok().stdout;
        described.contains(&sentence).then_some(())
    });
    env.paddlectl(&["kill", "cut-off"]).ok();
    env.wait_for_status("cut-off", "Killed");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_foreign_pod_with_a_workers_name_is_left_alone() {
    let cluster = Cluster::here();
    let (env, proxy, server) = start_behind_proxy(&cluster);
    let package = env.package("double").file("train.sh", "echo begun\n");
    // Names derive from the run's id, so somebody must be quick: here between the server's first try and the next.
    let hangs = proxy.hang();
    proxy.strike(Fault::Webhook("pods"), 1);
    env.submit("double", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the pod must be refused", || (proxy.hung().0 == 1).then_some(()));
    let workers = env.describe("double")["workers"].clone();
    let (namespace, name) = (
        server.namespace(0),
        workers[0]["name"].as_str().expect("a worker has a name"),
    );
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": cluster.shell_image()}],
        },
    }));
    drop(hangs);
    env.wait_for_status("double", "Failed");
    let described = env.paddlectl(&["describe", "double"]).ok().stdout;
    let sentence =
        format!("Pod `{name}` in namespace `{namespace}` already exists and does not belong to this run");
    assert!(described.contains(&sentence), "{described}");
    server.wait_until_empty(0);
    let left = cluster.objects("pods", namespace);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["name"], name);
    assert_eq!(left[0]["metadata"]["deletionTimestamp"], Value::Null);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_foreign_secret_with_the_name_of_a_runs_owner_is_left_alone() {
    let cluster = Cluster::here();
    let (env, proxy, server) = start_behind_proxy(&cluster);
    let package = env.package("owned").file("train.sh", "echo begun\n");
    let hangs = proxy.hang();
    proxy.strike(Fault::Webhook("secrets"), 1);
    env.submit("owned", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the owner must be refused", || {
        (proxy.hung().0 == 1).then_some(())
    });
    let id = env.describe("owned")["job"]["id"]
        .as_str()
        .expect("a job has an id")
        .to_owned();
    let name = format!("owned-{}", id.trim_start_matches("j_"));
    let metadata = json!({"name": name, "namespace": server.namespace(0)});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}));
    drop(hangs);
    env.wait_for_status("owned", "Failed");
    let described = env.paddlectl(&["describe", "owned"]).ok().stdout;
    let sentence = format!("Secret `{name}` in namespace");
    assert!(described.contains(&sentence), "{described}");
    // An attempt's record is removed after the objects of its run.
    let record = server
        .path("data/attempts")
        .join(&id)
        .join("trainer-0.1/pod.json");
    wait_until("the run must be cleaned", || (!record.exists()).then_some(()));
    let left = cluster.objects("secrets", server.namespace(0));
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["metadata"]["name"], name);
}

/// An account that may do everything; taken away with its rights when dropped.
struct PowerfulAccount<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> PowerfulAccount<'a> {
    fn make(cluster: &'a Cluster, name: &str) -> PowerfulAccount<'a> {
        let metadata = json!({"name": name, "namespace": "default"});
        cluster.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        cluster.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }));
        PowerfulAccount {
            cluster,
            name: name.to_owned(),
        }
    }

    fn kubeconfig(&self, server: &ClusterServer) -> std::path::PathBuf {
        let token = self
            .cluster
            .kubectl(&["create", "token", &self.name, "-n", "default"]);
        self.cluster
            .kubeconfig_with_token(&server.path("token.conf"), token.trim())
    }

    /// Makes every token of the account invalid.
    fn expire(&self) {
        self.cluster
            .kubectl(&["delete", "serviceaccount", &self.name, "-n", "default"]);
    }
}

impl Drop for PowerfulAccount<'_> {
    fn drop(&mut self) {
        let gone = "--ignore-not-found";
        self.cluster
            .kubectl(&["delete", "clusterrolebinding", &self.name, gone]);
        self.cluster
            .kubectl(&["delete", "serviceaccount", &self.name, "-n", "default", gone]);
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_token_that_expires_ends_no_job() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut account = None;
    let mut server = ClusterServer::start_with(&mut env, &cluster, |server| Difference {
        kubeconfig: Some(
            account
                .insert(PowerfulAccount::make(&cluster, server.namespace(0)))
                .kubeconfig(server),
        ),
        kubernetes: "  seat_limit: 15s\n  lost_limit: 15s\n  trouble_limit: 20s\n  api_limit: 2s\n".into(),
        ..Difference::default()
    });
    let account = account.expect("it was made");
    server.configure(&env, 0);
    let package = env.package("runs").file(
        "train.sh",
        "echo begun\nmkdir -p output\nuntil [ -e output/gate ]; do sleep 0.1; done\n",
    );
    env.submit("runs", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    env.wait_for_status("runs", "Running");
    account.expire();
    wait_until("its tokens must be refused", || {
        let file = server.path("kubeconfig").display().to_string();
        let get_nodes = ["get", "nodes", "--kubeconfig", &file];
        let get_nodes = std::process::Command::new("kubectl").args(get_nodes).output();
        (!get_nodes.expect("`kubectl` can be run").status.success()).then_some(())
    });
    // Running jobs continue and end; new jobs wait and say why.
    fs::write(server.output(&env, 0, "runs").join("gate"), "").expect("the run has a folder for its output");
    env.wait_for_status("runs", "Succeeded");
    env.submit("waits", &package, &["-entry", "true", "-cpu", "100m"]);
    wait_until("the reason must be shown", || {
        let described = env.paddlectl(&["describe", "waits"]).ok().stdout;
        described
            .contains("this server has no valid credentials for the cluster's API server")
            .then_some(())
    });
    // The administrator replaces the token and restarts the server.
    server.crash();
    let account = PowerfulAccount::make(&cluster, &format!("{}-2", server.namespace(0)));
    let fresh = fs::read(account.kubeconfig(&server)).expect("it was just written");
    fs::write(server.path("kubeconfig"), fresh).expect("the file can be replaced");
    server.revive(&env);
    server.configure(&env, 0);
    env.wait_for_status("waits", "Succeeded");
    server.wait_until_empty(0);
}
