//! The rights in the manifests are those that the server uses: no call without a right, no right without a call. Admission
//! lets the server's account create nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use e2e::api_proxy::{ApiProxy, Fault};
use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};
use serde_json::{Value, json};

use super::nodes::{kill, processes_with};

const MANIFESTS: &str = include_str!("../../../../deploy/kubernetes/paddlecloud.yaml");

/// What the manifests grant, each as `verb resource`.
fn granted() -> BTreeSet<String> {
    let roles = MANIFESTS
        .split("\n---\n")
        .filter(|object| object.contains("kind: ClusterRole\n"));
    let mut all = BTreeSet::new();
    for role in roles {
        let (mut groups, mut resources) = (Vec::new(), Vec::new());
        for line in role.lines().map(|line| line.trim_start_matches("- ").trim()) {
            let Some((key, list)) = line.split_once(": [") else {
                continue;
            };
            let list = list.trim_end_matches(']').split(", ");
            let list: Vec<String> = list.map(|word| word.trim_matches('"').to_owned()).collect();
            match key {
                "apiGroups" => groups = list,
                "resources" => resources = list,
                "verbs" => {
                    for (group, resource) in groups.iter().zip(&resources) {
                        let kind = named(group, resource);
                        all.extend(list.iter().map(|verb| format!("{verb} {kind}")));
                    }
                }
                "resourceNames" => {}
                other => panic!("a role has {other:?}"),
            }
        }
    }
    all
}

fn named(group: &str, resource: &str) -> String {
    match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// What a call needs, as `verb resource`. `None`: everybody may call it.
fn needed(call: &str) -> Option<String> {
    let (method, rest) = call.split_once(' ')?;
    let address = rest.split(' ').next()?;
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, parts) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        // Every account may ask for its own name.
        ["apis", "authentication.k8s.io", ..] => return None,
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let parts = match parts {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        parts => parts,
    };
    let (resource, is_named) = match parts {
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, below] => (format!("{resource}/{below}"), true),
        _ => panic!("cannot understand {call:?}"),
    };
    let verb = match (method, is_named) {
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("PUT", _) => "update",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        ("GET", true) => "get",
        ("GET", false) if query.contains("watch=true") => "watch",
        ("GET", false) => "list",
        _ => panic!("cannot understand {call:?}"),
    };
    Some(format!("{verb} {}", named(group, &resource)))
}

/// A server whose calls are recorded, and that soon asks why a pod does not start.
fn start() -> (TestEnvironment, ApiProxy, ClusterServer) {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let proxy = ApiProxy::start(&cluster);
    let server = ClusterServer::start_with(&mut env, &cluster, |server| Difference {
        kubeconfig: Some(proxy.kubeconfig(&server.path("proxy.conf"))),
        kubernetes: "  seat_limit: 15s\n  lost_limit: 15s\n  trouble_limit: 8s\n  namespace_role: users\n"
            .to_owned(),
        ..Difference::default()
    });
    server.configure(&env, 0);
    (env, proxy, server)
}

fn begins(env: &TestEnvironment, job: &str) {
    wait_until("the trainer must begin", || {
        let logs = env.logs(job);
        logs.iter().any(|line| line.ends_with("begun")).then_some(())
    });
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn every_right_is_used_and_every_call_has_a_right() {
    let (env, proxy, mut server) = start();
    let package = env.package("rights").file("train.sh", "echo begun\nsleep 600\n");
    let small = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "50m",
        "-memory",
        "32Mi",
        "-pservers",
        "0",
    ];

    // The user's namespace, a run of several workers, and its end.
    let two = [&small[..], &["-parallelism", "2"]].concat();
    env.submit("usual", &package, &two);
    begins(&env, "usual");
    env.paddlectl(&["kill", "usual"]).ok();
    env.wait_for_status("usual", "Killed");

    // A server that finds the namespace of an earlier one, and a worker of which nothing is left but what the kubelet has.
    server.crash();
    server.revive(&env);
    server.configure(&env, 0);
    env.submit("torn", &package, &small);
    begins(&env, "torn");
    let id = env.describe("torn")["job"]["id"].as_str().unwrap().to_owned();
    fs::remove_dir_all(server.home(0).join(".paddlecloud/runs").join(&id).join("spool")).unwrap();
    kill(&processes_with("environ", &["PADDLECLOUD_LINK_ATTEMPT", &id]));
    env.wait_for_status("torn", "Failed");

    // Objects whose creation nobody confirmed.
    proxy.strike(Fault::Lost, 3);
    env.submit("unheard", &package, &two);
    begins(&env, "unheard");
    env.paddlectl(&["kill", "unheard"]).ok();
    env.wait_for_status("unheard", "Killed");

    // An image that takes for ever: the server asks for the events, and the pod has to be deleted.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/slow:1", silent.local_addr().unwrap());
    let events = || {
        proxy
            .calls()
            .iter()
            .filter(|call| call.contains("/events?"))
            .count()
    };
    let before = events();
    env.submit("slow", &package, &[&small[..], &["-image", &image]].concat());
    wait_until("the server must ask for events", || {
        (events() > before).then_some(())
    });
    env.paddlectl(&["kill", "slow"]).ok();
    env.wait_for_status("slow", "Killed");
    server.wait_until_empty(0);

    let calls = [proxy.calls(), proxy.watches()].concat();
    let mut used: BTreeSet<String> = calls.iter().filter_map(|call| needed(call)).collect();
    if used.contains("create rolebindings.rbac.authorization.k8s.io") {
        used.insert("bind clusterroles.rbac.authorization.k8s.io".to_owned());
    }
    let granted = granted();
    let lacking: Vec<&String> = used.difference(&granted).collect();
    assert!(lacking.is_empty(), "calls without a right: {lacking:#?}");
    let idle: Vec<&String> = granted.difference(&used).collect();
    assert!(idle.is_empty(), "rights that no call needs: {idle:#?}");
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_lost_right_is_named_until_it_is_granted_again() {
    let (env, proxy, server) = start();
    // The image never arrives, so only a deletion ends the pod.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/slow:1", silent.local_addr().unwrap());
    let package = env.package("slow").file("train.sh", "true\n");
    env.submit(
        "slow",
        &package,
        &[
            "-entry",
            "sh train.sh",
            "-pservers",
            "0",
            "-cpu",
            "50m",
            "-image",
            &image,
        ],
    );
    wait_until("the server must ask why the pod waits", || {
        let calls = proxy.calls();
        calls.iter().any(|call| call.contains("/events?")).then_some(())
    });
    proxy.strike(Fault::Forbidden, usize::MAX);
    env.paddlectl(&["kill", "slow"]).ok();
    wait_until("`why` must name the right", || {
        let why = env.paddlectl(&["why", "slow"]).stdout;
        let expected = "cannot delete resource \"pods\" in API group \"\"; an administrator must grant";
        why.contains(expected).then_some(())
    });
    proxy.strike(Fault::Forbidden, 0);
    env.wait_for_status("slow", "Killed");
    server.wait_until_empty(0);
}

/// The account of the manifests with its roles and policies; deleted when dropped.
struct Account {
    cluster: Cluster,
    /// Of the account.
    namespace: String,
    role: String,
    kubeconfig: PathBuf,
}

impl Account {
    /// Applies that part of the manifests, for a server outside the cluster.
    fn install(cluster: &Cluster, server: &ClusterServer) -> Account {
        let namespace = format!("rights-{}", server.namespace(0));
        let role = format!("{namespace}-paddlecloud");
        let storage = server.path("storage").display().to_string();
        let mut text = MANIFESTS.to_owned();
        for (from, to) in [
            ("paddlecloud-paddlecloud", role.clone()),
            ("namespace: paddlecloud", format!("namespace: {namespace}")),
            (
                "serviceaccount:paddlecloud:",
                format!("serviceaccount:{namespace}:"),
            ),
            (
                "s.?namespace.orValue(\"\") == \"paddlecloud\"",
                format!("s.?namespace.orValue(\"\") == \"{namespace}\""),
            ),
            ("/srv/paddlecloud", storage),
        ] {
            assert!(text.contains(from), "no {from:?} in the manifests");
            text = text.replace(from, &to);
        }
        let file = server.path("rights.yaml");
        fs::write(&file, text).expect("a file in the server's folder");
        cluster.kubectl(&["create", "namespace", &namespace]);
        let account = Account {
            cluster: cluster.clone(),
            kubeconfig: server.path("token.conf"),
            namespace,
            role,
        };
        let file = file.to_str().expect("a plain name");
        cluster.kubectl(&["apply", "-f", file, "-l", "app.kubernetes.io/component=rights"]);
        let token = cluster.kubectl(&["create", "token", "paddlecloud", "-n", &account.namespace]);
        cluster.kubeconfig_with_token(&account.kubeconfig, token.trim());
        account
    }

    /// Waits until the API server refuses this object with these words: it learns of a new policy after a moment.
    #[track_caller]
    fn may_not_create(&self, object: &Value, words: &str) {
        let mut before = None;
        wait_until(&format!("a refusal with {words:?}: {object}"), || {
            let said = Cluster::refusal(&self.kubeconfig, object);
            if said != before {
                eprintln!("the API server says {said:?}");
            }
            before = said;
            before.as_ref()?.contains(words).then_some(())
        });
    }

    /// Admission never sees these: only roles keep them from the account.
    #[track_caller]
    fn may_not_read_secrets(&self, namespace: &str) {
        // `kubectl get --watch-only` lists too.
        let watch = format!("/api/v1/namespaces/{namespace}/secrets?watch=true&timeoutSeconds=1");
        for (words, verb) in [
            (&["get", "secrets", "-n", namespace][..], "list"),
            (&["get", "secret", "stolen", "-n", namespace], "get"),
            (&["get", "secrets", "--all-namespaces"], "list"),
            (&["get", "--raw", &watch], "watch"),
        ] {
            let said = Cluster::refused_words(&self.kubeconfig, words).unwrap_or_default();
            let expected = format!("cannot {verb} resource \"secrets\"");
            assert!(said.contains(&expected), "{words:?}: {said:?}");
        }
    }

    fn binding(&self, namespace: &str, role: &str, subject: Value) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "stolen", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        })
    }

    fn own(&self) -> Value {
        json!({"kind": "ServiceAccount", "name": "paddlecloud", "namespace": self.namespace})
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.cluster.delete_rights(&self.role);
        let words = [
            "delete",
            "namespace",
            &self.namespace,
            "--ignore-not-found",
            "--wait=false",
        ];
        self.cluster.kubectl(&words);
    }
}

fn secret(namespace: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": "stolen", "namespace": namespace, "annotations": {"kubernetes.io/service-account.name": "default"}},
    })
}

/// A pod of the server, as it was created, under another name.
fn copy_of(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    spec.as_object_mut().expect("it is an object").remove("nodeName");
    let metadata = json!({"name": "stolen", "namespace": pod["metadata"]["namespace"]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn an_upgraded_server_gets_its_rights_and_its_account_no_others() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut server = ClusterServer::start(&mut env, &cluster, "");
    let package = env.package("rights").file("train.sh", "echo begun\nsleep 600\n");
    let small = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "50m",
        "-memory",
        "32Mi",
        "-pservers",
        "0",
    ];
    server.configure(&env, 0);
    env.submit("early", &package, &small);
    begins(&env, "early");

    // From now on the server has the account of the manifests.
    server.crash();
    let account = Account::install(&cluster, &server);
    let token = fs::read(&account.kubeconfig).unwrap();
    fs::write(server.path("kubeconfig"), token).unwrap();
    let config = fs::read_to_string(server.path("config.yaml")).unwrap();
    let role = format!("kubernetes:\n  namespace_role: {}-users\n", account.role);
    let config = config.replacen("kubernetes:\n", &role, 1);
    fs::write(server.path("config.yaml"), config).unwrap();
    server.revive(&env);
    server.configure(&env, 0);
    env.paddlectl(&["kill", "early"]).ok();
    env.wait_for_status("early", "Killed");
    server.wait_until_empty(0);
    server.configure(&env, 1);
    env.submit("late", &package, &[&small[..], &["-parallelism", "2"]].concat());
    begins(&env, "late");

    let (own, system) = (server.namespace(1), "kube-system");
    let users = format!("{}-users", account.role);
    let only_there = "binds roles only in namespaces for users";
    account.may_not_create(&account.binding(system, &users, account.own()), only_there);
    let other = json!({"kind": "ServiceAccount", "name": "default", "namespace": own});
    let to_itself = "and only to itself";
    account.may_not_create(&account.binding(own, &users, other), to_itself);
    account.may_not_create(&account.binding(own, "cluster-admin", account.own()), "forbidden");
    account.may_not_create(&secret(system, "Opaque"), "cannot create resource \"secrets\"");
    account.may_not_read_secrets(system);
    let token = "kubernetes.io/service-account-token";
    account.may_not_create(&secret(own, token), "creates only Secrets of runs");
    let labels = json!({"cloud.paddlepaddle.org/server": "another"});
    let metadata = json!({"name": "stolen", "labels": labels});
    let foreign = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    account.may_not_create(&foreign, "creates only namespaces for users");

    let pods = cluster.objects("pods", own);
    let good = copy_of(&pods[0]);
    assert_eq!(
        Cluster::refusal(&account.kubeconfig, &good),
        None,
        "as the server makes it"
    );
    let changed = |pointer: &str, value: Value| {
        let mut pod = good.clone();
        match pod.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => {
                let (parent, name) = pointer.rsplit_once('/').expect("a path");
                pod.pointer_mut(parent).expect("it is there")[name] = value;
            }
        }
        pod
    };
    account.may_not_create(
        &changed("/metadata/namespace", json!(system)),
        "cannot create resource \"pods\"",
    );
    let privileges = "gives containers no privileges";
    let container = "/spec/containers/0/securityContext";
    let capabilities = json!({"drop": ["ALL"], "add": ["SYS_ADMIN"]});
    // The API server itself refuses a privileged container that must not escalate.
    let privileged = changed(container, json!({"privileged": true}));
    account.may_not_create(&privileged, privileges);
    for (field, value) in [
        ("allowPrivilegeEscalation", json!(true)),
        ("capabilities", capabilities),
        ("runAsUser", json!(0)),
    ] {
        account.may_not_create(&changed(&format!("{container}/{field}"), value), privileges);
    }
    let first = "/spec/initContainers/0/securityContext";
    account.may_not_create(&changed(&format!("{first}/runAsUser"), json!(0)), privileges);
    let node = "see nothing of their node";
    for (field, value) in [
        ("hostNetwork", json!(true)),
        ("hostPID", json!(true)),
        ("nodeName", json!("node1")),
        ("priorityClassName", json!("system-node-critical")),
        ("securityContext", json!({})),
        ("securityContext/runAsUser", json!(0)),
    ] {
        let mut pod = changed(&format!("/spec/{field}"), value);
        if field == "priorityClassName" {
            pod["spec"].as_object_mut().unwrap().remove("priority");
        }
        account.may_not_create(&pod, node);
    }
    let volumes = good["spec"]["volumes"].as_array().unwrap();
    let tree = volumes
        .iter()
        .position(|volume| volume["hostPath"].is_object())
        .unwrap();
    let mounts = "mounts only the tree";
    for path in ["/", "/etc", "/var/lib/kubelet"] {
        let pointer = format!("/spec/volumes/{tree}/hostPath/path");
        account.may_not_create(&changed(&pointer, json!(path)), mounts);
    }
    let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
    let volume = json!({"name": "pfs", "projected": token});
    account.may_not_create(&changed(&format!("/spec/volumes/{tree}"), volume), mounts);
    let automount = changed("/spec/automountServiceAccountToken", json!(true));
    account.may_not_create(&automount, "without an account of their own");

    let warnings = "jsonpath={.items[*].status.typeChecking.expressionWarnings}";
    let policies = ["get", "validatingadmissionpolicies", "-o", warnings];
    assert_eq!(
        cluster.kubectl(&policies),
        "",
        "the API server checks the expressions"
    );
    env.paddlectl(&["kill", "late"]).ok();
    env.wait_for_status("late", "Killed");
    server.wait_until_empty(1);
}
