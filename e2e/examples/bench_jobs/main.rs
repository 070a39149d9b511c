//! `cargo xtask bench jobs`: the released programs with their defaults, measured from a user's point of view.
//!
//! Prints one row per figure, with the target. It asserts nothing: figures belong to a machine.
#![cfg(target_os = "linux")]

mod arguments;
mod followers;
mod logs;
mod peers;
mod process;
mod queue;
mod rest;
mod start;
mod table;
mod versus;

use std::path::Path;

use arguments::{Arguments, HELP, Rival};
use e2e::TestEnvironment;
use peers::Peers;
use table::Row;

/// A group of figures that share a server.
type Measure = fn(&TestEnvironment, usize) -> Vec<Row>;

const GROUPS: &[(&str, Measure)] = &[
    ("start", |env, _| start::measure(env)),
    ("logs", |env, _| logs::measure(env)),
    ("followers", |env, _| followers::measure(env)),
    ("queue", queue::measure),
];

fn main() {
    let Some(arguments) = Arguments::read() else {
        print!("{HELP}");
        return;
    };
    let groups: Vec<_> = GROUPS.iter().filter(|(name, _)| arguments.wants(name)).collect();
    match &arguments.rival {
        Rival::None => alone(&groups, arguments.jobs, None),
        Rival::Peers => alone(&groups, arguments.jobs, Some(Peers::install())),
        Rival::Build(program) => versus::run(&groups, &arguments, program),
    }
}

fn alone(groups: &[&(&str, Measure)], jobs: usize, peers: Option<Peers>) {
    table::print_head();
    for (name, measure) in groups {
        let rows = one_turn(*measure, jobs, None);
        // Ours is gone by now, so neither burdens the other either.
        let peer_figures = peers
            .as_ref()
            .map(|peers| peers.figures_for(name, jobs))
            .unwrap_or_default();
        rows.iter().for_each(|row| row.print(&peer_figures));
    }
}

/// Measures a group with a home and a server of its own, so that one group does not burden the next. `bin` has the programs of
/// another build.
fn one_turn(measure: Measure, jobs: usize, bin: Option<&Path>) -> Vec<Row> {
    let mut env = TestEnvironment::new();
    if let Some(bin) = bin {
        env.use_programs_of(bin.to_owned());
    }
    measure(&env, jobs)
}
