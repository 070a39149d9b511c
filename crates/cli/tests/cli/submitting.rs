//! The way of a package: collected, compared, sent, started.

use crate::scripted::{server, server_with};
use crate::shell::Shell;

fn shell_with_package(endpoint: &str) -> (Shell, String) {
    let shell = Shell::at(endpoint);
    shell.write("word_emb/train.py", "print('hello')");
    shell.write("word_emb/data/big.bin", &"x".repeat(11_000_000));
    shell.write("word_emb/.gitignore", "*.pyc\n");
    shell.write("word_emb/train.pyc", "left out");
    let folder = shell.home().join("word_emb").to_str().unwrap().to_owned();
    (shell, folder)
}

#[test]
fn a_submit_says_what_it_does_and_what_to_type_next() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    let words = [
        "submit",
        "-p",
        "2",
        "-pservers",
        "1",
        "-jobname",
        "w",
        &folder,
        "--",
        "python",
        "train.py",
        "--lr",
        "a b",
    ];
    let outcome = shell.run(&words);
    insta::assert_snapshot!("submit", outcome.story(&shell));
    let body: serde_json::Value = serde_json::from_slice(&server.bodies("POST /api/v1/jobs")[0]).unwrap();
    assert_eq!(body["entry"], "python train.py --lr 'a b'");
    assert!(
        body.get("shell_env").is_none(),
        "a remote server gets nothing of the shell"
    );
}

#[test]
fn only_what_the_server_lacks_travels() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    assert_eq!(
        shell.run(&["submit", &folder, "-entry", "python train.py"]).code,
        0
    );
    let puts = server.bodies("PUT /api/v1/packages/");
    assert_eq!(puts.len(), 1);
    assert!(
        puts[0].len() < 10_000,
        "no file was missing, {} bytes were sent",
        puts[0].len()
    );
}

#[test]
fn a_package_the_server_has_is_not_sent_at_all() {
    let server = server_with(|line| line.starts_with("HEAD ").then(|| (200, String::new())));
    let (shell, folder) = shell_with_package(&server.endpoint);
    assert_eq!(
        shell.run(&["submit", &folder, "-entry", "python train.py"]).code,
        0
    );
    let methods: Vec<String> = server
        .lines()
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(methods, ["HEAD", "POST"]);
}

#[test]
fn the_job_is_data_only_when_asked_for() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let line = "submit /pfs/dc1/home/me/pkg";
    assert_eq!(shell.line(line).out, "");
    assert_eq!(shell.line(&format!("{line} -o name")).out, "paddle-cluster-job\n");
    let json: serde_json::Value = serde_json::from_str(&shell.line(&format!("{line} -o json")).out).unwrap();
    assert_eq!(json["id"], "j_01jd2m3n4p5q6r");
}

#[test]
fn a_followed_submit_ends_as_the_job_does() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("submit -f /pfs/dc1/home/me/pkg");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.out.contains("trainer-0 | pass 0, cost 1.5\n"),
        "{}",
        outcome.out
    );
}

#[test]
fn a_dry_run_uploads_nothing() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    assert_eq!(
        shell
            .run(&["submit", "--dry-run", &folder, "-entry", "python train.py"])
            .code,
        0
    );
    let bodies = server.bodies("POST /api/v1/jobs");
    let body: serde_json::Value = serde_json::from_slice(&bodies[0]).unwrap();
    assert_eq!(body["dry_run"], true);
    assert_eq!(server.lines().len(), 1);
}
