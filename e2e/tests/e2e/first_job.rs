//! The first thing a newcomer does: the README alone, an empty home, a package of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use e2e::TestEnvironment;

/// The shell lines of the README's first five minutes.
fn readme_lines() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(path).expect("the README lies in the root");
    let (_, section) = readme
        .split_once("## The first five minutes")
        .expect("the README has this section");
    let (_, block) = section.split_once("```sh\n").expect("it has shell lines");
    block.split_once("```").expect("the block ends").0.to_owned()
}

#[track_caller]
fn run_shell(env: &TestEnvironment, script: &str) -> String {
    let paddlectl = env.command("paddlectl", &[]);
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", script])
        .current_dir(env.folder("work-of-a-stranger"))
        .env_clear();
    shell.envs(
        paddlectl
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = shell.output().expect("there is a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{script}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn the_readme_works_as_printed() {
    let env = TestEnvironment::new();
    let lines = readme_lines();
    let (before, after) = lines
        .split_once("paddlectl logs -f hello")
        .expect("the README follows the log");

    run_shell(&env, before);
    let mut follower = env.start(&["logs", "-f", "hello"]);
    follower.wait_for_line("trainer 0 reads data/part-0");
    follower.interrupt();
    let (status, lines) = follower.end();
    assert_eq!(
        status.code(),
        Some(0),
        "leaving by Ctrl-C is no failure: {lines:?}"
    );

    let (_, rest) = after.split_once('\n').unwrap();
    let printed = run_shell(&env, rest);
    let runs = printed
        .lines()
        .filter(|line| line.split_whitespace().nth(1) == Some("hello"))
        .count();
    assert_eq!(runs, 2, "both runs are in the table:\n{printed}");
}

#[test]
fn three_trainers_read_different_files_in_the_submitters_virtual_environment() {
    let mut env = TestEnvironment::new();
    let venv = env.folder("venv");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&venv)
        .status()
        .unwrap();
    assert!(made.success());
    env.set("VIRTUAL_ENV", venv.to_str().unwrap());
    env.search_first(venv.join("bin"));
    let package = env
        .package("reader")
        .file("share.py", SHARE)
        .file("train.py", "import share\nshare.read()\n")
        .file("data/a", "")
        .file("data/b", "")
        .file("data/c", "")
        .file("data/d", "");

    let flags = [
        "-parallelism",
        "3",
        "-pservers",
        "2",
        "-memory",
        "128Mi",
        "-entry",
        "python train.py",
        "-f",
    ];
    env.submit("reader", &package, &flags);

    let log = env
        .paddlectl(&["logs", "--raw", "--role", "trainer", "reader"])
        .ok()
        .stdout;
    let mut read: Vec<&str> = log.lines().filter(|line| line.starts_with("read ")).collect();
    read.sort_unstable();
    assert_eq!(
        read,
        ["read 0 0 3 a", "read 0 0 3 d", "read 1 1 3 b", "read 2 2 3 c"]
    );
    let prefixes = log
        .lines()
        .filter(|line| *line == format!("python of {}", venv.display()))
        .count();
    assert_eq!(prefixes, 3, "`python` is the one the submitter sees:\n{log}");
    assert_eq!(env.status("reader"), "Succeeded");
}

/// Prints this trainer's number from the variable and from the file, the number of trainers, and its files.
const SHARE: &str = r#"
import os, sys

def read():
    me = int(os.environ["PADDLE_INIT_TRAINER_ID"])
    in_file = open("/trainer_id").read()[:-1]
    trainers = int(open("/trainer_count").read()[:-1])
    print("python of " + sys.prefix)
    for index, name in enumerate(sorted(os.listdir("data"))):
        if index % trainers == me:
            print("read", me, in_file, trainers, name)
"#;
