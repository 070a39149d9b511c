//! `cargo xtask bench`: runs one benchmark, built with optimisations.
//!
//! The measuring lives beside what is measured; this only knows where.

use anyhow::{Result, bail};

use crate::step;
use crate::workspace::Workspace;

/// A benchmark: its name, what it measures, and the example that does it.
struct Bench {
    name: &'static str,
    about: &'static str,
    package: &'static str,
    example: &'static str,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "jobs",
        about: "the shipped programs: start-up, submits, logs, history; --peers: others beside them",
        package: "e2e",
        example: "bench_jobs",
    },
    Bench {
        name: "scheduler",
        about: "decisions per second against simulated nodes",
        package: "paddlecloud-core",
        example: "bench_scheduler",
    },
    Bench {
        name: "recordio",
        about: "reading and writing records, MB per cpu-second",
        package: "paddlecloud-recordio",
        example: "bench_read",
    },
    Bench {
        name: "pfs",
        about: "hashing, matching and packing files",
        package: "paddlecloud-pfs",
        example: "bench_pfs",
    },
];

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", help());
        return Ok(());
    };
    if name == "-h" || name == "--help" {
        print!("{}", help());
        return Ok(());
    }
    let bench = find(name)?;
    if bench.name == "jobs" {
        step::run(&mut workspace.cargo(&["build", "--locked", "--release", "-p", "paddlecloud"]))?;
    }
    let fixed = [
        "run",
        "--locked",
        "--release",
        "-p",
        bench.package,
        "--example",
        bench.example,
        "--",
    ];
    step::run(workspace.cargo(&fixed).args(rest))
}

fn find(name: &str) -> Result<&'static Bench> {
    let known = || {
        BENCHES
            .iter()
            .map(|bench| bench.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => Ok(bench),
        None => bail!("there is no benchmark `{name}`; there are {}", known()),
    }
}

fn help() -> String {
    let mut text = String::from("Usage: cargo xtask bench <WHAT> [ARGUMENTS]\n\n");
    for bench in BENCHES {
        text.push_str(&format!("  {:10} {}\n", bench.name, bench.about));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_benchmark_names_the_known_ones() {
        let error = find("luck").err().unwrap().to_string();
        assert_eq!(
            error,
            "there is no benchmark `luck`; there are jobs, scheduler, recordio, pfs"
        );
    }

    #[test]
    fn every_benchmark_is_in_the_help() {
        let help = help();
        assert!(BENCHES.iter().all(|bench| help.contains(bench.name)));
    }
}
