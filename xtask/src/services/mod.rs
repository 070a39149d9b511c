//! Real storage services for tests: each started in its own folder on free ports, stopped by process id.
//!
//! The tests are in `crates/backends/tests` and `e2e`; this only starts and stops the services.

mod ceph;
mod hdfs;
mod process;
mod s3;

use anyhow::Result;

use crate::needs::{self, NotRun};
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

    /// What its tests say that they need.
    pub fn need(self) -> &'static str {
        match self {
            Service::Ceph => needs::CEPHFS,
            Service::Hdfs => needs::HDFS,
            Service::S3 => needs::S3,
        }
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
            Service::Hdfs => hdfs::fetch(workspace, step::run),
            Service::Ceph | Service::S3 => Ok(()),
        }
    }

    /// Whether its programs can be downloaded at all; checked when installing them failed.
    fn is_offered(self, workspace: &Workspace) -> bool {
        match self {
            Service::Hdfs => hdfs::is_offered(workspace),
            Service::Ceph | Service::S3 => true,
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

/// What to do about a service that this machine cannot run: programs are missing, or the package index is unreachable.
/// A service that can be installed and does not start is a failure either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    /// It was requested.
    Fails,
    /// It is skipped and listed.
    Skipped,
}

/// Why a service cannot be tested.
#[derive(Debug)]
enum Unavailable {
    /// It cannot be installed here.
    Missing(anyhow::Error),
    /// It could be installed, but something is broken, in our code or its own.
    Broken(anyhow::Error),
}

/// How to fix a service that cannot be installed.
const INSTALL: &str = "install what is missing";
/// How to fix one that can.
const REPAIR: &str = "see above: its programs could be installed, but it did not start";

impl Unavailable {
    /// What a task does about it: the reason to skip the service, or to fail with a hint.
    fn skip_or_fail(
        self,
        if_missing: IfMissing,
    ) -> std::result::Result<String, (&'static str, anyhow::Error)> {
        match (self, if_missing) {
            (Unavailable::Missing(error), IfMissing::Skipped) => Ok(format!("{error:#}")),
            (Unavailable::Missing(error), IfMissing::Fails) => Err((INSTALL, error)),
            (Unavailable::Broken(error), _) => Err((REPAIR, error)),
        }
    }
}

/// Installs a service, or says why that is impossible.
fn install(workspace: &Workspace, service: Service) -> std::result::Result<(), Unavailable> {
    if let Some(reason) = service.missing() {
        return Err(Unavailable::Missing(anyhow::anyhow!(reason)));
    }
    service
        .fetch(workspace)
        .map_err(|error| match service.is_offered(workspace) {
            true => Unavailable::Broken(error),
            false => Unavailable::Missing(error.context("its package index cannot be reached from here")),
        })
}

/// Installs in the background what is not a `Tool`. A failure is reported by the step that needs it: it tries again.
pub fn fetch_in_background(workspace: &Workspace) {
    if Service::Hdfs.missing().is_none() {
        let _ = hdfs::fetch(workspace, tools::run_quietly);
    }
}

/// Adds the steps that test the stores against real services.
pub fn test(workspace: &Workspace, steps: &mut Steps, services: &[Service], if_missing: IfMissing) {
    let mut ready = Vec::new();
    for service in services {
        let unavailable = match install(workspace, *service) {
            Ok(()) => {
                ready.push(*service);
                continue;
            }
            Err(unavailable) => unavailable,
        };
        match unavailable.skip_or_fail(if_missing) {
            Ok(reason) => steps.skip(&title(*service), &reason),
            Err((fix, error)) => steps.run(&title(*service), fix, || Err(error)),
        }
    }
    if ready.is_empty() {
        return;
    }
    steps.run("compile the storage tests", "the compiler names the line", || {
        let programs = ["--no-run", "--test", "names", "--example", s3::EXAMPLE];
        step::run(&mut workspace.cargo_test(&[&programs, &STORE_TESTS[..]].concat()))
    });
    for service in ready {
        let fix = format!("run `cargo xtask test --with {}`", service.name());
        let mut not_run = NotRun::new();
        steps.run(&title(service), &fix, || {
            run_one(workspace, service, &mut not_run)
        });
        for (tests, how) in not_run {
            steps.skip(&tests, how);
        }
    }
}

fn title(service: Service) -> String {
    format!("storage on {}", service.name())
}

/// The suite of the port of stores, and the programs.
const STORE_TESTS: [&str; 4] = ["--test", "suite", "--test", "e2e"];

fn run_one(workspace: &Workspace, service: Service, not_run: &mut NotRun) -> Result<()> {
    let running = service.start(workspace)?;
    let place = running.place();
    eprintln!("   {} is at {place}", service.name());
    needs::run_kind(workspace, service.need(), None, not_run, |command| {
        command.env(service.variable(), &place).envs(running.more());
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn only_unavailable_services_are_skipped() {
        let missing = || Unavailable::Missing(anyhow!("no java"));
        let broken = || Unavailable::Broken(anyhow!("it does not compile"));
        assert_eq!(missing().skip_or_fail(IfMissing::Skipped).unwrap(), "no java");
        assert_eq!(missing().skip_or_fail(IfMissing::Fails).unwrap_err().0, INSTALL);
        for asked in [IfMissing::Skipped, IfMissing::Fails] {
            assert_eq!(broken().skip_or_fail(asked).unwrap_err().0, REPAIR);
        }
    }
}
