//! Jobs that continue the training of an ended run.

use e2e::TestEnvironment;

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
