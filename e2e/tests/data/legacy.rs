//! Programs from 2017, submitted as the documents type it: `paddle.v2` programs and configurations of v1.
//!
//! They need PaddlePaddle, which is large.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use e2e::TestEnvironment;

use crate::examples::{make_virtual_environment, root};

/// How long a job may take. Starting PaddlePaddle alone takes seconds of a core, which others may be using.
pub const LIMIT: Duration = Duration::from_secs(300);

pub fn environment_with_paddle() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| make_virtual_environment("paddle"))
}

/// A user who has activated the environment.
fn user_with_paddle() -> TestEnvironment {
    activated(TestEnvironment::new)
}

/// The environment of a user, with PaddlePaddle.
pub fn activated(user: impl FnOnce() -> TestEnvironment) -> TestEnvironment {
    let folder = environment_with_paddle();
    let mut env = user();
    env.search_first(folder.join("bin"));
    env.set("VIRTUAL_ENV", folder.to_str().unwrap());
    env
}

/// A copy of an example with its data.
struct Package {
    folder: PathBuf,
    /// What its own `prepare.py` printed.
    printed: String,
}

impl Package {
    fn prepared(env: &TestEnvironment, example: &str, words: &[&str]) -> Package {
        let folder = env.folder("package");
        let copied = Command::new("cp")
            .arg("-r")
            .arg(format!("{}/.", root().join("examples").join(example).display()))
            .arg(&folder)
            .status()
            .unwrap();
        assert!(copied.success());
        let made = Command::new(environment_with_paddle().join("bin/python"))
            .arg("prepare.py")
            .args(words)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let printed = String::from_utf8(made.stdout).unwrap();
        Package { folder, printed }
    }

    /// Submits it with two trainers and two parameter servers, waits for its end and returns what its workers printed.
    fn train(&self, env: &TestEnvironment, job: &str, flags: &[&str]) -> String {
        let two_by_two =
            "-cpu 900m -gpu 0 -memory 1Gi -parallelism 2 -pscpu 100m -pservers 2 -psmemory 128Mi";
        let flags = [&two_by_two.split(' ').collect::<Vec<_>>(), flags].concat();
        run(env, job, &flags, self.folder.to_str().unwrap())
    }

    /// Submits a program of v2 that reads its data from the package.
    fn train_v2(&self, env: &TestEnvironment, job: &str, passes: &str, words: &str) -> String {
        let entry = format!("env DATA_HOME=data python train.py {words}");
        self.train(env, job, &["-passes", passes, "-entry", entry.trim_end()])
    }

    /// Submits a program of v2 to one trainer, without parameter servers.
    fn train_alone(&self, env: &TestEnvironment, job: &str, passes: &str, words: &str) -> String {
        let entry = format!("env DATA_HOME=data python train.py {words}");
        run(
            env,
            job,
            &[&ALONE[..], &["-passes", passes, "-entry", entry.trim_end()]].concat(),
            self.folder.to_str().unwrap(),
        )
    }
}

const ALONE: [&str; 8] = [
    "-cpu",
    "1",
    "-memory",
    "1Gi",
    "-parallelism",
    "1",
    "-pservers",
    "0",
];

/// Submits a package, which must succeed, and returns what its workers printed.
fn run(env: &TestEnvironment, job: &str, flags: &[&str], package: &str) -> String {
    let command = [&["submit", "-jobname", job], flags, &[package]].concat();
    env.paddlectl(&command).ok();
    let ended = env.start(&["wait", job]).end_within(LIMIT);
    let log = env.paddlectl(&["logs", "--raw", job]).ok().stdout;
    assert_eq!(env.status(job), "Succeeded", "{ended:?}\n{log}");
    log
}

/// The last number behind a text.
fn last(log: &str, before: &str) -> f64 {
    *all(log, before).last().unwrap()
}

/// The smallest number behind a text.
fn least(log: &str, before: &str) -> f64 {
    all(log, before).into_iter().fold(f64::INFINITY, f64::min)
}

fn all(log: &str, before: &str) -> Vec<f64> {
    let found = log.lines().filter_map(|line| line.split_once(before));
    let words = found.filter_map(|(_, rest)| {
        rest.split([' ', ',', '\t'])
            .next()?
            .trim_end_matches('.')
            .parse()
            .ok()
    });
    let numbers: Vec<f64> = words.collect();
    assert!(!numbers.is_empty(), "no `{before}` in:\n{log}");
    numbers
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn a_v1_configuration_started_by_python_trains_with_sparse_ports() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v1/ctr", &[]);
    let best = last(&package.printed, "best possible cost is ");
    let log = package.train(
        &env,
        "ctr",
        &["-passes", "25", "-entry", "python trainer_config.py"],
    );
    for expected in [
        "version:  v1",
        "] commandline: ",
        "] The input order is [features, click]",
        "] The output order is [__cost_0__]",
        "] trainer mode: Normal",
        "] loading dataprovider dataprovider::process",
        "] Init parameters done.",
    ] {
        assert!(log.contains(expected), "{expected}:\n{log}");
    }
    for server in ["pserver 0 ", "pserver 1 "] {
        for port in [":7164", ":7165"] {
            let is_logged = log
                .lines()
                .any(|line| line.contains(server) && line.ends_with(port));
            assert!(is_logged, "{server}…{port}:\n{log}");
        }
    }
    // A sum over single ids stays at log 2 = 0.69.
    assert!(least(&log, " cost=") < best + 0.1, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn bare_paddle_train_and_a_topology_read_the_same_configuration() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v1/quick_start", &["2"]);
    for (job, flags) in [
        ("bare", &["-passes", "4"][..]),
        ("topology", &["-passes", "4", "-topology", "trainer_config.py"]),
    ] {
        let log = package.train(&env, job, flags);
        assert!(log.contains("version:  v1"), "{log}");
        assert!(last(&log, "Test samples=800 cost=") < 0.1, "{log}");
    }
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn the_recommendation_of_v1_is_as_good_as_its_noise_allows() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v1/recommendation", &["2"]);
    let best = last(&package.printed, "squared error of ");
    let log = package.train(&env, "recommendation", &["-passes", "8"]);
    for expected in [
        "] The input order is [movie_id, title, genres, user_id, gender, age, occupation, rating]",
        "] The output order is [__square_error_cost_0__]",
    ] {
        assert!(log.contains(expected), "{expected}:\n{log}");
    }
    assert!(least(&log, "Test samples=600 cost=") < 1.3 * best, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn a_v2_program_trains_on_two_trainers_and_two_servers() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/fit_a_line", &["data"]);
    let log = package.train_v2(&env, "fit-a-line", "30", "");
    assert!(log.contains("version:  v2"), "{log}");
    assert!(
        log.contains("] The output order is [__square_error_cost_0__]"),
        "{log}"
    );
    assert!(last(&log, "test cost ") < 5.0, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn word2vec_uses_both_preceding_words() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/word2vec", &["data"]);
    let entropy = last(&package.printed, "a word has ");
    let log = package.train_v2(&env, "word2vec", "6", "");
    // Without both words before it a word's class is open, which costs log 5 = 1.6 nats more.
    assert!(last(&log, "test cost ") < entropy + 0.3, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn digits_are_recognized() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/recognize_digits", &["data"]);
    // Two trainers take half as many steps in a pass, and end at 3 to 5 %.
    let log = package.train_alone(&env, "digits", "10", "");
    assert!(last(&log, " error ") <= 0.04, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn both_sentiment_networks_beat_a_bag_of_words() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/understand_sentiment", &["data"]);
    for network in ["conv", "lstm"] {
        let log = package.train_v2(&env, network, "4", network);
        assert!(last(&log, " error ") < 0.02, "{log}");
    }
    let log = package.train_alone(&env, "bag", "2", "bag");
    assert!(last(&log, " error ") > 0.4, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn a_crf_is_better_than_a_softmax() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/label_semantic_roles", &["data"]);
    let log = package.train_v2(&env, "crf", "6", "");
    assert!(last(&log, " error ") < 0.03, "{log}");
    let log = package.train_alone(&env, "softmax", "3", "softmax");
    assert!(last(&log, " error ") > 0.2, "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn ratings_are_predicted_as_well_as_the_noise_allows() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/recommender_system", &["data"]);
    let best = last(&package.printed, "squared error of ");
    let log = package.train_v2(&env, "films", "10", "");
    assert!(least(&log, "test cost ") < 1.25 * best, "{log}");
    assert!(log.contains("user 23 will rate `"), "{log}");
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn both_image_networks_classify_directions() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/image_classification", &["data"]);
    for network in ["vgg", "resnet"] {
        let log = package.train_alone(&env, network, "4", network);
        assert!(least(&log, " error ") < 0.1, "{log}");
    }
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn translations_are_right() {
    let env = user_with_paddle();
    let package = Package::prepared(&env, "v2/machine_translation", &["data"]);
    let entry = "bash -c \"export DATA_HOME=data; python train.py && python train.py generate\"";
    let flags = [&ALONE[..], &["-passes", "5", "-entry", entry]].concat();
    let log = run(&env, "translation", &flags, package.folder.to_str().unwrap());
    let right = log
        .lines()
        .find_map(|line| line.strip_suffix(" of 100 translations are right"));
    assert!(right.unwrap().parse::<u32>().unwrap() >= 90, "{log}");
}
