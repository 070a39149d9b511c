//! The rights in the manifests are those that the server uses: no call without a right, no right without a call.

use std::collections::BTreeSet;
use std::fs;

use e2e::api_proxy::{ApiProxy, Fault};
use e2e::cluster::{Cluster, ClusterServer, Difference};
use e2e::{TestEnvironment, wait_until};

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
fn start() -> Option<(TestEnvironment, ApiProxy, ClusterServer)> {
    let cluster = Cluster::here()?;
    let mut env = TestEnvironment::new();
    let proxy = ApiProxy::start(&cluster);
    let server = ClusterServer::start_with(&mut env, &cluster, |server| Difference {
        kubeconfig: Some(proxy.kubeconfig(&server.path("proxy.conf"))),
        kubernetes: "  seat_limit: 15s\n  lost_limit: 15s\n  trouble_limit: 8s\n".to_owned(),
        ..Difference::default()
    });
    server.configure(&env, 0);
    Some((env, proxy, server))
}

fn begins(env: &TestEnvironment, job: &str) {
    wait_until("the trainer must begin", || {
        let logs = env.logs(job);
        logs.iter().any(|line| line.ends_with("begun")).then_some(())
    });
}

#[test]
fn every_right_is_used_and_every_call_has_a_right() {
    let Some((env, proxy, mut server)) = start() else {
        return;
    };
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
    let used: BTreeSet<String> = calls.iter().filter_map(|call| needed(call)).collect();
    let granted = granted();
    let lacking: Vec<&String> = used.difference(&granted).collect();
    assert!(lacking.is_empty(), "calls without a right: {lacking:#?}");
    let idle: Vec<&String> = granted.difference(&used).collect();
    assert!(idle.is_empty(), "rights that no call needs: {idle:#?}");
}

#[test]
fn a_lost_right_is_named_until_it_is_granted_again() {
    let Some((env, proxy, server)) = start() else {
        return;
    };
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
