//! Programs of 2017, submitted as the documents type it: `paddle.v2` programs and configurations of v1.
//!
//! They need PaddlePaddle, which is large: where it cannot be installed, these tests are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use e2e::TestEnvironment;

use crate::examples::root;

/// What the script answers where packages cannot be fetched.
const CANNOT_BE_HAD: i32 = 75;

fn environment_with_paddle() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| {
        let script = root().join("crates/py/tests/environment.sh");
        let made = Command::new("bash").arg(script).arg("paddle").output().unwrap();
        if made.status.code() == Some(CANNOT_BE_HAD) {
            eprintln!("skipped: PaddlePaddle cannot be installed here");
            return None;
        }
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end()))
    })
    .as_deref()
}

/// A user who has activated the environment.
fn user() -> Option<TestEnvironment> {
    let folder = environment_with_paddle()?;
    let mut env = TestEnvironment::new();
    env.search_first(folder.join("bin"));
    env.set("VIRTUAL_ENV", folder.to_str().unwrap());
    Some(env)
}

/// A copy of an example with its data, made by its own `prepare.py`.
fn prepared(env: &TestEnvironment, example: &str, words: &[&str]) -> PathBuf {
    let package = env.folder("package");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(format!("{}/.", root().join("examples").join(example).display()))
        .arg(&package)
        .status()
        .unwrap();
    assert!(copied.success());
    let made = Command::new(environment_with_paddle().unwrap().join("bin/python"))
        .arg("prepare.py")
        .args(words)
        .current_dir(&package)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    package
}

/// Submits a package with two trainers and two parameter servers, waits for its end and returns what its workers printed.
fn train(env: &TestEnvironment, job: &str, package: &Path, flags: &[&str]) -> String {
    let two_by_two = "-cpu 500m -gpu 0 -memory 1Gi -parallelism 2 -pscpu 250m -pservers 2 -psmemory 128Mi";
    let mut command = vec!["submit", "-jobname", job];
    command.extend(two_by_two.split(' '));
    command.extend(flags);
    command.push(package.to_str().unwrap());
    env.paddlectl(&command).ok();
    let ended = env.paddlectl(&["wait", job]);
    let log = env.paddlectl(&["logs", "--raw", job]).ok().stdout;
    assert_eq!(env.status(job), "Succeeded", "{ended:?}\n{log}");
    log
}

/// The last number behind a text.
fn last(log: &str, before: &str) -> f64 {
    let found = log.lines().filter_map(|line| line.split_once(before));
    let mut words = found.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    words
        .next_back()
        .unwrap_or_else(|| panic!("no `{before}` in:\n{log}"))
}

#[test]
fn a_v1_configuration_started_by_python_trains_with_sparse_ports() {
    let Some(env) = user() else { return };
    let package = prepared(&env, "v1/ctr", &[]);
    let log = train(
        &env,
        "ctr",
        &package,
        &["-passes", "15", "-entry", "python trainer_config.py"],
    );
    for told in [
        "version:  v1",
        "] commandline: ",
        "] The input order is [features, click]",
        "] The output order is [__cost_0__]",
        "] trainer mode: Normal",
        "] loading dataprovider dataprovider::process",
        "] Init parameters done.",
    ] {
        assert!(log.contains(told), "{told}:\n{log}");
    }
    for server in ["pserver 0 ", "pserver 1 "] {
        for port in [":7164", ":7165"] {
            let is_told = log
                .lines()
                .any(|line| line.contains(server) && line.ends_with(port));
            assert!(is_told, "{server}…{port}:\n{log}");
        }
    }
    assert!(last(&log, " cost=") < 0.6, "{log}");
}

#[test]
fn bare_paddle_train_and_a_topology_read_the_same_configuration() {
    let Some(env) = user() else { return };
    let package = prepared(&env, "v1/quick_start", &["2"]);
    for (job, flags) in [
        ("bare", &["-passes", "4"][..]),
        ("topology", &["-passes", "4", "-topology", "trainer_config.py"]),
    ] {
        let log = train(&env, job, &package, flags);
        assert!(log.contains("version:  v1"), "{log}");
        assert!(last(&log, "Test samples=800 cost=") < 0.1, "{log}");
    }
}

#[test]
fn a_v2_program_trains_on_two_trainers_and_two_servers() {
    let Some(env) = user() else { return };
    let package = prepared(&env, "v2/fit_a_line", &["data"]);
    let entry = "env DATA_HOME=data python train.py";
    let log = train(&env, "fit-a-line", &package, &["-passes", "30", "-entry", entry]);
    assert!(log.contains("version:  v2"), "{log}");
    assert!(
        log.contains("] The output order is [__square_error_cost_0__]"),
        "{log}"
    );
    assert!(last(&log, "test cost ") < 5.0, "{log}");
}
