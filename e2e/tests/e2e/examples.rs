//! The examples run as the documents show them.

use std::path::Path;

use e2e::TestEnvironment;

#[test]
fn parameter_servers_and_trainers_fit_a_line_together() {
    let env = TestEnvironment::new();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fit_a_line");
    let servers = [
        "-pservers",
        "2",
        "-pscpu",
        "250m",
        "-psmemory",
        "128Mi",
        "-psentry",
        "python3 pserver.py",
    ];
    let trainers = [
        "-parallelism",
        "2",
        "-cpu",
        "250m",
        "-memory",
        "128Mi",
        "-entry",
        "python3 train.py",
    ];
    let submit = [
        &["submit", "-jobname", "fit-a-line"],
        &servers[..],
        &trainers[..],
        &["-passes", "2", "-f"],
    ]
    .concat();
    env.paddlectl(&[&submit[..], &[package.to_str().unwrap()]].concat())
        .ok();

    assert_eq!(env.status("fit-a-line"), "Succeeded");
    let log = env.paddlectl(&["logs", "--raw", "fit-a-line"]).ok().stdout;
    let count = |text: &str| log.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!(count("holding "), 2, "{log}");
    assert_eq!(count("pass 1 batch   0 loss"), 2, "{log}");
    assert_eq!(count("saved output/pass-00001"), 1, "{log}");
    assert_eq!(
        count("stopped after round 300"),
        2,
        "both servers were told to stop, and did:\n{log}"
    );
}
