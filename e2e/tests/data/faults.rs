//! Jobs with parameter servers whose processes are killed: same results, correct reasons, and every wait names what it waits for.

use std::env::var;
use std::fs;

use e2e::{Background, Gate, Package, Process, TestEnvironment, wait_until};

use crate::examples::user;

/// Kills of one job; no worker is killed more often than `-retries 3` allows.
const KILLS: usize = 5;

/// The seeds of the jobs to disturb; `cargo xtask test --with crash` asks for 100. To divide them among processes, set the
/// first one in `PADDLECLOUD_CRASH_SEED`.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let jobs = number("PADDLECLOUD_CRASH_ROUNDS").map_or(4, |rounds| (rounds / 2).max(4));
    let first = number("PADDLECLOUD_CRASH_SEED").unwrap_or(1);
    first..first + jobs
}

/// Trains a model that uses everything, with checkpoints, and prints a digest of it. `small` and `late` have no block on one of
/// the servers. Trainer 1 waits at gates, as long as they are there.
const GATED: &str = r#"
import hashlib, json, os
import numpy as np
from paddlecloud import ps

F = np.float32
gates = dict(gate.split("=") for gate in os.environ.get("GATES", "").split(",") if gate)
session = ps.connect(checkpoint_every=10)
session.create("large", np.zeros(150_000, F), ps.Adam(ps.Exponential(0.01, 0.9, 5)))
session.create("small", np.ones(3, F), ps.Adam(ps.Cosine(0.05, 50, 0.001), average=20))
session.create("velocity", np.ones(70_000, F), ps.Momentum(ps.Piecewise(0.1, ((900, 0.01),), by_samples=True)))
session.table("emb", 4, ps.Adagrad(0.1), init=ps.Uniform(-1, 1), seed=3)
session.table("admits", 3, ps.Adam(0.1), init=ps.Normal(), seed=4, admit_after=3)
session.table("evicts", 2, ps.Adam(0.1), init=ps.Uniform(-1, 1), seed=5, max_rows=60, evict=True)
session.table("expires", 2, ps.Momentum(0.1), init=ps.Uniform(-1, 1), seed=6, idle_steps=6)
tables = ["emb", "admits", "evicts", "expires"]

source, drawn = np.random.default_rng([1, session.trainer]), 0

def state():
    return json.dumps([source.bit_generator.state, drawn]).encode()

def restore(kept):
    global drawn
    source.bit_generator.state, drawn = json.loads(kept)

for step in session.steps(60, state=state, restore=restore):
    names = ["large", "small", "velocity"]
    if step >= 7:
        session.create("late", np.zeros(5, F), ps.Adam(0.02))
        names.append("late")
    values = session.pull(names)
    ids = 1_000_003 * source.integers(0, 100, 12)
    drawn += int(ids.sum())
    rows = {table: session.lookup(table, ids) for table in tables}
    gate = gates.get(str(step))
    if session.trainer == 1 and gate and os.path.exists(gate):
        print(f"at step {step}", flush=True)
        open(gate).read()
    noise = F(source.normal())
    gradients = {name: value * F(0.1) + noise for name, value in values.items()}
    session.push(gradients, samples=12, lr=0.01 + 0.001 * (step % 3) if step % 5 == 0 else None)
    for table, found in rows.items():
        session.push_rows(table, ids, found + noise)

digest = hashlib.sha256()
for averaged in (False, True):
    for value in session.pull(averaged=averaged).values():
        digest.update(value.tobytes())
for table in tables:
    digest.update(session.lookup(table, 1_000_003 * np.arange(100), train=False).tobytes())
print("model", digest.hexdigest(), flush=True)
print("drawn", session.trainer, drawn, flush=True)
"#;

/// Every step of either trainer adds 1 to every element, as soon as it is pushed.
const COUNTING: &str = r#"
import os
import numpy as np
from paddlecloud import ps

gates = dict(gate.split("=") for gate in os.environ.get("GATES", "").split(",") if gate)
session = ps.connect(mode="async", checkpoint_every=10)
session.create("w", np.zeros(150_000, np.float32), ps.SGD(1.0))

for step in session.steps(60):
    gate = gates.get(str(step))
    if session.trainer == 1 and gate and os.path.exists(gate):
        print(f"at step {step}", flush=True)
        open(gate).read()
    session.push({"w": -np.ones(150_000, np.float32)})

if session.trainer == 0:
    w = session.pull("w")
    print("counted", int(w[0]), int(w[65_536]), flush=True)
"#;

const TWO_BY_TWO: [&str; 12] = [
    "-parallelism",
    "2",
    "-pservers",
    "2",
    "-cpu",
    "250m",
    "-memory",
    "512Mi",
    "-pscpu",
    "250m",
    "-psmemory",
    "128Mi",
];

/// Whom to kill, and whether before or after its gate opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    pub step: u64,
    pub worker: &'static str,
    pub what: Victim,
    pub while_waiting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    TheWorker,
    ItsSupervisor,
}

/// The kills of one job: nothing but the seed decides.
fn kills(seed: u64) -> Vec<Kill> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let mut kills: Vec<Kill> = Vec::new();
    while kills.len() < KILLS {
        let kill = Kill {
            step: kills.len() as u64 * 11 + random(11) + 1,
            worker: ["pserver-0", "pserver-1", "trainer-0", "trainer-1"][random(4) as usize],
            what: [Victim::TheWorker, Victim::TheWorker, Victim::ItsSupervisor][random(3) as usize],
            while_waiting: random(2) == 0,
        };
        let so_far = kills.iter().filter(|other| other.worker == kill.worker);
        if so_far.count() < 3 {
            kills.push(kill);
        }
    }
    kills
}

/// The parent of a process; 0 where it has none.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may contain anything.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let parent = rest.split(' ').nth(1).and_then(|word| word.parse().ok());
    parent.unwrap_or(0)
}

/// The process of a worker, once it runs.
fn find(env: &TestEnvironment, worker: &str) -> Process {
    let marker = format!(".{worker}.");
    let is_it = |pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environ.split(|byte| *byte == 0);
        variables.any(|variable| {
            let text = String::from_utf8_lossy(variable);
            text.strip_prefix("PADDLECLOUD_ATTEMPT=")
                .is_some_and(|attempt| attempt.contains(&marker))
        })
    };
    // It may be between two attempts.
    wait_until(&format!("{worker} must run"), || {
        let starts = |arguments: &str| {
            arguments.starts_with("paddle pserver") || arguments.starts_with("python train.py")
        };
        let mut all = env.workers().into_iter();
        all.find(|process| starts(&process.arguments) && is_it(process.pid))
    })
}

/// The process to kill: a worker's own, or the supervisor above it.
fn victim(env: &TestEnvironment, worker: &str, what: Victim) -> Process {
    let process = find(env, worker);
    if what == Victim::TheWorker {
        return process;
    }
    let mut above = parent(process.pid);
    while above > 1 {
        let mut all = env.processes().into_iter();
        match all.find(|process| process.pid == above) {
            Some(process) if process.arguments.contains("supervise") => return process,
            _ => above = parent(above),
        }
    }
    panic!("{worker} has no supervisor: {:?}", env.processes());
}

/// Submits a job, kills its workers on the way, and waits for its end.
fn disturb(env: &TestEnvironment, job: &str, program: &str, kills: &[Kill]) {
    let package = env.package(job).file("train.py", program);
    submit_and_kill(env, job, &package, &TWO_BY_TWO, kills);
    // The status says how it ended.
    let _ = env.paddlectl(&["wait", job]);
}

/// Submits a job whose trainers wait at gates, and kills its workers there.
pub fn submit_and_kill(env: &TestEnvironment, job: &str, package: &Package, flags: &[&str], kills: &[Kill]) {
    let gates: Vec<Gate> = (0..kills.len())
        .map(|number| env.gate(&format!("{job}-{number}")))
        .collect();
    let pairs = kills.iter().zip(&gates);
    let named: Vec<String> = pairs
        .map(|(kill, gate)| format!("{}={}", kill.step, gate.path().display()))
        .collect();
    let variable = format!("GATES={}", named.join(","));
    let train = [
        "submit",
        "-retries",
        "3",
        "-entry",
        "python train.py",
        "-jobname",
        job,
    ];
    env.paddlectl(&[&train[..], flags, &["-env", &variable, package.arg()]].concat())
        .ok();
    let mut log = env.start(&["logs", "-f", job]);
    for (now, gate) in kills.iter().zip(&gates) {
        log.wait_for_line(&format!("at step {}", now.step));
        // Found while the job waits at the gate: afterwards it may end before the process is found.
        let victim = victim(env, now.worker, now.what);
        if now.while_waiting {
            victim.end();
        }
        gate.open();
        // The next attempt finds no gate.
        fs::remove_file(gate.path()).unwrap();
        if !now.while_waiting {
            victim.end();
        }
    }
}

/// The lines the trainers printed that begin so, without repetitions.
pub fn printed(env: &TestEnvironment, job: &str, start: &str) -> Vec<String> {
    assert_eq!(env.status(job), "Succeeded", "{}", env.logs(job).join("\n"));
    let log = env.paddlectl(&["logs", "--raw", job]).ok().stdout;
    let mut lines: Vec<String> = log
        .lines()
        .filter_map(|line| line.strip_prefix(start))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

#[test]
#[ignore = "needs Python packages"]
fn synchronous_jobs_whose_processes_are_killed_end_with_the_same_bits() {
    let env = user();
    disturb(&env, "calm", GATED, &[]);
    let expected = (printed(&env, "calm", "model "), printed(&env, "calm", "drawn "));
    assert_eq!((expected.0.len(), expected.1.len()), (1, 2));
    for seed in seeds() {
        let kills = kills(seed);
        println!("seed {seed}: {kills:?}");
        let job = format!("rough-{seed}");
        disturb(&env, &job, GATED, &kills);
        let found = (printed(&env, &job, "model "), printed(&env, &job, "drawn "));
        assert_eq!(found, expected, "seed {seed}: {kills:?}");
    }
}

#[test]
#[ignore = "needs Python packages"]
fn an_asynchronous_push_counts_once_and_nothing_before_a_checkpoint_is_lost() {
    let env = user();
    let kill = |step, worker| Kill {
        step,
        worker,
        what: Victim::TheWorker,
        while_waiting: step % 2 == 0,
    };
    disturb(
        &env,
        "async",
        COUNTING,
        &[
            kill(12, "trainer-1"),
            kill(25, "pserver-1"),
            kill(37, "trainer-0"),
        ],
    );
    let counted = printed(&env, "async", "counted ");
    let numbers: Vec<u64> = counted[0].split(' ').map(|word| word.parse().unwrap()).collect();
    // Block 0 is on server 0, which lived; block 1 on the killed one, which had a checkpoint of step 10 at least.
    assert_eq!(numbers[0], 120, "{counted:?}");
    assert!((60..=120).contains(&numbers[1]), "{counted:?}");
}

#[test]
#[ignore = "needs Python packages"]
fn without_retries_a_killed_server_is_the_reason_the_job_fails() {
    let env = user();
    let package = env.package("gated").file("train.py", GATED);
    let gate = env.gate("first");
    let variable = format!("GATES=25={}", gate.path().display());
    let train = [
        "submit",
        "-entry",
        "python train.py",
        "-jobname",
        "fragile",
        "-env",
        &variable,
    ];
    env.paddlectl(&[&train[..], &TWO_BY_TWO, &[package.arg()]].concat())
        .ok();
    let mut log = env.start(&["logs", "-f", "fragile"]);
    log.wait_for_line("at step 25");
    find(&env, "pserver-1").end();
    let why = env.paddlectl(&["wait", "fragile"]);
    assert_eq!(env.status("fragile"), "Failed", "{why:?}");
    let described = env.paddlectl(&["describe", "fragile"]).ok().stdout;
    assert!(described.contains("pserver"), "{described}");
}

/// No checkpoints. Trainer 1 reads the model after trainer 0 has ended.
const LATE: &str = r#"
import os
import numpy as np
from paddlecloud import ps

session = ps.connect()
session.create("w", np.zeros(3, np.float32))
for step in session.steps(3):
    session.push({"w": np.ones(3, np.float32)})
if session.trainer == 1:
    print("alone", flush=True)
    open(os.environ["GATE"]).read()
    session.pull("w")
"#;

#[test]
#[ignore = "needs Python packages"]
fn a_server_that_is_lost_after_a_trainer_has_finished_fails_the_job_and_nothing_hangs() {
    let env = user();
    let package = env.package("late").file("train.py", LATE);
    let gate = env.gate("late");
    let variable = gate.variable("GATE");
    let train = [
        "submit",
        "-retries",
        "2",
        "-entry",
        "python train.py",
        "-jobname",
        "late",
        "-env",
        &variable,
    ];
    env.paddlectl(&[&train[..], &TWO_BY_TWO, &[package.arg()]].concat())
        .ok();
    let mut log = env.start(&["logs", "-f", "late"]);
    log.wait_for_line("alone");
    wait_until("trainer 0 must succeed", || {
        let workers = env.describe("late")["workers"].clone();
        let mut workers = workers.as_array()?.iter();
        workers.find(|worker| worker["role"] == "trainer" && worker["status"] == "Succeeded")?;
        Some(())
    });
    // The one that holds `w`.
    find(&env, "pserver-0").end();
    gate.open();
    // The next attempts find no gate.
    fs::remove_file(gate.path()).unwrap();
    let _ = env.paddlectl(&["wait", "late"]);
    assert_eq!(env.status("late"), "Failed");
    let why = env.paddlectl(&["why", "late"]).ok().stdout;
    assert!(
        why.contains(
            "parameter server 0 was lost and there is no checkpoint; training cannot restart, because trainer 0 has finished"
        ),
        "{why}"
    );
}

/// Trainer 1 is stuck in a function of its own until its gate opens.
const STUCK: &str = r#"
import os
import numpy as np
from paddlecloud import ps

session = ps.connect(stall=0.5)
session.create("w", np.zeros(3, np.float32))

def stuck_in_here():
    open(os.environ["GATE"]).read()

for step in session.steps(4):
    if step == 2 and session.trainer == 1:
        print("at step 2", flush=True)
        stuck_in_here()
    session.push({"w": np.ones(3, np.float32)})
"#;

/// Submits it, with servers that say after a second for whom they wait, and follows its log.
fn submit_stuck(env: &TestEnvironment, job: &str, gate: &Gate) -> Background {
    let package = env.package(job).file("train.py", STUCK);
    let variable = gate.variable("GATE");
    let train = [
        "submit",
        "-entry",
        "python train.py",
        "-jobname",
        job,
        "-env",
        &variable,
    ];
    let patience = ["-env", "PADDLE_PS_PATIENCE=1"];
    env.paddlectl(&[&train[..], &patience, &TWO_BY_TWO, &[package.arg()]].concat())
        .ok();
    env.start(&["logs", "-f", job])
}

#[test]
#[ignore = "needs Python packages"]
fn a_trainer_that_others_wait_for_is_named_and_shows_its_stack() {
    let env = user();
    let gate = env.gate("stuck");
    let mut log = submit_stuck(&env, "stuck", &gate);
    let (mut named, mut shown) = (false, false);
    while !(named && shown) {
        let line = log.wait_for_line("trainer");
        named |= line.contains("paddlecloud.ps: parameter server") && line.contains("waits for trainer 1");
        shown |= line.contains("in stuck_in_here");
    }
    gate.open();
    env.paddlectl(&["wait", "stuck"]).ok();
}

#[test]
#[ignore = "needs Python packages"]
fn a_stopped_trainer_is_named_and_shows_its_stack_once_it_continues() {
    let env = user();
    let gate = env.gate("stopped");
    let mut log = submit_stuck(&env, "stopped", &gate);
    log.wait_for_line("at step 2");
    let trainer = find(&env, "trainer-1");
    trainer.stop();
    log.wait_for_line("waits for trainer 1");
    trainer.resume();
    log.wait_for_line("in stuck_in_here");
    gate.open();
    env.paddlectl(&["wait", "stopped"]).ok();
}

#[test]
fn kills_depend_on_the_seed_alone_and_leave_retries() {
    assert_eq!(kills(3), kills(3));
    assert_ne!(kills(3), kills(4));
    for seed in 0..200 {
        let kills = kills(seed);
        assert!(kills.windows(2).all(|pair| pair[0].step < pair[1].step));
        assert!(kills.iter().all(|kill| kill.step < 60));
        let of = |worker| kills.iter().filter(|kill| kill.worker == worker).count();
        assert!(
            ["pserver-0", "pserver-1", "trainer-0", "trainer-1"]
                .into_iter()
                .all(|worker| of(worker) <= 3)
        );
    }
}
