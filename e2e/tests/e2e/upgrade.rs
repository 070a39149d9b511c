//! A newer program with the server, supervisors and workers of an older one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use e2e::TestEnvironment;

/// Counts to 300 with a stop after each hundred.
const COUNTER: &str = "seq 1 100\ncat $FIRST\nseq 101 200\ncat $SECOND\nseq 201 300\n";

/// A copy of the program that says of itself, in every place, that it is version `older`.
///
/// It is the same code: what is shown here is how versions meet, not what an old version did.
fn older_programs(env: &TestEnvironment, ours: &str, older: &str) -> PathBuf {
    assert_eq!(ours.len(), older.len(), "the text is replaced in place");
    let bin = env.folder("older");
    let real = env.command("paddlectl", &[]).get_program().to_owned();
    let mut program = fs::read(real).expect("the program can be read");
    let mut from = 0;
    while let Some(at) = find(&program[from..], ours.as_bytes()) {
        program[from + at..from + at + ours.len()].copy_from_slice(older.as_bytes());
        from += at + ours.len();
    }
    assert!(from > 0, "the program does not name its version {ours}");
    let copy = bin.join("paddlecloud");
    fs::write(&copy, program).expect("a file in the test's own folder");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    for name in ["paddlectl", "paddlecloud-server", "paddle"] {
        symlink(&copy, bin.join(name)).expect("a fresh folder takes a link");
    }
    bin
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn server_version(env: &TestEnvironment) -> String {
    let status = env.paddlectl(&["server", "status", "-o", "json"]).ok().json();
    status["version"]
        .as_str()
        .expect("a server has a version")
        .to_owned()
}

/// The supervisors that run, with the file each was started from.
fn supervisors(env: &TestEnvironment) -> Vec<(u32, PathBuf)> {
    let all = env.workers().into_iter();
    let supervisors = all.filter(|process| process.arguments.contains("supervise"));
    let mut found: Vec<_> = supervisors
        .map(|process| {
            (
                process.pid,
                fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default(),
            )
        })
        .collect();
    found.sort();
    found
}

fn numbers(lines: &[String]) -> Vec<u32> {
    lines.iter().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn a_newer_client_restarts_the_server_which_adopts_running_jobs() {
    let mut env = TestEnvironment::new();
    let ours = env.paddlectl(&["version", "-o", "json"]).ok().json()["version"]
        .as_str()
        .expect("a program has a version")
        .to_owned();
    let older = "0.0.9";
    let old_bin = older_programs(&env, &ours, older);
    let new_bin = env.use_programs_of(old_bin.clone());

    let (first, second) = (env.gate("first"), env.gate("second"));
    let package = env.package("count").file("train.sh", COUNTER);
    let gates = [
        "-env",
        &first.variable("FIRST"),
        "-env",
        &second.variable("SECOND"),
    ];
    env.submit(
        "count",
        &package,
        &[&gates[..], &["-entry", "sh train.sh"]].concat(),
    );
    let follow = ["logs", "-f", "--raw", "--role", "trainer", "count"];
    let mut old_follower = env.start(&follow);
    old_follower.wait_for_line("100");
    assert_eq!(server_version(&env), older);
    let (server, before) = (env.server_pid(), supervisors(&env));
    assert!(
        !before.is_empty() && before.iter().all(|(_, program)| is_below(program, &old_bin)),
        "{before:?}"
    );

    env.use_programs_of(new_bin.clone());
    env.paddlectl(&["get", "jobs"]).ok().says(&format!(
        "the embedded server is version {older}, this program {ours}: restarting it"
    ));
    assert_eq!(server_version(&env), ours);
    assert_ne!(env.server_pid(), server);
    assert_eq!(supervisors(&env), before, "they were adopted, not started again");
    let again = env.paddlectl(&["get", "jobs"]).ok();
    assert!(!again.stderr.contains("restarting"), "said once: {again}");

    first.open();
    old_follower.wait_for_line("200");
    let new_follower = env.start(&follow);
    second.open();
    env.paddlectl(&["wait", "count"]).ok();
    for follower in [old_follower, new_follower] {
        let (status, lines) = follower.end();
        assert_eq!(status.code(), Some(0), "{lines:?}");
        assert_eq!(
            numbers(&lines),
            (1..=300).collect::<Vec<u32>>(),
            "no line lost, none twice"
        );
    }
}

fn is_below(program: &Path, folder: &Path) -> bool {
    let real = folder.canonicalize().expect("the folder is there");
    program.starts_with(real)
}

#[test]
fn an_older_client_does_not_restart_a_newer_server() {
    let mut env = TestEnvironment::new();
    let ours = env.paddlectl(&["version", "-o", "json"]).ok().json()["version"]
        .as_str()
        .expect("a program has a version")
        .to_owned();
    env.paddlectl(&["server", "start"]).ok();
    let server = env.server_pid();
    let old_bin = older_programs(&env, &ours, "0.0.9");
    let new_bin = env.use_programs_of(old_bin);
    let listed = env.paddlectl(&["get", "jobs"]).ok();
    assert!(!listed.stderr.contains("restarting"), "{listed}");
    assert_eq!((env.server_pid(), server_version(&env)), (server, ours));
    env.use_programs_of(new_bin);
}
