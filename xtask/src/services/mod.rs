//! Real storage services for tests: each started in its own folder on free ports, stopped by process id.
//!
//! The tests are in `crates/backends/tests` and `e2e`; this only starts and stops the services.

mod ceph;
mod hdfs;
mod process;
mod s3;

use anyhow::Result;

use crate::step::{self, Steps};
use crate::tools;
use crate::workspace::Workspace;

/// A service that storage tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Ceph,
    Hdfs,
    S3,
}

/// A running service; stopped when this is dropped.
pub trait Running {
    /// The location of the service, for tests.
    fn place(&self) -> String;

    /// Further variables for tests.
    fn more(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Ceph, Service::Hdfs, Service::S3];

    pub fn name(self) -> &'static str {
        match self {
            Service::Ceph => "ceph",
            Service::Hdfs => "hdfs",
            Service::S3 => "s3",
        }
    }

    pub fn parse(name: &str) -> Option<Service> {
        Service::ALL.into_iter().find(|service| service.name() == name)
    }

    /// The variable in which tests find its location.
    fn variable(self) -> &'static str {
        match self {
            Service::Ceph => "PADDLECLOUD_TEST_CEPHFS",
            Service::Hdfs => "PADDLECLOUD_TEST_HDFS",
            Service::S3 => "PADDLECLOUD_TEST_S3",
        }
    }

    /// Why it cannot be started on this machine.
    fn missing(self) -> Option<String> {
        match self {
            Service::Ceph => ceph::missing(),
            Service::Hdfs => hdfs::missing(),
            Service::S3 => None,
        }
    }

    /// Installs its programs on this machine; takes minutes the first time.
    fn fetch(self, workspace: &Workspace) -> Result<()> {
        match self {
            Service::Ceph => Ok(()),
            Service::Hdfs => hdfs::fetch(workspace, step::run),
            Service::S3 => tools::S3.install(workspace),
        }
    }

    /// Whether its programs can be downloaded at all; checked when installing them failed.
    fn is_offered(self, workspace: &Workspace) -> bool {
        match self {
            Service::Ceph => true,
            Service::Hdfs => hdfs::is_offered(workspace),
            Service::S3 => tools::S3.is_offered(workspace),
        }
    }

    fn start(self, workspace: &Workspace) -> Result<Box<dyn Running>> {
        Ok(match self {
            Service::Ceph => Box::new(ceph::Ceph::start()?),
            Service::Hdfs => Box::new(hdfs::Hdfs::start(workspace)?),
            Service::S3 => Box::new(s3::S3::start(workspace)?),
        })
    }
}

/// What happens with a service that this machine cannot run: programs are missing, or the package index is unreachable.
/// A service that can be installed and does not start is a failure either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// It was requested.
    Fails,
    /// It is skipped and listed.
    Skipped,
}

/// Why a service cannot be tested.
#[derive(Debug)]
enum Lacking {
    /// It cannot be installed here.
    Absent(anyhow::Error),
    /// It could be installed, and something of ours or of its own is broken.
    Broken(anyhow::Error),
}

/// How to fix a service that cannot be installed.
const BRING: &str = "install what is missing";
/// How to fix one that can.
const REPAIR: &str = "see above: its programs could be installed, but it did not start";

impl Lacking {
    /// What a task does about it: the reason to skip the service, or to fail with a hint.
    fn judged(self, absent: Absent) -> std::result::Result<String, (&'static str, anyhow::Error)> {
        match (self, absent) {
            (Lacking::Absent(error), Absent::Skipped) => Ok(format!("{error:#}")),
            (Lacking::Absent(error), Absent::Fails) => Err((BRING, error)),
            (Lacking::Broken(error), _) => Err((REPAIR, error)),
        }
    }
}

/// Installs a service, or says why that is impossible.
fn bring(workspace: &Workspace, service: Service) -> std::result::Result<(), Lacking> {
    if let Some(reason) = service.missing() {
        return Err(Lacking::Absent(anyhow::anyhow!(reason)));
    }
    service
        .fetch(workspace)
        .map_err(|error| match service.is_offered(workspace) {
            true => Lacking::Broken(error),
            false => Lacking::Absent(error.context("its package index cannot be reached from here")),
        })
}

/// Installs behind other steps what no `Tool` is. A failure is reported by the step that needs it: it tries again.
pub fn fetch_behind(workspace: &Workspace) {
    if Service::Hdfs.missing().is_none() {
        let _ = hdfs::fetch(workspace, tools::run_behind);
    }
}

/// Adds the steps that test the stores against real services.
pub fn test(workspace: &Workspace, steps: &mut Steps, services: &[Service], absent: Absent) {
    let mut ready = Vec::new();
    for service in services {
        let lacking = match bring(workspace, *service) {
            Ok(()) => {
                ready.push(*service);
                continue;
            }
            Err(lacking) => lacking,
        };
        match lacking.judged(absent) {
            Ok(reason) => steps.skip(&title(*service), &reason),
            Err((fix, error)) => steps.run(&title(*service), fix, || Err(error)),
        }
    }
    if ready.is_empty() {
        return;
    }
    steps.run("compile the storage tests", "the compiler names the line", || {
        step::run(&mut workspace.cargo_test(&[&["--no-run", "--test", "names"], &STORE_TESTS[..]].concat()))
    });
    for service in ready {
        let fix = format!("run `cargo xtask test --with {}`", service.name());
        steps.run(&title(service), &fix, || run_one(workspace, service));
    }
}

fn title(service: Service) -> String {
    format!("storage on {}", service.name())
}

/// The suite of the port of stores, and the programs.
const STORE_TESTS: [&str; 4] = ["--test", "suite", "--test", "e2e"];

fn run_one(workspace: &Workspace, service: Service) -> Result<()> {
    let running = service.start(workspace)?;
    let place = running.place();
    eprintln!("   {} is at {place}", service.name());
    let test = |targets: &[&str], filter: &[&str]| {
        let mut command = workspace.cargo_test(targets);
        command.arg("--").args(filter);
        step::run(command.env(service.variable(), &place).envs(running.more()))
    };
    let suite = test(&["--test", "suite"], &[]);
    let programs = test(&["--test", "e2e"], &["files::backends::"]);
    let parts = match service {
        Service::S3 => test(&["--tests"], &["s3::tests::"]),
        Service::Ceph | Service::Hdfs => Ok(()),
    };
    drop(running);
    suite.and(programs).and(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn only_what_cannot_be_had_is_left_out() {
        let absent = || Lacking::Absent(anyhow!("no java"));
        let broken = || Lacking::Broken(anyhow!("it does not compile"));
        assert_eq!(absent().judged(Absent::Skipped).unwrap(), "no java");
        assert_eq!(absent().judged(Absent::Fails).unwrap_err().0, BRING);
        for asked in [Absent::Skipped, Absent::Fails] {
            assert_eq!(broken().judged(asked).unwrap_err().0, REPAIR);
        }
    }
}
