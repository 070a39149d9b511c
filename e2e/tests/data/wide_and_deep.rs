//! The example `wide_and_deep`: its workers are killed, it is stopped in the middle, and it is resumed with another number of
//! parameter servers. It prints the digest of the undisturbed run.

use std::fs;

use e2e::{Package, TestEnvironment};

use crate::examples::{make_virtual_environment, root, user_of};
use crate::faults::{Kill, Victim, printed, submit_and_kill};

/// Runs the example. Trainer 1 waits at gates, as long as they are there.
const GATED: &str = r#"
import os, runpy
from paddlecloud.ps.batches import Batches

named = [os.environ.get("GATES", ""), os.environ.get("STOP", "")]
gates = dict(gate.split("=") for gate in ",".join(named).split(",") if gate)
ungated = Batches.__iter__

def gated(loop):
    session = loop._session
    for batch in ungated(loop):
        gate = gates.get(str(session.step))
        if session.trainer == 1 and gate and os.path.exists(gate):
            print(f"at step {session.step}", flush=True)
            open(gate).read()
        yield batch

Batches.__iter__ = gated
runpy.run_path("wide_and_deep.py", run_name="__main__")
"#;

const SIZES: [&str; 10] = [
    "-parallelism",
    "2",
    "-cpu",
    "500m",
    "-memory",
    "1Gi",
    "-pscpu",
    "250m",
    "-psmemory",
    "128Mi",
];

/// A user of the system's torch.
fn user_of_torch() -> TestEnvironment {
    user_of(&make_virtual_environment("torch"))
}

fn package(env: &TestEnvironment, job: &str) -> Package {
    let of_example = |name: &str| fs::read(root().join("examples/wide_and_deep").join(name)).unwrap();
    env.package(job)
        .file("train.py", GATED)
        .file("wide_and_deep.py", of_example("train.py"))
        .file("clicks.py", of_example("clicks.py"))
}

/// Runs the example to its end.
fn run(env: &TestEnvironment, job: &str, flags: &[&str], kills: &[Kill]) -> Vec<String> {
    let flags = [&SIZES[..], flags].concat();
    submit_and_kill(env, job, &package(env, job), &flags, kills);
    let _ = env.paddlectl(&["wait", job]);
    printed(env, job, "digest ")
}

fn kill(step: u64, worker: &'static str, while_waiting: bool) -> Kill {
    Kill {
        step,
        worker,
        what: Victim::TheWorker,
        while_waiting,
    }
}

#[test]
#[ignore = "needs torch and Python packages"]
fn wide_and_deep_that_is_killed_stopped_and_resumed_prints_the_digest_of_the_undisturbed_run() {
    let env = user_of_torch();
    let expected = run(&env, "calm", &["-pservers", "2"], &[]);
    assert_eq!(expected.len(), 2, "each trainer has batch statistics of its own");

    let kills = [
        kill(25, "pserver-1", true),
        kill(50, "trainer-0", true),
        kill(75, "trainer-1", false),
        kill(100, "pserver-0", false),
    ];
    let stop = env.gate("stop");
    let gate = format!("STOP=130={}", stop.path().display());
    let flags = [&SIZES[..], &["-pservers", "2", "-env", &gate]].concat();
    submit_and_kill(&env, "rough", &package(&env, "rough"), &flags, &kills);
    env.start(&["logs", "-f", "rough"]).wait_for_line("at step 130");
    env.paddlectl(&["kill", "rough"]).ok();
    let _ = env.paddlectl(&["wait", "rough"]);
    assert_eq!(env.status("rough"), "Killed");

    let kills = [kill(140, "pserver-2", true), kill(160, "trainer-1", true)];
    let resumed = run(&env, "resumed", &["-resume", "rough", "-pservers", "3"], &kills);
    assert_eq!(resumed, expected);
}
