//! `cargo xtask test`: builds the programs, then runs every test that this machine can run.

use std::process::Command;

use anyhow::{Result, bail};

use crate::cluster;
use crate::image;
use crate::needs::{self, Ignored, Lacks};
use crate::second_run;
use crate::services::{self, IfMissing, Service};
use crate::step::{self, Concurrent, Steps};
use crate::workspace::{Workspace, is_installed};

const HELP: &str = "\
Usage: cargo xtask test [--with KIND[,KIND]...]... [-- CARGO TEST ARGUMENTS]

Without options: all Rust tests (unit, simulation, port suites, end to end), the examples' and the wheel's. A test that
says what it needs runs where that is here; the end of the run lists what is missing.

  --with sim     run the simulator over 100,000 seeds instead of a few thousand
  --with crash   run the crash tests for 200 rounds instead of a few
  --with attack  run the attacks on a shared server for 50 rounds instead of one, schemathesis for 40 minutes
  --with torch   run the wheel's tests of torch with PyPI's latest torch (5.4 GB), and nothing else
  --with images  build the container images twice and compare their digests, and nothing else
  --with ceph,hdfs,s3
                 start these storage services and run the tests that need them, and nothing else
  --with cluster run the tests on the Kubernetes cluster of KUBECONFIG, and nothing else
  --if-available skip a service or cluster that this machine does not have, instead of failing

Arguments after `--` are passed to `cargo test`, for example `-- -p paddlecloud-core job::`; only those tests run then.
";

/// All values of `--with`.
const KINDS: &str = "sim, crash, attack, torch, images, ceph, hdfs, s3 and cluster";

/// What to run beyond the usual.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    env: Vec<(&'static str, &'static str)>,
    services: Vec<Service>,
    cluster: bool,
    images: bool,
    torch: bool,
    if_available: bool,
    cargo_args: Vec<String>,
}

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(args)?;
    let mut steps = Steps::default();
    if !options.leaves_out_the_usual() {
        steps.run("compile", "the compiler names the line", || {
            match options.cargo_args.is_empty() {
                true => compile(workspace),
                false => build_programs(workspace),
            }
        });
        all(workspace, &mut steps, &options);
    }
    let if_missing = match options.if_available {
        true => IfMissing::Skipped,
        false => IfMissing::Fails,
    };
    services::test(workspace, &mut steps, &options.services, if_missing);
    if options.cluster {
        cluster::test(workspace, &mut steps, if_missing);
    }
    if options.torch {
        steps.run("PyPI's torch", "run `crates/py/tests/torch_latest.sh`", || {
            build_programs(workspace)?;
            step::run(&mut workspace.program("bash", &["crates/py/tests/torch_latest.sh"]))
        });
    }
    if options.images {
        steps.run(
            "equal images",
            "run `cargo xtask image --twice` and compare the archives",
            || image::run(workspace, &["--twice".to_owned()]),
        );
    }
    steps.finish()
}

/// Adds the steps of all tests, which are compiled already. The wheel's run beside the others: both often wait,
/// and a wheel that others build meanwhile replaces theirs only if its contents differ.
pub fn all(workspace: &Workspace, steps: &mut Steps, options: &Options) {
    let python = match options.cargo_args.is_empty() {
        true => python(),
        false => None,
    };
    let wheel = python.map(|_| {
        Concurrent::start(
            "python package",
            "run `crates/py/tests/run.sh`",
            workspace.target().join("python-package.log"),
            &mut workspace.program("bash", &["crates/py/tests/run.sh"]),
        )
    });
    rust_tests(workspace, steps, options);
    if !options.cargo_args.is_empty() {
        return;
    }
    match python {
        Some(python) => steps.run(
            "example tests",
            "run `python3 -m unittest discover -b examples/tests`",
            || {
                step::run(
                    &mut workspace.program(python, &["-m", "unittest", "discover", "-b", "examples/tests"]),
                )
            },
        ),
        None => steps.skip("example tests", "there is no python3 on this machine"),
    }
    if !has_torch() {
        steps.skip(
            "the wheel's tests of torch",
            "/usr/bin/python3 has no torch (Debian: python3-torch)",
        );
    }
    match wheel {
        Some(wheel) => steps.wait_for(wheel),
        None => steps.skip("python package", "there is no python3 on this machine"),
    }
}

/// All that this machine can run. What it lacks is reported, except for services and a cluster that steps of their own
/// start.
fn rust_tests(workspace: &Workspace, steps: &mut Steps, options: &Options) {
    let mut not_run = Vec::new();
    steps.run(
        "rust tests",
        "run the failing test alone: `cargo xtask test -- -p CRATE NAME`",
        || {
            let mut ignored = needs::in_workspace(workspace)?;
            ignored.retain(|test| test.may_be_selected(&options.cargo_args));
            let lacks = Lacks::find(workspace, None, &ignored);
            not_run = lacks.report(&ignored, &options.started_elsewhere());
            ignored.retain(|test| !lacks.nothing_of(test));
            let mut tests = options.cargo_test(workspace, &ignored);
            match options.cargo_args.is_empty() {
                true => second_run::test(&mut tests).map(drop),
                false => step::run(&mut tests),
            }
        },
    );
    for (tests, how) in not_run {
        steps.skip(&tests, how);
    }
}

/// Builds the programs, all Rust tests and whatever else is written in Rust.
pub fn compile(workspace: &Workspace) -> Result<()> {
    step::run(&mut compilation(workspace))
}

/// The command that does so. It is not `cargo test --no-run`, which omits benchmarks and Python's module.
pub fn compilation(workspace: &Workspace) -> Command {
    workspace.cargo_build(&["--all-targets"])
}

/// Builds the one program that answers to every name, exactly as the tests build it: as a part of the test of its names.
pub fn build_programs(workspace: &Workspace) -> Result<()> {
    step::run(&mut workspace.cargo_test(&["--no-run", "--test", "names"]))
}

/// The name under which Python 3 is installed.
pub fn python() -> Option<&'static str> {
    ["python3", "python"].into_iter().find(|name| is_installed(name))
}

/// Whether Debian's torch is installed.
pub fn has_torch() -> bool {
    let mut import = Command::new("/usr/bin/python3");
    import
        .args(["-c", "import torch"])
        .stderr(std::process::Stdio::null());
    import.status().is_ok_and(|status| status.success())
}

impl Options {
    /// Those of a run whose other steps start every service and a cluster.
    pub fn beside_services() -> Self {
        Self {
            services: Service::ALL.to_vec(),
            cluster: true,
            ..Self::default()
        }
    }

    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--with" => match rest.next() {
                    Some(kind) => options.add(kind)?,
                    None => bail!("`--with` needs a kind: {KINDS}"),
                },
                "--if-available" => options.if_available = true,
                "--" => options.cargo_args = rest.by_ref().cloned().collect(),
                other => match other.strip_prefix("--with=") {
                    Some(kind) => options.add(kind)?,
                    None => {
                        bail!("`cargo xtask test` does not know `{other}`; cargo's arguments follow `--`")
                    }
                },
            }
        }
        Ok(options)
    }

    fn add(&mut self, kinds: &str) -> Result<()> {
        for kind in kinds.split(',') {
            match (kind, Service::parse(kind)) {
                ("sim", _) => self.env.push(("SIMULATOR_SEEDS", "100000")),
                ("cluster", _) => self.cluster = true,
                ("images", _) => self.images = true,
                ("torch", _) => self.torch = true,
                ("attack", _) => self.env.push(("PADDLECLOUD_ATTACK_ROUNDS", "50")),
                ("crash", _) => self.env.push(("PADDLECLOUD_CRASH_ROUNDS", "200")),
                (_, Some(service)) if !self.services.contains(&service) => self.services.push(service),
                (_, Some(_)) => {}
                (other, None) => bail!("there are no tests of kind `{other}`; the kinds are {KINDS}"),
            }
        }
        Ok(())
    }

    /// Whether only services, a cluster, images or PyPI's torch were requested.
    fn leaves_out_the_usual(&self) -> bool {
        let special = self.cluster || self.images || self.torch || !self.services.is_empty();
        special && self.env.is_empty() && self.cargo_args.is_empty()
    }

    /// What other steps of the same run start.
    fn started_elsewhere(&self) -> Vec<&'static str> {
        let cluster = self.cluster.then_some(needs::CLUSTER);
        let services = self.services.iter().map(|service| service.need());
        services.chain(cluster).collect()
    }

    /// Runs all tests but these.
    fn cargo_test(&self, workspace: &Workspace, left_out: &[Ignored]) -> Command {
        let mut command = match self.cargo_args.is_empty() {
            true => workspace.cargo_test(&["--no-fail-fast"]),
            false => workspace.cargo(&["test", "--locked"]),
        };
        command.args(&self.cargo_args).envs(self.env.iter().copied());
        let has = |word: &str| self.cargo_args.iter().any(|argument| argument == word);
        if !has("--") {
            command.arg("--");
        }
        if !has("--ignored") && !has("--include-ignored") {
            command.args(needs::all_but(left_out));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_kind_becomes_the_variable_its_tests_read() {
        let options = parse(&["--with", "sim,attack", "--with=crash"]).unwrap();
        let expected = vec![
            ("SIMULATOR_SEEDS", "100000"),
            ("PADDLECLOUD_ATTACK_ROUNDS", "50"),
            ("PADDLECLOUD_CRASH_ROUNDS", "200"),
        ];
        assert_eq!(options.env, expected);
    }

    #[test]
    fn arguments_after_two_dashes_go_to_cargo() {
        let options = parse(&["--", "-p", "xtask", "--with"]).unwrap();
        assert_eq!(options.cargo_args, ["-p", "xtask", "--with"]);
    }

    #[test]
    fn an_unknown_kind_names_the_known_ones() {
        let error = parse(&["--with", "luck"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "there are no tests of kind `luck`; the kinds are sim, crash, attack, torch, images, ceph, hdfs, s3 and cluster"
        );
    }

    #[test]
    fn services_come_as_a_list_or_one_by_one_and_alone_run_alone() {
        let options = parse(&["--with", "ceph,hdfs", "--with=s3,hdfs"]).unwrap();
        assert_eq!(options.services, Service::ALL);
        assert!(options.leaves_out_the_usual());
        assert!(parse(&["--with", "cluster"]).unwrap().leaves_out_the_usual());
        assert!(parse(&["--with", "images"]).unwrap().leaves_out_the_usual());
        assert!(parse(&["--with", "torch"]).unwrap().leaves_out_the_usual());
        assert!(!parse(&["--with", "sim,s3"]).unwrap().leaves_out_the_usual());
        assert!(!parse(&[]).unwrap().leaves_out_the_usual());
    }

    #[test]
    fn a_kind_left_out_is_an_error() {
        assert!(parse(&["--with"]).is_err());
    }
}
