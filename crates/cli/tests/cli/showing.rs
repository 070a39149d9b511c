//! Tables, logs and stories, as programs and as people get them.

use crate::scripted::server;
use crate::shell::Shell;

const LINES: &[&str] = &[
    "get jobs",
    "get jobs -a",
    "get jobs -o wide",
    "get jobs -o name",
    "get workers paddle-cluster-job",
    "get workers paddle-cluster-job -o wide -role trainer",
    "get quota",
    "jobs",
    "logs",
    "logs -raw",
    "logs -f -timestamps",
    "kill paddle-cluster-job",
    "describe last",
    "why paddle-cluster-job",
    "wait paddle-cluster-job",
    "rerun -",
    "prune -older-than 7d",
    "prune --dry-run",
    "whoami",
];

#[test]
fn what_programs_get_is_separated_by_tabs() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let stories: Vec<String> = LINES
        .iter()
        .map(|line| format!("$ {line}\n{}", shell.line(line).story(&shell)))
        .collect();
    insta::assert_snapshot!("tables", stories.join("\n"));
}

#[test]
fn what_people_get_is_aligned_and_coloured() {
    let server = server();
    let mut shell = Shell::at(&server.endpoint);
    shell.is_terminal = true;
    let shown: Vec<String> = ["get jobs -a", "get workers x", "jobs", "logs"]
        .iter()
        .map(|line| format!("$ {line}\n{}", shell.line(line).out.replace('\x1b', "ESC")))
        .collect();
    insta::assert_snapshot!("terminal", shown.join("\n"));
}

#[test]
fn json_and_yaml_carry_the_same_data() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    for line in [
        "get jobs",
        "get workers",
        "get quota",
        "jobs",
        "describe",
        "why",
        "whoami",
    ] {
        let json: serde_json::Value =
            serde_json::from_str(&shell.line(&format!("{line} -o json")).out).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&shell.line(&format!("{line} -o yaml")).out).unwrap();
        assert_eq!(json, yaml, "{line}");
    }
}

#[test]
fn a_followed_job_that_failed_ends_with_1() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("logs -f");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.contains("Failed: trainer 0 ended with 1"),
        "{}",
        outcome.err
    );
    assert_eq!(shell.line("logs").code, 0);
}

#[test]
fn pages_follow_each_other_and_numbers_go_on() {
    let server = crate::scripted::server_with(|line| {
        let jobs = serde_json::json!([
            crate::scripted::job("a", "Running"),
            crate::scripted::job("b", "Running")
        ]);
        let next = if line.contains("after=p2") {
            None
        } else {
            Some("p2")
        };
        line.starts_with("GET /api/v1/jobs?").then(|| {
            (
                200,
                serde_json::json!({ "code": 200, "msg": jobs, "next": next }).to_string(),
            )
        })
    });
    let shell = Shell::at(&server.endpoint);
    let rows: Vec<String> = shell
        .line("get jobs -a")
        .out
        .lines()
        .map(|row| row.chars().take(3).collect())
        .collect();
    assert_eq!(rows, ["NUM", "0\ta", "1\tb", "2\ta", "3\tb"]);
    assert_eq!(shell.line("get jobs -limit 2").out.lines().count(), 3);
}
