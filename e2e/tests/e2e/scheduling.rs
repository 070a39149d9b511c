//! Which job starts, which waits, and how that is explained.

use std::thread::available_parallelism;

use e2e::{Gate, PASSWORD, Package, Shared, TestEnvironment};

/// A package whose trainers say that they are up and then wait at the gate.
fn waiting(env: &TestEnvironment, gate: &Gate) -> (Package, [String; 4]) {
    let package = env.package("waits").file(
        "train.sh",
        "echo up with cards $CUDA_VISIBLE_DEVICES\ncat $GATE\n",
    );
    let flags = ["-env", &gate.variable("GATE"), "-entry", "sh train.sh"].map(str::to_owned);
    (package, flags)
}

fn submit(env: &TestEnvironment, name: &str, package: &Package, usual: &[String], flags: &[&str]) {
    let usual: Vec<&str> = usual.iter().map(String::as_str).collect();
    env.submit(name, package, &[&usual, flags].concat());
}

fn why(env: &TestEnvironment, job: &str) -> String {
    env.paddlectl(&["why", job]).ok().stdout
}

#[test]
fn a_job_bigger_than_the_machine_runs_alone_and_says_so() {
    let env = TestEnvironment::new();
    let gate = env.gate("go");
    let (package, usual) = waiting(&env, &gate);
    let cores = available_parallelism().expect("a machine has cores").get();
    let requested = (cores + 8).to_string();
    let args = [
        "submit",
        "-jobname",
        "huge",
        "-pservers",
        "0",
        "-memory",
        "64Mi",
        "-cpu",
        &requested,
    ];
    let usual: Vec<&str> = usual.iter().map(String::as_str).collect();
    let alone = format!("{requested} cores requested, {cores} in total: it runs alone, other jobs wait");
    let planned = [&args[..], &["--dry-run"], &usual, &[package.arg()]].concat();
    env.paddlectl(&planned).ok().says(&alone);
    env.paddlectl(&[&args[..], &usual, &[package.arg()]].concat())
        .ok()
        .says(&alone);
    env.start(&["logs", "-f", "huge"]).wait_for_line("up with");

    let small = env.package("small").file("train.sh", "echo small\n");
    env.submit("small", &small, &["-entry", "sh train.sh"]);
    assert_eq!(env.status("small"), "Pending", "{}", why(&env, "small"));
    let reason = why(&env, "small");
    for text in [
        "waits for `huge (",
        "runs alone because it is larger than the machine",
        "no -max-runtime",
        "it would start now after `paddlectl kill huge`",
    ] {
        assert!(reason.contains(text), "{text}: {reason}");
    }
    env.paddlectl(&["kill", "huge"]).ok();
    env.paddlectl(&["wait", "small"]).ok();
    env.wait_for_status("huge", "Killed");
}

#[test]
fn a_follower_without_a_terminal_reads_each_reason_why_the_job_waits() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "inventory: {cpu: 2, memory: 1Gi}\n", "");
    shared.configure(&env, PASSWORD);
    let (one, other) = (env.gate("one"), env.gate("other"));
    let (package, usual) = waiting(&env, &one);
    submit(&env, "one", &package, &usual, &["-cpu", "1"]);
    let (package, usual) = waiting(&env, &other);
    submit(&env, "other", &package, &usual, &["-cpu", "1"]);
    let last = env.package("last").file("train.sh", "echo last\n");
    let mut follower = env.start(&[
        "submit",
        "-f",
        "-jobname",
        "both",
        "-cpu",
        "2",
        "-memory",
        "32Mi",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
        last.arg(),
    ]);
    follower.wait_for_line("waits for 2 cores: 2 requested, 0 of 2 free");
    one.open();
    env.paddlectl(&["wait", "one"]).ok();
    let line = follower.wait_for_line("waits for 1 core: 2 requested, 1 of 2 free");
    assert!(
        line.contains("held by `other ("),
        "names who holds the core: {line}"
    );
    other.open();
    follower.wait_for_line("last");
    env.paddlectl(&["wait", "both"]).ok();
}

#[test]
fn every_trainer_has_cards_of_its_own_and_others_wait_for_them() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "inventory: {cpu: 4, memory: 1Gi, gpus: 3}\n", "");
    shared.configure(&env, PASSWORD);
    let gate = env.gate("go");
    let (package, usual) = waiting(&env, &gate);
    submit(
        &env,
        "cards",
        &package,
        &usual,
        &["-parallelism", "2", "-gpu", "1"],
    );
    let mut follower = env.start(&["logs", "-f", "--raw", "cards"]);
    let mut cards = [
        follower.wait_for_line("up with"),
        follower.wait_for_line("up with"),
    ];
    cards.sort();
    assert_eq!(cards, ["up with cards 0", "up with cards 1"]);

    submit(&env, "more", &package, &usual, &["-gpu", "2"]);
    assert_eq!(env.status("more"), "Pending");
    let said = why(&env, "more");
    assert!(said.contains("would start now with `-gpu 1`"), "{said}");
    let refused = [
        "submit",
        "-gpu",
        "4",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
        package.arg(),
    ];
    env.paddlectl(&refused).refused(1).says("GPU");
    env.paddlectl(&["kill", "more"]).ok();
    gate.open_until("both trainers end", || env.status("cards") == "Succeeded");
}

#[test]
fn a_type_of_gpus_is_one_that_the_machine_has() {
    let env = TestEnvironment::new();
    let inventory = "inventory: {cpu: 4, memory: 1Gi, gpus: 1, gpu_model: NVIDIA A100-SXM4-80GB}\n";
    let label = "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB";
    let types = format!(
        "gpu_types: {{fast: {{labels: {{{}}}}}}}\n",
        label.replace('=', ": ")
    );
    let shared = Shared::start(&env, &format!("{inventory}{types}"), "");
    shared.configure(&env, PASSWORD);
    let gate = env.gate("go");
    let (package, usual) = waiting(&env, &gate);
    submit(&env, "typed", &package, &usual, &["-gpu-type", "a100"]);
    let mut follower = env.start(&["logs", "-f", "--raw", "typed"]);
    assert_eq!(follower.wait_for_line("up with"), "up with cards 0");
    env.paddlectl(&["describe", "typed"])
        .ok()
        .prints(", 1 gpu (a100)\n");
    let flags = ["-gpu-type", "Fast", "-node-label", label];
    submit(&env, "second", &package, &usual, &flags);
    let said = why(&env, "second");
    let expected = format!("; 1 of 1 node has GPUs of type `fast` and the label `{label}`");
    assert!(said.contains(&expected), "{said}");
    let refused = |flags: &[&str], expected: &str| {
        let usual = ["-pservers", "0", "-entry", "sh train.sh", package.arg()];
        env.paddlectl(&[&["submit"], flags, &usual].concat())
            .refused(1)
            .says(expected);
    };
    refused(
        &["-gpu-type", "h100"],
        "no node has GPUs of type `h100`; there are `a100-sxm4-80gb` (1 node), `fast` (1 node)",
    );
    refused(
        &["-node-label", "pool=train"],
        "no node has the label `pool=train`; the labels are `nvidia.com/gpu.product` (1 node)",
    );
    gate.open_until("both jobs end", || env.status("second") == "Succeeded");
}

#[test]
fn the_change_that_why_names_starts_the_job() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "inventory: {cpu: 2, memory: 1Gi}\n", "");
    shared.configure(&env, PASSWORD);
    let gate = env.gate("go");
    let (package, usual) = waiting(&env, &gate);
    submit(&env, "first", &package, &usual, &["-cpu", "500m"]);
    env.wait_for_status("first", "Running");
    let quick = env.package("quick").file("train.sh", "echo quick\n");
    let servers = [
        "-cpu",
        "500m",
        "-pscpu",
        "500m",
        "-psmemory",
        "64Mi",
        "-entry",
        "sh train.sh",
    ];
    env.submit("second", &quick, &[&servers[..], &["-pservers", "3"]].concat());
    assert_eq!(env.status("second"), "Pending");
    let said = why(&env, "second");
    assert!(said.contains("would start now with `-pservers 2`"), "{said}");
    env.paddlectl(&["kill", "second"]).ok();
    env.submit("second", &quick, &[&servers[..], &["-pservers", "2"]].concat());
    env.paddlectl(&["wait", "second"]).ok();
    gate.open();
    env.paddlectl(&["wait", "first"]).ok();
}

#[test]
fn a_smaller_job_passes_a_stuck_bigger_one_only_if_it_ends_before() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "inventory: {cpu: 2, memory: 1Gi}\n", "");
    shared.configure(&env, PASSWORD);
    let gate = env.gate("go");
    let (package, usual) = waiting(&env, &gate);
    submit(
        &env,
        "runs",
        &package,
        &usual,
        &["-cpu", "1", "-max-runtime", "1h"],
    );
    env.wait_for_status("runs", "Running");
    let quick = env.package("quick").file("train.sh", "echo quick\n");
    let entry = ["-entry", "sh train.sh"];
    env.submit("big", &quick, &[&entry[..], &["-cpu", "2"]].concat());
    env.submit("long", &quick, &[&entry[..], &["-cpu", "1"]].concat());
    env.submit(
        "short",
        &quick,
        &[&entry[..], &["-cpu", "1", "-max-runtime", "10m"]].concat(),
    );
    env.paddlectl(&["wait", "short"]).ok();
    assert_eq!(env.status("big"), "Pending");
    assert_eq!(env.status("long"), "Pending", "it could delay the bigger one");
    let said = why(&env, "long");
    assert!(said.contains("ahead of it: big"), "{said}");
    gate.open();
    for job in ["runs", "big", "long"] {
        env.paddlectl(&["wait", job]).ok();
    }
}
