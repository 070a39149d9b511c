//! `cargo xtask bench jobs`: the shipped programs with their defaults, measured as a user meets them.
//!
//! Prints one row per figure beside what is to be reached. It asserts nothing: figures belong to a machine.
#![cfg(target_os = "linux")]

mod followers;
mod logs;
mod process;
mod queue;
mod rest;
mod start;

use e2e::TestEnvironment;

/// One figure.
pub struct Row {
    pub what: String,
    pub measured: String,
    pub to_reach: &'static str,
}

impl Row {
    pub fn new(what: impl Into<String>, measured: impl Into<String>, to_reach: &'static str) -> Self {
        Self {
            what: what.into(),
            measured: measured.into(),
            to_reach,
        }
    }
}

/// A group of figures that share a server.
type Group = fn(&TestEnvironment, usize) -> Vec<Row>;

const GROUPS: &[(&str, Group)] = &[
    ("start", |env, _| start::measure(env)),
    ("logs", |env, _| logs::measure(env)),
    ("followers", |env, _| followers::measure(env)),
    ("queue", queue::measure),
];

const HELP: &str = "\
Usage: cargo xtask bench jobs [--jobs N] [start|logs|followers|queue]...

  --jobs N   how many jobs to submit, and then to have in the history (default 20000)
";

fn main() {
    let Some((jobs, wanted)) = arguments() else {
        print!("{HELP}");
        return;
    };
    println!("{:<58} {:>26}   to reach", "what", "measured");
    for (name, group) in GROUPS {
        if wanted.is_empty() || wanted.iter().any(|want| want == name) {
            // A home and a server of its own, so that one group does not burden the next.
            let env = TestEnvironment::new();
            for row in group(&env, jobs) {
                println!("{:<58} {:>26}   {}", row.what, row.measured, row.to_reach);
            }
        }
    }
}

/// The number of jobs and the groups asked for; `None` when the line makes no sense.
fn arguments() -> Option<(usize, Vec<String>)> {
    let (mut jobs, mut wanted) = (20_000, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--jobs" => jobs = args.next()?.parse().ok()?,
            name if GROUPS.iter().any(|(known, _)| *known == name) => wanted.push(arg),
            _ => return None,
        }
    }
    Some((jobs, wanted))
}
