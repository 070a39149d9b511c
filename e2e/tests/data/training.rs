//! Packages that train with our parameter server, submitted as their READMEs say.

use std::process::Command;

use e2e::TestEnvironment;

use crate::examples::{make_virtual_environment, root, user, user_of, virtual_environment};

/// Runs the Python that the trainers run.
fn python(args: &[&str]) -> String {
    let program = virtual_environment().join("bin/python");
    let ran = Command::new(program).args(args).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Submits an example, follows it to its end and returns what its workers printed.
fn train(env: &TestEnvironment, job: &str, example: &str, flags: &[&str]) -> String {
    let package = root().join("examples").join(example);
    let workers = ["-cpu", "500m", "-pscpu", "250m", "-psmemory", "128Mi"];
    let memory: &[&str] = match flags.contains(&"-memory") {
        true => &[],
        false => &["-memory", "512Mi"],
    };
    let command = [&["submit", "-jobname", job], &workers[..], memory, flags].concat();
    let submitted = env.paddlectl(&[&command[..], &[package.to_str().unwrap()]].concat());
    submitted.ok();
    let ended = env.paddlectl(&["wait", job]);
    let log = env.paddlectl(&["logs", "--raw", job]).ok().stdout;
    assert_eq!(env.status(job), "Succeeded", "{ended:?}\n{log}");
    log
}

/// The losses trainers printed at a batch, as `pass 0 batch  25 loss 0.5`.
fn losses(log: &str, at: &str) -> Vec<f64> {
    log.lines()
        .filter_map(|line| line.strip_prefix(at)?.trim().parse().ok())
        .collect()
}

#[test]
#[ignore = "needs Python packages"]
fn fit_a_line_trains_and_its_model_predicts() {
    let env = user();
    let flags = [
        "-parallelism",
        "2",
        "-pservers",
        "2",
        "-passes",
        "2",
        "-entry",
        "python train.py",
    ];
    let log = train(&env, "fit-a-line", "fit_a_line", &flags);
    let (first, last) = (
        losses(&log, "pass 0 batch   0 loss "),
        losses(&log, "pass 1 batch 125 loss "),
    );
    assert_eq!((first.len(), last.len()), (2, 2), "{log}");
    assert!(
        first.iter().all(|loss| *loss > 1.0) && last.iter().all(|loss| *loss < 0.01),
        "{log}"
    );
    assert!(log.contains("saved output/pass-00001"), "{log}");

    let here = env.folder("models");
    env.paddlectl(&["output", "fit-a-line", here.to_str().unwrap()])
        .ok();
    let predict = root().join("examples/fit_a_line/predict.py");
    let model = here.join("pass-00001");
    let y = python(&[
        predict.to_str().unwrap(),
        model.to_str().unwrap(),
        "1",
        "0",
        "0",
        "1",
    ]);
    let y: f64 = y.trim().parse().unwrap();
    assert!((y - (2.0 + 1.5 + 4.2)).abs() < 0.1, "{y}");
}

#[test]
#[ignore = "needs Python packages"]
fn ctr_comes_close_to_the_model_that_generated_its_clicks() {
    let env = user();
    let me = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
    let data = format!("{}/clicks", me["home"].as_str().unwrap());
    let (prepare, learn) = (
        format!("python prepare.py {data}"),
        format!("python train.py {data}"),
    );
    train(&env, "clicks", "ctr", &["-pservers", "0", "-entry", &prepare]);
    let log = train(
        &env,
        "ctr",
        "ctr",
        &["-parallelism", "2", "-pservers", "2", "-entry", &learn],
    );
    assert!(log.lines().any(|line| line.starts_with("auc 0.")), "{log}");
    assert!(log.contains("saved output/pass-00000"), "{log}");
}

#[test]
#[ignore = "needs Python packages"]
fn word2vec_learns_more_than_frequencies() {
    let env = user();
    let log = train(
        &env,
        "word2vec",
        "word2vec",
        &["-parallelism", "2", "-pservers", "2", "-entry", "python train.py"],
    );
    assert!(
        log.lines().any(|line| line.starts_with("held-out loss ")),
        "{log}"
    );
}

/// A user with PaddlePaddle beside the wheel.
fn user_of_paddle() -> TestEnvironment {
    user_of(&make_virtual_environment("paddle"))
}

/// The held-out losses the trainers printed.
fn held_out(log: &str) -> Vec<f64> {
    let words = log.lines().filter_map(|line| line.split_once("held-out loss "));
    words.map(|(_, loss)| loss.trim().parse().unwrap()).collect()
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn paddle_trains_with_our_parameter_servers_and_without_any() {
    let env = user_of_paddle();
    let train = |job, example, pservers| {
        let flags = [
            "-parallelism",
            "2",
            "-pservers",
            pservers,
            "-memory",
            "2Gi",
            "-entry",
            "python train.py",
        ];
        let losses = held_out(&train(&env, job, example, &flags));
        assert_eq!(losses.len(), 2);
        assert!(losses.iter().all(|loss| *loss < 0.02), "{losses:?}");
    };
    train("paddle3-ps", "paddle3_ps", "2");
    train("collective", "paddle3_collective", "0");
}

#[test]
#[ignore = "needs torch"]
fn torch_trains_with_its_own_collectives() {
    let env = TestEnvironment::new();
    let flags = [
        "-parallelism",
        "2",
        "-pservers",
        "0",
        "-memory",
        "1Gi",
        "-entry",
        "/usr/bin/python3 train.py",
    ];
    let losses = held_out(&train(&env, "torch-ddp", "torch_ddp", &flags));
    assert_eq!(losses.len(), 2);
    assert!(losses.iter().all(|loss| *loss < 0.02), "{losses:?}");
}

/// Asks for more rows than a parameter server has memory for, and trains with fewer.
const TOO_LARGE: &str = r#"
import numpy as np
from paddlecloud import ps

session = ps.connect()
session.table("huge", 1024, ps.Adagrad(0.1))
try:
    session.lookup("huge", np.arange(200_000))
except ps.OutOfMemory as error:
    print("refused:", error, flush=True)
print("rows", session.lookup("huge", np.arange(100)).shape, flush=True)
"#;

#[test]
#[ignore = "needs Python packages"]
fn rows_beyond_the_memory_of_a_server_are_refused_by_the_name_of_the_table() {
    let env = user();
    let package = env.package("too-large").file("train.py", TOO_LARGE);
    let sizes = [
        "-cpu",
        "500m",
        "-memory",
        "2Gi",
        "-pscpu",
        "250m",
        "-psmemory",
        "128Mi",
    ];
    let command = ["submit", "-jobname", "too-large", "-entry", "python train.py"];
    env.paddlectl(&[&command[..], &sizes, &[package.arg()]].concat())
        .ok();
    let ended = env.paddlectl(&["wait", "too-large"]);
    let log = env.paddlectl(&["logs", "--raw", "too-large"]).ok().stdout;
    assert_eq!(env.status("too-large"), "Succeeded", "{ended:?}\n{log}");
    let refused = log.lines().find_map(|line| line.strip_prefix("refused: "));
    assert!(
        refused.is_some_and(|message| message.starts_with("`huge` needs ")),
        "{log}"
    );
    assert!(log.contains("rows (100, 1024)"), "{log}");
}

#[test]
#[ignore = "needs Python packages"]
fn the_secret_of_a_run_is_shown_nowhere() {
    let env = user();
    let print = "python -c \"import os; print('digest', __import__('hashlib').sha256(os.environ['PADDLE_PS_SECRET'].encode()).hexdigest())\"";
    let log = train(&env, "hush", "fit_a_line", &["-pservers", "1", "-entry", print]);
    let digest = log
        .lines()
        .find_map(|line| line.strip_prefix("digest "))
        .unwrap()
        .to_owned();
    let shown = [
        env.paddlectl(&["describe", "hush"]).ok().stdout,
        env.paddlectl(&["get", "jobs", "-a", "-o", "json"]).ok().stdout,
        env.paddlectl(&["get", "workers", "hush", "-o", "json"])
            .ok()
            .stdout,
        env.paddlectl(&["logs", "hush"]).ok().stdout,
    ];
    // The secret has 64 hexadecimal digits: none of those that are shown is it.
    let check = "import hashlib, re, sys\nfound = re.findall('[0-9a-f]{64}', sys.argv[1])\nprint(any(hashlib.sha256(word.encode()).hexdigest() == sys.argv[2] for word in found))";
    for text in shown {
        assert_eq!(python(&["-c", check, &text, &digest]).trim(), "False", "{text}");
    }
}
