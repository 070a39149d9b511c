//! `paddle launch` without a server: the real program, on loopback, once for each worker.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A port that nobody listens on, and the next ones with some luck.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    // Below the ports that the kernel gives to connections.
    12_000 + listener.local_addr().expect("it is bound").port() % 10_000
}

fn paddle(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddle"));
    command
        .args(words)
        .current_dir(folder)
        .env_remove("PADDLECLOUD_ATTEMPT")
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn launch(folder: &Path, words: &[&str]) -> Child {
    let mut all = vec!["launch"];
    all.extend_from_slice(words);
    paddle(folder, &all).spawn().expect("it was built")
}

#[track_caller]
fn end(child: Child) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("it is a child");
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code(), text)
}

#[test]
fn a_job_assembles_trains_and_its_parameter_server_ends_after_the_trainers() {
    let folder = tempfile::tempdir().unwrap();
    let (port, server_port) = (free_port().to_string(), free_port().to_string());
    let common = |role: &'static str, index: &'static str| {
        vec![
            format!("--role={role}"),
            format!("--index={index}"),
            "--job=demo".to_owned(),
            "--trainers=127.0.0.1,127.0.0.1".to_owned(),
            "--pservers=127.0.0.1".to_owned(),
            format!("--launch-port={port}"),
            format!("--ps-port={server_port}"),
            "--ps-ports=2".to_owned(),
            "--linger=0s".to_owned(),
            "--".to_owned(),
        ]
    };
    let start = |flags: Vec<String>, command: &[&str]| {
        let words: Vec<&str> = flags
            .iter()
            .map(String::as_str)
            .chain(command.iter().copied())
            .collect();
        launch(folder.path(), &words)
    };
    let trainer = "echo trainer $TRAINER_ID of $TRAINERS on $PADDLE_INIT_PSERVERS; echo $JOB_NAME";
    let first = start(common("trainer", "0"), &[trainer]);
    let server = start(common("pserver", "0"), &[env!("CARGO_BIN_EXE_paddle"), "pserver"]);
    let second = start(common("trainer", "1"), &["sh", "-c", trainer]);
    for (index, child) in [(0, first), (1, second)] {
        let (code, text) = end(child);
        assert_eq!(code, Some(0), "{text}");
        let line = format!("trainer {index} of 2 on 127.0.0.1\ndemo\n");
        assert!(text.contains(&line), "{text}");
        assert!(
            text.contains("label selector: paddle-job-pserver=demo, desired: 1"),
            "{text}"
        );
        let copy = folder.path().join(format!("output/node_{index}/train.log"));
        assert!(std::fs::read_to_string(copy).unwrap().contains(&line));
    }
    let (code, text) = end(server);
    assert_eq!(code, Some(0), "{text}");
    let log = std::fs::read_to_string(folder.path().join("output/node_0/server.log")).unwrap();
    assert!(
        log.contains(&format!("listening on 127.0.0.1 ports {server_port}")),
        "{log}"
    );
}

#[test]
fn a_program_that_fails_is_explained_and_its_code_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = end(launch(folder.path(), &["--", "echo last words; kill -SEGV $$"]));
    assert_eq!(code, Some(139), "{text}");
    assert!(text.contains("last words"), "{text}");
    assert!(text.contains("segmentation fault"), "{text}");
    let (code, text) = end(launch(folder.path(), &["sh", "-c", "exit 7"]));
    assert_eq!(code, Some(7), "{text}");
}

#[test]
fn missing_peers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let port = format!("--launch-port={}", free_port());
    let words = [
        "--pservers=127.0.0.1",
        "--trainers=127.0.0.1",
        "--start-limit=1s",
        &port,
        "--",
        "true",
    ];
    let (code, text) = end(launch(folder.path(), &words));
    assert_eq!(code, Some(126), "{text}");
    assert!(
        text.contains("not all peers appeared within 1s; missing: pserver 0"),
        "{text}"
    );
}

#[test]
fn a_signal_reaches_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'echo told to stop; exit 5' TERM; touch begun; while true; do sleep 1 & wait $!; done";
    let child = launch(folder.path(), &["sh", "-c", script]);
    let started = folder.path().join("begun");
    wait_until("the program begins", || started.exists());
    // SAFETY: a plain signal to a child that has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let (code, text) = end(child);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("told to stop"), "{text}");
}

#[test]
fn under_a_supervisor_only_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "launch",
        "--trainers=nobody.invalid",
        "--",
        "echo",
        "just",
        "this",
    ];
    let mut command = paddle(folder.path(), &words);
    let child = command
        .env("PADDLECLOUD_ATTEMPT", "j_1.trainer-0.1")
        .spawn()
        .unwrap();
    assert_eq!(end(child), (Some(0), "just this\n".to_owned()));
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < limit, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
