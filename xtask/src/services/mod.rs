//! Real storage services for tests: started in a folder of their own on free ports, ended by their ids.
//!
//! What is run against them is in `crates/backends/tests` and `e2e`; here is only how they come up and go.

mod ceph;
mod hdfs;
mod process;
mod s3;

use anyhow::{Result, bail};

use crate::step::{self, Steps};
use crate::workspace::Workspace;

/// A service that storage tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Ceph,
    Hdfs,
    S3,
}

/// A service that runs; it ends when this is dropped.
pub trait Running {
    /// What tests are told about where it is.
    fn place(&self) -> String;

    /// What else they are told, by the names of variables.
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

    /// The variable in which tests find its place.
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

    /// Brings what it consists of onto this machine; minutes the first time.
    fn fetch(self, workspace: &Workspace) -> Result<()> {
        match self {
            Service::Ceph => Ok(()),
            Service::Hdfs => hdfs::fetch(workspace),
            Service::S3 => s3::fetch(workspace),
        }
    }

    /// Whether what it consists of can be had from here at all; asked when fetching it failed.
    fn is_offered(self, workspace: &Workspace) -> bool {
        match self {
            Service::Ceph => true,
            Service::Hdfs => hdfs::is_offered(workspace),
            Service::S3 => s3::is_offered(workspace),
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

/// What becomes of a service that this machine cannot have: programs are missing, or the registry is out of reach. One
/// that can be had and does not come up is a failure either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// It was asked for.
    Fails,
    /// It is named and left out.
    Skipped,
}

/// Why a service cannot be tried.
#[derive(Debug)]
enum Lacking {
    /// It cannot be had here.
    Absent(anyhow::Error),
    /// It could be had, and something of ours or of its own is broken.
    Broken(anyhow::Error),
}

/// What mends one that cannot be had.
const BRING: &str = "bring what is missing onto this machine";
/// What mends one that can.
const REPAIR: &str = "see why above: what it consists of can be had from here";

impl Lacking {
    /// What a task does about it: the reason to leave the service out, or to fail with what mends that.
    fn judged(self, absent: Absent) -> std::result::Result<String, (&'static str, anyhow::Error)> {
        match (self, absent) {
            (Lacking::Absent(error), Absent::Skipped) => Ok(format!("{error:#}")),
            (Lacking::Absent(error), Absent::Fails) => Err((BRING, error)),
            (Lacking::Broken(error), _) => Err((REPAIR, error)),
        }
    }
}

/// Brings a service onto this machine, or says why that cannot be.
fn bring(workspace: &Workspace, service: Service) -> std::result::Result<(), Lacking> {
    if let Some(reason) = service.missing() {
        return Err(Lacking::Absent(anyhow::anyhow!(reason)));
    }
    service
        .fetch(workspace)
        .map_err(|error| match service.is_offered(workspace) {
            true => Lacking::Broken(error),
            false => Lacking::Absent(error.context("its registry cannot be reached from here")),
        })
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
            Err((mend, error)) => steps.run(&title(*service), mend, || Err(error)),
        }
    }
    if ready.is_empty() {
        return;
    }
    let mend = "run `cargo build -p paddlecloud --features hdfs,s3`";
    steps.run("build with hdfs and s3", mend, || build(workspace));
    for service in ready {
        let mend = format!("run `cargo xtask test --with {}`", service.name());
        steps.run(&title(service), &mend, || run_one(workspace, service));
    }
}

fn title(service: Service) -> String {
    format!("storage on {}", service.name())
}

/// The same packages and features for every command, so that nothing is built twice.
const SELECTED: [&str; 9] = [
    "--locked",
    "-p",
    "paddlecloud",
    "-p",
    "paddlecloud-backends",
    "-p",
    "e2e",
    "--features",
    "paddlecloud/hdfs,paddlecloud/s3,paddlecloud-backends/hdfs,paddlecloud-backends/s3",
];

fn build(workspace: &Workspace) -> Result<()> {
    step::run(workspace.cargo(&["build", "--bins"]).args(SELECTED))?;
    let tests = ["test", "--no-run", "--lib", "--test", "suite", "--test", "e2e"];
    step::run(workspace.cargo(&tests).args(SELECTED))
}

fn run_one(workspace: &Workspace, service: Service) -> Result<()> {
    let running = service.start(workspace)?;
    let place = running.place();
    eprintln!("   {} is at {place}", service.name());
    let test = |target: &[&str], filter: &[&str]| {
        let mut command = workspace.cargo(&[&["test"], target].concat());
        command.args(SELECTED).arg("--").args(filter);
        step::run(command.env(service.variable(), &place).envs(running.more()))
    };
    // Those of the store's own parts that need the service, and the port's suite.
    let suite = test(&["--lib", "--test", "suite"], &[]);
    let programs = test(&["--test", "e2e"], &["files::backends::"]);
    drop(running);
    match (suite, programs) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
        (Err(suite), Err(_)) => bail!("{suite:#}, and the programs failed too"),
    }
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
