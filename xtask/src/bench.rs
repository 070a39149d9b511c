//! `cargo xtask bench`: runs one benchmark, built with optimizations.
//!
//! Each benchmark is beside the code it measures; this file only lists them.

use anyhow::{Result, bail};

use crate::cluster;
use crate::step;
use crate::workspace::Workspace;

/// A benchmark: its name, what it measures, and the example that does it.
struct Bench {
    name: &'static str,
    about: &'static str,
    package: &'static str,
    example: &'static str,
    /// The program that the example drives and that must be built first.
    drives: Drives,
}

/// What a benchmark needs besides itself.
#[derive(PartialEq, Eq)]
enum Drives {
    Itself,
    TheProgram,
    /// The program, on a Kubernetes cluster.
    Cluster,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "jobs",
        about: "the released programs: start-up, submits, logs, history; --peers, --versus PROGRAM: compared with others",
        package: "e2e",
        example: "bench_jobs",
        drives: Drives::TheProgram,
    },
    Bench {
        name: "scheduler",
        about: "decisions per second against simulated nodes",
        package: "paddlecloud-core",
        example: "bench_scheduler",
        drives: Drives::Itself,
    },
    Bench {
        name: "recordio",
        about: "reading and writing records, MB per cpu-second; --python: the wheel compared with its peers",
        package: "paddlecloud-recordio",
        example: "bench_read",
        drives: Drives::Itself,
    },
    Bench {
        name: "pfs",
        about: "the released programs move files, compared with nginx, rsync, scp and cp",
        package: "e2e",
        example: "bench_pfs",
        drives: Drives::TheProgram,
    },
    Bench {
        name: "pfs-engine",
        about: "hashing, matching and packing files, without a network",
        package: "paddlecloud-pfs",
        example: "bench_pfs_engine",
        drives: Drives::Itself,
    },
    Bench {
        name: "k8s",
        about: "the Kubernetes engine compared with kubectl on the cluster of KUBECONFIG: start, calls, logs, many jobs",
        package: "e2e",
        example: "bench_k8s",
        drives: Drives::Cluster,
    },
];

/// Benchmarks that are scripts: their name, what they measure, and the script that does it.
const SCRIPTS: &[(&str, &str, &str)] = &[
    (
        "pserver",
        "the parameter server compared with PyTorch's RPC, Ray and bare sockets; checkpoints, memory, connections, `ctr`",
        "crates/py/bench/pserver.sh",
    ),
    (
        "v2",
        "programs from 2017 compared with the same networks in PaddlePaddle 3, processor time per sample",
        "crates/py/bench/v2.sh",
    ),
    (
        "many",
        "200 users, 10,000 jobs, reads, logs and uploads while the server is killed; --short: two minutes",
        "tools/bench_many/many.sh",
    ),
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
    if let Some((.., script)) = SCRIPTS.iter().find(|(known, ..)| known == name) {
        return step::run(workspace.program("bash", &[script]).args(rest));
    }
    let bench = find(name)?;
    if bench.name == "recordio"
        && let Some((flag, rest)) = rest.split_first()
        && flag == "--python"
    {
        return step::run(workspace.program("bash", &["crates/py/bench/run.sh"]).args(rest));
    }
    if bench.drives == Drives::Cluster {
        return cluster::bench::run(workspace, rest);
    }
    if bench.drives == Drives::TheProgram {
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
            .chain(SCRIPTS.iter().map(|(name, ..)| *name))
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
    for (name, about, _) in SCRIPTS {
        text.push_str(&format!("  {name:10} {about}\n"));
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
            "there is no benchmark `luck`; there are jobs, scheduler, recordio, pfs, pfs-engine, k8s, pserver, v2, many"
        );
    }

    #[test]
    fn every_benchmark_is_in_the_help() {
        let help = help();
        assert!(BENCHES.iter().all(|bench| help.contains(bench.name)));
    }
}
