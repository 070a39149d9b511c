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

const LINES: [&str; 24] = [
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
    "why paddle-cluster-job",
    "wait paddle-cluster-job",
    "rerun -",
    "logs",
    "logs -f -timestamps",
    "prune --all --dry-run",
    "whoami",
    "secret list",
    "token create ci",
    "admin user list",
    "admin audit --verify",
    "stat /pfs/dc1/home/me/x",
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
fn a_pipe_gets_texts_unchanged() {
    let server = server_with(|line| reply(line, "\x1b[2J\u{202e}"));
    let shell = Shell::at(&server.endpoint);
    for line in ["get jobs", "describe last", "why paddle-cluster-job"] {
        let outcome = shell.line(line);
        assert!(outcome.out.contains("\x1b[2J\u{202e}"), "{line}: {outcome:?}");
    }
}
