//! How often the API server is called, and what happens to jobs when it, or the server, is down at the wrong moment.

use e2e::api_proxy::{ApiProxy, Fault};
use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, wait_until};
use serde_json::json;

use super::start_behind_proxy;

fn start() -> (TestEnvironment, ApiProxy, ClusterServer) {
    start_behind_proxy(&Cluster::here())
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_costs_at_most_two_calls_a_pod_and_six() {
    let (env, proxy, server) = start();
    let package = env.package("frugal").file("train.sh", "echo begun\n");
    let flags = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "100m",
        "-parallelism",
        "2",
        "-pservers",
        "1",
        "-pscpu",
        "100m",
        "-psmemory",
        "64Mi",
    ];
    for name in ["first", "second"] {
        proxy.forget();
        env.submit(name, &package, &flags);
        env.wait_for_status(name, "Succeeded");
        server.wait_until_empty(0);
        // Events are asked for only if a pod is slow to start, which depends on the machine.
        let mut calls = proxy.calls();
        calls.retain(|call| !call.contains("/events?"));
        assert!(calls.len() <= 2 * 3 + 6, "{name}: {calls:#?}");
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_server_that_is_killed_after_any_call_of_a_submit_finishes_the_job() {
    let (env, proxy, mut server) = start();
    let package = env
        .package("killed")
        .file("train.sh", "for i in $(seq 1 100); do echo line $i; done\n");
    // Of a server that has just started: four or five for the user's namespace, two for the run, one for each pod, one at
    // the end.
    for n in 1..=9 {
        server.crash();
        server.revive(&env);
        server.configure(&env, 0);
        proxy.after_calls(n, server.killer());
        let name = format!("killed-{n}");
        let usual = [
            "submit",
            "-jobname",
            &name,
            "-cpu",
            "50m",
            "-memory",
            "32Mi",
            "-pservers",
            "0",
        ];
        let flags = ["-entry", "sh train.sh", "-parallelism", "2", package.arg()];
        // Its answer may be lost with the server.
        drop(env.paddlectl(&[&usual[..], &flags].concat()));
        wait_until(&format!("call {n} must hit the server"), || {
            proxy.has_struck().then_some(())
        });
        server.crash();
        server.revive(&env);
        server.configure(&env, 0);
        env.wait_for_status(&name, "Succeeded");
        let logs = env.logs(&name);
        let lines = logs.iter().filter(|line| line.contains("line ")).count();
        assert_eq!(lines, 200, "after call {n}");
        server.wait_until_empty(0);
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_survives_an_api_server_that_is_away_or_busy() {
    let (env, proxy, server) = start();
    let package = env.package("patient").file(
        "train.sh",
        "echo begun\nmkdir -p output\nuntil [ -e output/gate ]; do sleep 0.1; done\n",
    );
    proxy.strike(Fault::TooMany, 3);
    env.submit("patient", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    wait_until("the trainer must begin", || {
        let logs = env.logs("patient");
        logs.iter().any(|line| line.ends_with("begun")).then_some(())
    });
    proxy.set_down(true);
    std::fs::write(server.output(&env, 0, "patient").join("gate"), "").unwrap();
    env.wait_for_status("patient", "Succeeded");
    proxy.set_down(false);
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_that_waits_for_the_api_server_says_so_at_once() {
    let (env, proxy, server) = start();
    let package = env.package("silent").file("train.sh", "echo begun\n");
    proxy.set_down(true);
    env.submit("silent", &package, &["-entry", "sh train.sh", "-cpu", "100m"]);
    // Long before the server gives up (`api_limit`).
    wait_until("the reason must be shown", || {
        let why = env.paddlectl(&["why", "silent"]).ok().stdout;
        why.contains("waits: the cluster's API server cannot be reached")
            .then_some(())
    });
    proxy.set_down(false);
    env.wait_for_status("silent", "Succeeded");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_job_survives_the_errors_of_an_overloaded_api_server() {
    let (env, proxy, server) = start();
    let package = env.package("loaded").file(
        "train.sh",
        "echo begun\nmkdir -p output\nuntil [ -e output/gate ]; do sleep 0.1; done\necho ended\n",
    );
    let flags = [
        "-entry",
        "sh train.sh",
        "-cpu",
        "50m",
        "-memory",
        "32Mi",
        "-parallelism",
        "2",
    ];
    let flags = [&flags[..], &["-pservers", "0"]].concat();
    let cluster = Cluster::here();
    let foreign = format!("foreign-{}", server.namespace(0));
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": foreign, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": cluster.shell_image()}],
        },
    }));
    // Of the first job, the calls that make the user's namespace are hit too.
    let faults = [
        ("busy", Fault::TooMany),
        ("outpaced", Fault::Conflict),
        ("unheard", Fault::Lost),
        ("expired", Fault::Expired),
    ];
    for (job, fault) in faults {
        if fault != Fault::Expired {
            // The owner, the network policy, and a pod, at least.
            proxy.strike(fault, 3);
        }
        env.submit(job, &package, &flags);
        wait_until("the trainers must begin", || {
            let logs = env.logs(job);
            let started = logs.iter().filter(|line| line.ends_with("begun")).count();
            (started == 2).then_some(())
        });
        assert_eq!(proxy.faults_left(), 0, "{job}");
        if fault == Fault::Expired {
            // Both watches, of pods and of nodes, must be begun again from a list, which lacks a pod that was there before.
            proxy.set_down(true);
            cluster.kubectl(&["delete", "pod", &foreign, "-n", "default"]);
            proxy.strike(fault, 2);
            proxy.set_down(false);
        }
        std::fs::write(server.output(&env, 0, job).join("gate"), "").unwrap();
        env.wait_for_status(job, "Succeeded");
        server.wait_until_empty(0);
        wait_until("every fault must have hit a call", || {
            (proxy.faults_left() == 0).then_some(())
        });
        let logs = env.logs(job);
        let ended = logs.iter().filter(|line| line.ends_with("ended")).count();
        assert_eq!(ended, 2, "{job}: {logs:#?}");
    }
    // A server that has lost its watches still sees the pods of the next job come and go.
    env.submit(
        "after",
        &package,
        &["-entry", "true", "-cpu", "50m", "-pservers", "0"],
    );
    env.wait_for_status("after", "Succeeded");
    server.wait_until_empty(0);
}

/// Submits a job of this many small trainers.
fn submit_many(env: &TestEnvironment, job: &str, cpu: &str, trainers: usize) {
    let package = env.package(job).file("train.sh", "echo begun\nsleep 1000\n");
    let flags = "-entry|sh train.sh|-memory|16Mi|-pservers|0|-cpu".split('|');
    let trainers = trainers.to_string();
    let flags = flags.chain([cpu, "-parallelism", &trainers]);
    env.submit(job, &package, &flags.collect::<Vec<_>>());
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_webhook_that_hangs_delays_no_kill() {
    let (env, proxy, server) = start();
    submit_many(&env, "other", "50m", 1);
    env.wait_for_status("other", "Running");
    // More pods than the server may have calls in flight. All are refused once; the webhook hangs when they are retried.
    let pods = 70;
    proxy.strike(Fault::Webhook("pods"), usize::MAX);
    submit_many(&env, "hung", "1m", pods);
    wait_until("every pod must be refused", || {
        (proxy.faults_left() <= usize::MAX - pods).then_some(())
    });
    let hangs = proxy.hang();
    wait_until("retries must hang", || (proxy.hung().0 >= 48).then_some(()));
    env.paddlectl(&["kill", "other"]).ok();
    env.wait_for_status("other", "Killed");
    wait_until("the other job's objects must be deleted", || {
        let calls = proxy.calls();
        calls.iter().any(|call| call.starts_with("DELETE ")).then_some(())
    });
    let (now, most) = proxy.hung();
    assert!(now > 0 && most <= 48, "{now} calls hang, at most {most}");
    env.paddlectl(&["kill", "hung"]).ok();
    wait_until("workers that nobody creates must end at once", || {
        let described = env.describe("hung");
        let workers = described["workers"].as_array().expect("a job has workers");
        let killed = workers.iter().filter(|worker| worker["status"] == "Killed");
        (killed.count() >= pods - 48).then_some(())
    });
    drop(hangs);
    env.wait_for_status("hung", "Killed");
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_webhook_that_hangs_on_the_owner_of_a_run_delays_no_kill() {
    let (env, proxy, server) = start();
    proxy.strike(Fault::Webhook("secrets"), usize::MAX);
    let hangs = proxy.hang();
    submit_many(&env, "hung", "1m", 70);
    wait_until("the creation of the owner must hang", || {
        (proxy.hung().0 > 0).then_some(())
    });
    env.paddlectl(&["kill", "hung"]).ok();
    env.wait_for_status("hung", "Killed");
    drop(hangs);
    server.wait_until_empty(0);
}
