//! Jobs that continue the training of an ended run.

use std::fs;

use e2e::TestEnvironment;

use crate::examples::user;

/// Leaves what looks like a checkpoint, and prints that of the run it continues.
const SHELL: &str = r#"
run=${PADDLECLOUD_ATTEMPT%%.*}
mkdir -p output/checkpoints/$run
echo "checkpoint of $run" > output/checkpoints/$run/10
if [ -n "$PADDLE_PS_RESUME" ]; then
    echo "continues $PADDLE_PS_RESUME: $(cat $PADDLE_PS_RESUME_OUTPUT/checkpoints/$PADDLE_PS_RESUME/10)"
fi
"#;

const SHELL_SERVER: &str = r#"
echo "server of $PADDLE_PS_RESUME in $PADDLE_PS_RESUME_OUTPUT"
exec paddle pserver
"#;

#[test]
fn workers_find_the_output_of_the_run_that_they_continue() {
    let env = TestEnvironment::new();
    let package = env
        .package("again")
        .file("train.sh", SHELL)
        .file("serve.sh", SHELL_SERVER);
    let flags = [
        "-entry",
        "sh train.sh",
        "-psentry",
        "sh serve.sh",
        "-pservers",
        "1",
        "-psmemory",
        "64Mi",
        "-pscpu",
        "20m",
        "-f",
    ];
    env.submit("first", &package, &flags);
    let first = env.describe("first")["job"]["id"].as_str().unwrap().to_owned();
    env.submit("other", &package, &["-entry", "true", "-f"]);
    let resume = ["-resume", "first", "-pservers", "2"];
    env.submit(
        "second",
        &package,
        &[&flags[..4], &flags[6..], &resume[..]].concat(),
    );

    let continued = format!("continues {first}: checkpoint of {first}");
    let log = env
        .paddlectl(&["logs", "--raw", "second"])
        .ok()
        .prints(&continued);
    assert_eq!(
        log.stdout.matches(&format!("server of {first} in /")).count(),
        2,
        "{log}"
    );
    let shown = env.paddlectl(&["describe", "second"]).ok();
    shown.prints(&format!("resumed from {first}\n"));
    assert_eq!(env.jobs()[0]["resumed_from"], first.as_str());
    assert!(env.jobs()[1].get("resumed_from").is_none(), "{:?}", env.jobs()[1]);

    let submit =
        |more: &[&str]| env.paddlectl(&[&["submit", "-entry", "true"], more, &[package.arg()]].concat());
    submit(&["--dry-run", "-resume", "last"])
        .ok()
        .says("continues the training of second (j_");
    submit(&["-resume", "other"])
        .refused(1)
        .says("other (j_")
        .says("had no parameter servers, so there is nothing to resume");
    submit(&["-resume", "missing"])
        .refused(1)
        .says("there is no job `missing`");
    submit(&["-resume", "last", "-pservers", "0"])
        .refused(2)
        .says("`-resume` needs parameter servers, and this job has none");
}

/// Trains with everything that a checkpoint has to hold, and prints a digest of the model. Trainer 1 waits at the gate of step 35.
const TRAINING: &str = r#"
import hashlib, os, pickle
import numpy as np
from paddlecloud import ps

gate = os.environ.get("GATE")
session = ps.connect(checkpoint_every=10)
session.create("w", np.zeros(150_000, np.float32), ps.Adam(ps.Exponential(0.01, 0.5, 20)))
session.create("small", np.ones(7, np.float32), ps.Momentum(0.01, 0.9))
session.table("emb", 4, ps.Adagrad(0.1), init=ps.Uniform(-1, 1), seed=3, admit_after=2)
draw = np.random.default_rng(session.trainer)

def state():
    return pickle.dumps(draw.bit_generator.state)

def restore(kept):
    draw.bit_generator.state = pickle.loads(kept)

for step in session.steps(60, state=state, restore=restore):
    if step == 35 and session.trainer == 1 and gate:
        print("at step 35", flush=True)
        open(gate).read()
    ids = np.unique(draw.integers(0, 200, 40)) * 1_000_003
    w, small, rows = session.pull("w"), session.pull("small"), session.lookup("emb", ids)
    noise = np.float32(draw.normal())
    session.push({"w": w * np.float32(0.1) + noise, "small": small * noise})
    session.push_rows("emb", ids, rows + noise)

rows = session.lookup("emb", np.arange(200) * 1_000_003, train=False)
model = session.pull("w").tobytes() + session.pull("small").tobytes() + rows.tobytes()
print("model", hashlib.sha256(model).hexdigest(), flush=True)
"#;

/// The digests that the trainers of a job printed.
fn digests(env: &TestEnvironment, job: &str) -> Vec<String> {
    assert_eq!(env.status(job), "Succeeded", "{}", env.logs(job).join("\n"));
    let log = env.paddlectl(&["logs", "--raw", job]).ok().stdout;
    let digests = log.lines().filter_map(|line| line.strip_prefix("model "));
    digests.map(str::to_owned).collect()
}

#[test]
#[ignore = "needs Python packages"]
fn a_killed_run_continues_on_other_servers_to_the_same_bits() {
    let env = user();
    let package = env.package("train").file("train.py", TRAINING);
    let submit = |job: &str, more: &[&str]| {
        let flags = [
            "-entry",
            "python train.py",
            "-parallelism",
            "2",
            "-cpu",
            "250m",
            "-memory",
            "512Mi",
        ];
        let servers = ["-pscpu", "250m", "-psmemory", "128Mi"];
        env.submit(job, &package, &[&flags[..], &servers, more].concat());
    };
    submit("calm", &["-pservers", "2", "-f"]);
    let expected = digests(&env, "calm");
    assert_eq!(expected.len(), 2);
    assert_eq!(expected[0], expected[1]);

    let gate = env.gate("stop");
    submit("broken", &["-pservers", "2", "-env", &gate.variable("GATE")]);
    env.start(&["logs", "-f", "broken"]).wait_for_line("at step 35");
    env.paddlectl(&["kill", "-now", "broken"]).ok();
    env.wait_for_status("broken", "Killed");
    fs::remove_file(gate.path()).unwrap();

    submit("resumed", &["-pservers", "3", "-resume", "last", "-f"]);
    assert_eq!(
        digests(&env, "resumed"),
        expected,
        "{}",
        env.logs("resumed").join("\n")
    );
    // A run that has finished can be continued too: there is nothing left to train.
    submit("done", &["-pservers", "1", "-resume", "last", "-f"]);
    assert_eq!(digests(&env, "done"), expected, "{}", env.logs("done").join("\n"));
}
