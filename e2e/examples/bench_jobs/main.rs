//! `cargo xtask bench jobs`: the released programs with their defaults, measured from a user's point of view.
//!
//! Prints one row per figure, with the target. It asserts nothing: figures belong to a machine.
#![cfg(target_os = "linux")]

mod followers;
mod logs;
mod peers;
mod process;
mod queue;
mod rest;
mod start;
mod table;

use e2e::TestEnvironment;
use peers::Peers;
use table::Row;

/// A group of figures that share a server.
type Group = fn(&TestEnvironment, usize) -> Vec<Row>;

const GROUPS: &[(&str, Group)] = &[
    ("start", |env, _| start::measure(env)),
    ("logs", |env, _| logs::measure(env)),
    ("followers", |env, _| followers::measure(env)),
    ("queue", queue::measure),
];

const HELP: &str = "\
Usage: cargo xtask bench jobs [--jobs N] [--peers] [start|logs|followers|queue]...

  --jobs N   how many jobs to submit, and then to have in the history (default 20000)
  --peers    measure kubectl, HyperQueue and Ray beside; installs them into target/bench-peers, and
             needs root, because their servers get a network of their own
";

fn main() {
    let Some(arguments) = Arguments::read() else {
        print!("{HELP}");
        return;
    };
    let peers = arguments.peers.then(Peers::install);
    table::print_head();
    for (name, group) in GROUPS.iter().filter(|(name, _)| arguments.wants(name)) {
        let rows = {
            // A home and a server of its own, so that one group does not burden the next.
            let env = TestEnvironment::new();
            group(&env, arguments.jobs)
        };
        // Ours is gone by now, so neither burdens the other either.
        let peer_figures = peers
            .as_ref()
            .map(|peers| peers.figures_for(name, arguments.jobs))
            .unwrap_or_default();
        rows.iter().for_each(|row| row.print(&peer_figures));
    }
}

struct Arguments {
    jobs: usize,
    peers: bool,
    groups: Vec<String>,
}

impl Arguments {
    /// `None` when the line makes no sense.
    fn read() -> Option<Self> {
        let mut read = Self {
            jobs: 20_000,
            peers: false,
            groups: Vec::new(),
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--jobs" => read.jobs = args.next()?.parse().ok()?,
                "--peers" => read.peers = true,
                name if GROUPS.iter().any(|(known, _)| *known == name) => read.groups.push(arg),
                _ => return None,
            }
        }
        Some(read)
    }

    fn wants(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|wanted| wanted == group)
    }
}
