//! `cargo xtask bench k8s`: the Kubernetes engine compared with `kubectl` on a real cluster, whose pods run on this machine.
//!
//! `many` and `single` simulate their nodes with kwok. Contenders take turns, so that a busy minute affects all of them. It asserts nothing about speed: figures belong to
//! a machine.
#![cfg(target_os = "linux")]

mod calls;
mod figures;
mod flood;
mod gang;
mod lag;
mod many;
mod pod_watch;
mod processes;
mod rest;
mod site;

use e2e::cluster::Cluster;
use figures::Row;

/// A group of figures that share a server.
type Group = fn(&Cluster, &Arguments) -> Vec<Row>;

const GROUPS: &[(&str, Group)] = &[
    ("start", |cluster, args| gang::measure(cluster, args.rounds)),
    ("calls", |cluster, _| calls::measure(cluster)),
    ("lag", |cluster, args| lag::measure(cluster, args.rounds)),
    ("flood", |cluster, _| flood::measure(cluster)),
    ("many", |cluster, args| many::measure(cluster, args.jobs)),
    ("single", |cluster, _| many::measure_single(cluster)),
];

const HELP: &str = "\
Usage: cargo xtask bench k8s [--rounds N] [--jobs N] [start|calls|lag|flood|many|single]...

  --rounds N   how many rounds of each contender (default 9)
  --jobs N     how many jobs of five pods on simulated nodes (default 2000)
";

fn main() {
    let Some(arguments) = Arguments::read() else {
        print!("{HELP}");
        return;
    };
    let cluster = Cluster::here();
    figures::print_head();
    for (_, group) in GROUPS.iter().filter(|(name, _)| arguments.wants(name)) {
        group(&cluster, &arguments).iter().for_each(Row::print);
    }
}

struct Arguments {
    rounds: usize,
    jobs: usize,
    groups: Vec<String>,
}

impl Arguments {
    /// `None` when the line makes no sense.
    fn read() -> Option<Arguments> {
        let mut read = Arguments {
            rounds: 9,
            jobs: 2000,
            groups: Vec::new(),
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rounds" => read.rounds = args.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
                "--jobs" => read.jobs = args.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
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
