//! A job ends truthfully: its status, its reason, and no process left behind.

use e2e::{Package, TestEnvironment, wait_until};

/// A package whose trainers run this shell script.
fn script(env: &TestEnvironment, text: &str) -> Package {
    env.package("job").file("train.sh", text)
}

#[test]
fn one_failed_trainer_fails_the_job_and_stops_the_others() {
    let env = TestEnvironment::new();
    let gate = env.gate("fail");
    let package = script(
        &env,
        "if [ $PADDLE_INIT_TRAINER_ID = 1 ]; then cat $GATE; echo cannot go on >&2; exit 3; fi\n\
         trap 'echo told to stop; exit 0' TERM\ntail -f /dev/null &\necho ready\nwait\n",
    );
    let flags = [
        "-parallelism",
        "3",
        "-env",
        &gate.variable("GATE"),
        "-entry",
        "sh train.sh",
    ];
    env.submit("fails", &package, &flags);
    let mut follower = env.start(&["logs", "-f", "fails"]);
    follower.wait_for_line("ready");
    follower.wait_for_line("ready");
    gate.open();
    let waited = env.paddlectl(&["wait", "fails"]);
    assert_eq!(waited.code, Some(1), "{waited}");

    assert_eq!(env.status("fails"), "Failed");
    let why = env.paddlectl(&["why", "fails"]).ok().stdout;
    assert!(
        why.contains("trainer") && why.contains('3'),
        "names the worker and its exit code:\n{why}"
    );
    assert!(why.contains("cannot go on"), "shows its last lines:\n{why}");
    assert_eq!(
        env.logs("fails")
            .iter()
            .filter(|line| line.ends_with("told to stop"))
            .count(),
        2
    );
}

#[test]
fn a_failed_worker_is_retried_under_the_same_index() {
    let env = TestEnvironment::new();
    let package = script(
        &env,
        "echo attempt of trainer $PADDLE_INIT_TRAINER_ID\n\
         [ $PADDLE_INIT_TRAINER_ID = 0 ] && exit 0\n\
         if [ -e output/second ]; then exit 0; fi\nmkdir -p output; touch output/second; exit 1\n",
    );
    env.submit(
        "again",
        &package,
        &[
            "-parallelism",
            "2",
            "-retries",
            "1",
            "-entry",
            "sh train.sh",
            "-f",
        ],
    );
    assert_eq!(env.status("again"), "Succeeded");
    let attempts = env
        .logs("again")
        .iter()
        .filter(|line| line.ends_with("attempt of trainer 1"))
        .count();
    assert_eq!(attempts, 2);
}

#[test]
fn a_worker_that_fails_again_is_restarted_after_a_reported_pause() {
    let env = TestEnvironment::new();
    let package = script(&env, "echo try; exit 7\n");
    let flags = ["-retries", "2", "-entry", "sh train.sh"];
    env.submit("stubborn", &package, &flags);
    assert_eq!(env.paddlectl(&["wait", "stubborn"]).code, Some(1));
    let events = env.describe("stubborn")["events"].to_string();
    assert!(
        events.contains("it is restarted\""),
        "the first time at once: {events}"
    );
    assert!(
        events.contains("it is restarted after 1s"),
        "then after a pause: {events}"
    );
    let why = env.paddlectl(&["why", "stubborn"]).ok().stdout;
    assert!(why.contains("after 2 restarts"), "{why}");
    let tries = env
        .logs("stubborn")
        .iter()
        .filter(|line| line.ends_with("try"))
        .count();
    assert_eq!(tries, 3);
}

#[test]
fn a_parameter_server_that_ends_early_fails_the_job() {
    let env = TestEnvironment::new();
    let package = script(&env, "exec tail -f /dev/null\n").file("ps.py", PSERVER_THAT_LEAVES);
    let flags = [
        "-pservers",
        "1",
        "-psmemory",
        "64Mi",
        "-psentry",
        "python3 ps.py",
        "-entry",
        "sh train.sh",
    ];
    env.submit("early", &package, &flags);
    let waited = env.paddlectl(&["wait", "early"]);
    assert_eq!(waited.code, Some(1), "{waited}");
    let why = env.paddlectl(&["why", "early"]).ok().stdout;
    assert!(why.contains("pserver"), "{why}");
}

/// Listens, and exits without having been asked to.
const PSERVER_THAT_LEAVES: &str = r#"
import os, socket
listener = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])))
"#;

#[test]
fn parameter_servers_are_stopped_when_the_trainers_are_done() {
    let env = TestEnvironment::new();
    let package = script(&env, "echo done\n");
    env.submit(
        "done",
        &package,
        &[
            "-pservers",
            "2",
            "-psmemory",
            "64Mi",
            "-entry",
            "sh train.sh",
            "-f",
        ],
    );
    assert_eq!(env.status("done"), "Succeeded");
    wait_until("no worker may be left", || env.workers().is_empty().then_some(()));
    let workers = env.describe("done")["workers"].clone();
    let failed: Vec<_> = workers
        .as_array()
        .expect("a list")
        .iter()
        .filter(|w| w["status"] == "Failed")
        .collect();
    assert!(
        failed.is_empty(),
        "who was told to stop has not failed: {failed:#?}"
    );
}

#[test]
fn exits_are_explained() {
    let env = TestEnvironment::new();
    let cases = [
        ("segfault", "kill -SEGV $$", "segmentation fault"),
        ("abort", "kill -ABRT $$", "abort"),
        ("missing", "no-such-program", "not found"),
    ];
    for (name, text, words) in cases {
        let package = script(&env, &format!("{text}\n"));
        env.submit(name, &package, &["-entry", "sh train.sh"]);
        assert_eq!(env.paddlectl(&["wait", name]).code, Some(1));
        let why = env.paddlectl(&["why", name]).ok().stdout;
        assert!(why.to_lowercase().contains(words), "{name}: {why}");
    }
}

#[test]
fn a_worker_that_exceeds_its_memory_is_reported_as_out_of_memory() {
    let env = TestEnvironment::new();
    let package = env.package("job").file(
        "train.py",
        "hoard = []\nwhile True: hoard.append(b'x' * (1 << 20))\n",
    );
    env.submit(
        "hungry",
        &package,
        &["-memory", "64Mi", "-entry", "python3 train.py"],
    );
    assert_eq!(env.paddlectl(&["wait", "hungry"]).code, Some(1));
    let why = env.paddlectl(&["why", "hungry"]).ok().stdout;
    assert!(why.contains("out of memory"), "{why}");
}

#[test]
fn killing_a_job_ends_its_whole_process_tree() {
    let env = TestEnvironment::new();
    let package = script(
        &env,
        "setsid sh -c 'trap \"\" TERM; echo deep; exec tail -f /dev/null' & wait\n",
    );
    env.submit(
        "tree",
        &package,
        &["-parallelism", "2", "-grace", "1s", "-entry", "sh train.sh"],
    );
    let mut follower = env.start(&["logs", "-f", "tree"]);
    follower.wait_for_line("deep");
    env.paddlectl(&["kill", "tree"]).ok();
    follower.end();
    env.wait_for_status("tree", "Killed");
    wait_until("no worker may be left", || env.workers().is_empty().then_some(()));
}

#[test]
fn kill_now_ends_jobs_that_ignore_sigterm() {
    let env = TestEnvironment::new();
    let package = script(&env, "trap '' TERM\necho deaf\nwhile :; do sleep 1; done\n");
    for name in ["one", "two", "three"] {
        env.submit(name, &package, &["-grace", "1h", "-entry", "sh train.sh"]);
        env.start(&["logs", "-f", name]).wait_for_line("deaf");
    }
    env.paddlectl(&["kill", "one"]).ok();
    env.wait_for_status("one", "Stopping");
    env.paddlectl(&["kill", "--now", "one", "nobody"])
        .refused(1)
        .says("stopping one (j_")
        .says("there is no job `nobody`");
    env.wait_for_status("one", "Killed");
    env.paddlectl(&["kill", "--all", "--now"])
        .ok()
        .says("stopping two")
        .says("stopping three");
    env.wait_for_status("two", "Killed");
    env.wait_for_status("three", "Killed");
    env.paddlectl(&["kill", "--all"])
        .ok()
        .says("note: no job is pending or running");
}

#[test]
fn the_start_limit_names_the_missing_worker() {
    let env = TestEnvironment::new();
    let package = script(&env, "echo never\n");
    let flags = [
        "-pservers",
        "1",
        "-psentry",
        "tail -f /dev/null",
        "-start-limit",
        "1s",
        "-entry",
        "sh train.sh",
    ];
    env.submit("deaf", &package, &flags);
    assert_eq!(env.paddlectl(&["wait", "deaf"]).code, Some(1));
    let why = env.paddlectl(&["why", "deaf"]).ok().stdout;
    assert!(why.contains("pserver 0") && why.contains("7164"), "{why}");
    assert!(!env.logs("deaf").iter().any(|line| line.ends_with("never")));
}
