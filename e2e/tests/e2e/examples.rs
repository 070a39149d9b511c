//! The examples run as the documents show them.

use std::path::Path;

use e2e::TestEnvironment;

#[test]
fn a_package_brings_its_own_parameter_server() {
    let env = TestEnvironment::new();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/own_pserver");
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
        &["submit", "-jobname", "own-pserver"],
        &servers[..],
        &trainers[..],
        &["-passes", "2", "-f"],
    ]
    .concat();
    env.paddlectl(&[&submit[..], &[package.to_str().unwrap()]].concat())
        .ok();

    assert_eq!(env.status("own-pserver"), "Succeeded");
    let log = env.paddlectl(&["logs", "--raw", "own-pserver"]).ok().stdout;
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
