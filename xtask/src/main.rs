//! Tasks for developers: `cargo xtask demo`, `test`, `ci`, `tidy`, `spec`, `bench`, `wheel`, `image`, `portable`.
//!
//! Selects the task and prints its error; the tasks are in their own files.

mod bench;
mod chart;
mod ci;
mod cluster;
mod demo;
mod image;
mod needs;
mod portable;
mod second_run;
mod services;
mod spec;
mod step;
mod test;
mod tidy;
mod tools;
mod wheel;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

const HELP: &str = "\
Usage: cargo xtask <TASK>

Tasks:
  demo                    build, submit a small training job, follow it, show the tables
  test [OPTIONS] [-- ..]  build the programs, then run the tests; see `cargo xtask test --help`
  ci                      everything that must pass before a change is merged
  tidy [--sizes]          check the invariants of ARCHITECTURE.md; with `--sizes`, print the size of each crate
  spec [--check]          write openapi.json from the routes, or compare it with them
  wheel                   build, check and test the Python wheel for a release
  image [OPTIONS] [..]    container images with static programs, as OCI archives; see `cargo xtask image --help`
  bench <WHAT>            jobs, pfs, scheduler …; see `cargo xtask bench --help`
  portable                check the client for Windows and macOS, if the tools are installed
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let Some((task, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    let workspace = Workspace::find();
    match task.as_str() {
        "demo" => demo::run(&workspace, rest),
        "test" => test::run(&workspace, rest),
        "ci" => ci::run(&workspace, rest),
        "tidy" => tidy::run(&workspace, rest),
        "spec" => spec::run(&workspace, rest),
        "bench" => bench::run(&workspace, rest),
        "wheel" => wheel::run(&workspace, rest),
        "image" => image::run(&workspace, rest),
        "portable" => portable::run(&workspace, rest),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("there is no task `{other}`; `cargo xtask help` lists them"),
    }
}

/// Refuses arguments of a task that takes none.
fn no_arguments(task: &str, args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(extra) => bail!("`cargo xtask {task}` takes no argument, got `{extra}`"),
    }
}
