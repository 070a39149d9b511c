//! Control characters in whatever a server replies: none reaches a terminal, all reach a pipe.

use serde_json::Value;

use crate::scripted::{server_with, usual};
use crate::shell::Shell;

/// Fields that a client parses; the others are free text.
const PARSED: [&str; 14] = [
    "status",
    "started",
    "submitted",
    "completed",
    "estimate",
    "created",
    "expires",
    "ended",
    "at",
    "role",
    "engine",
    "version",
    "scopes",
    "error",
];

/// A line for each command that shows what the server replies.
const LINES: [&str; 36] = [
    "get jobs",
    "get jobs -a -o wide",
    "get jobs -o name",
    "get jobs -o json",
    "get jobs -o yaml",
    "get workers paddle-cluster-job",
    "get workers paddle-cluster-job -o wide",
    "get quota",
    "get registry",
    "jobs",
    "describe last",
    "describe last -o json",
    "describe last --objects",
    "why paddle-cluster-job",
    "wait paddle-cluster-job",
    "rerun -",
    "submit -entry true -dry-run /pfs/dc1/home/me/pkg",
    "kill paddle-cluster-job",
    "output paddle-cluster-job",
    "registry -name mine -server s -username u -password p",
    "delete registry",
    "server status",
    "top",
    "logs",
    "logs -f -timestamps",
    "prune --all --dry-run",
    "whoami",
    "secret list",
    "token create ci",
    "token list",
    "admin user list",
    "admin user show ann",
    "admin group list",
    "admin audit",
    "admin audit --verify",
    "stat /pfs/dc1/home/me/x",
];

/// The other commands, and why no line is needed.
const WITHOUT_A_LINE: [(&[&str], &str); 4] = [
    (
        &[
            "check", "cp", "du", "file", "ls", "mkdir", "mv", "pfs", "publish", "rm", "sync",
        ],
        "end-to-end tests send names of files with all these characters through them (`files/terminal.rs`)",
    ),
    (&["cat"], "prints the bytes of files, as cat(1) does"),
    (
        &[
            "commands",
            "completion",
            "config",
            "data",
            "doctor",
            "flags",
            "help",
            "pserver",
            "version",
        ],
        "print what is on the caller's own machine",
    ),
    (
        &["cert", "login", "logout", "passwd"],
        "print only what the caller typed, and errors, which all commands print alike",
    ),
];

/// C0 except the end of a line, DEL, C1, and what changes the direction of text.
fn controls() -> Vec<char> {
    let bidirectional =
        "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
    let all = ('\0'..='\u{1f}')
        .chain('\u{7f}'..='\u{9f}')
        .chain(bidirectional.chars());
    all.filter(|c| !matches!(c, '\n' | '\t')).collect()
}

fn poisoned(value: &mut Value, poison: &str) {
    match value {
        Value::String(text) => text.push_str(poison),
        Value::Array(items) => items.iter_mut().for_each(|item| poisoned(item, poison)),
        Value::Object(fields) => {
            let free = fields
                .iter_mut()
                .filter(|(name, _)| !PARSED.contains(&name.as_str()));
            free.for_each(|(_, value)| poisoned(value, poison));
        }
        _ => {}
    }
}

/// The usual reply with these characters at the end of every text.
fn reply(line: &str, poison: &str) -> Option<(u16, String)> {
    let (status, body) = usual(line);
    let mut value: Value = serde_json::from_slice(&body).ok()?;
    poisoned(&mut value, poison);
    Some((status, value.to_string()))
}

/// The text without the colours that the program itself adds.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix('m') {
            Some(rest) => kept + rest,
            None => kept + "\x1b[" + part,
        }
    })
}

#[test]
fn no_command_prints_what_controls_a_terminal() {
    let poison: String = controls().into_iter().collect();
    let sent = poison.clone();
    let server = server_with(move |line| reply(line, &sent));
    let mut shell = Shell::at(&server.endpoint);
    shell.is_terminal = true;
    let mut escaped = 0;
    for line in LINES {
        let outcome = shell.line(line);
        for text in [&outcome.out, &outcome.err].map(|text| without_colours(text)) {
            let raw = text.chars().find(|c| poison.contains(*c));
            assert_eq!(raw, None, "{line}: {text:?}");
            escaped += u32::from(text.contains("\\u202e"));
        }
    }
    assert!(escaped >= 20, "only {escaped} outputs have it escaped");
}

#[test]
fn every_command_is_tested_for_what_controls_a_terminal() {
    let server = server_with(|_| None);
    let outcome = Shell::at(&server.endpoint).line("commands");
    let tested = |name: &str| LINES.iter().any(|line| line.split(' ').next() == Some(name));
    let exempt = |name: &str| WITHOUT_A_LINE.iter().any(|(names, _)| names.contains(&name));
    let names: Vec<&str> = outcome
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 30, "{outcome:?}");
    for name in names {
        assert!(
            tested(name) != exempt(name),
            "`{name}` needs a line, or a reason to have none"
        );
    }
}

#[test]
fn values_of_several_lines_forge_no_row() {
    let server = server_with(|line| {
        let (status, body) = usual(line);
        let mut value: Value = serde_json::from_slice(&body).ok()?;
        let job = value.get_mut("msg")?.get_mut("job")?;
        job["entry"] = "a\nstatus       Succeeded".into();
        job["comment"] = "b\nname         other".into();
        Some((status, value.to_string()))
    });
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("describe last");
    let rows = |name: &str| outcome.out.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((rows("status "), rows("name ")), (1, 1), "{outcome:?}");
    assert!(
        outcome
            .out
            .contains("entry        a\n             status       Succeeded\n"),
        "{outcome:?}"
    );
}

#[test]
fn a_pipe_gets_texts_unchanged() {
    let server = server_with(|line| reply(line, "\x1b[2J\u{202e}"));
    let shell = Shell::at(&server.endpoint);
    for line in ["get jobs", "describe last", "why paddle-cluster-job"] {
        let outcome = shell.line(line);
        assert!(outcome.out.contains("\x1b[2J\u{202e}"), "{line}: {outcome:?}");
    }
}
