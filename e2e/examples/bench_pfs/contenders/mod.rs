//! The contenders. Each serves its own folder on loopback and is driven by its own client.

mod bare;
mod cp;
mod nginx;
mod ours;
mod rsync;
mod scp;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use bare::played_a_part;
pub use ours::Ours;
pub use rsync::Rsync;

use crate::arguments::Arguments;
use crate::stage::{Load, Place, Stage};

/// One way to move files there and back.
pub trait Contender {
    fn name(&self) -> String;
    /// Whether it can move this load.
    fn takes(&self, _load: &Load) -> bool {
        true
    }
    /// Moves a load to the server.
    fn up(&self, load: &Load) -> Command;
    /// Fetches it into an empty folder.
    fn down(&self, load: &Load, into: &Path) -> Command;
    /// Where the server keeps it.
    fn kept(&self, load: &Load) -> PathBuf;
    /// Joins what was fetched in parts to the form of the load.
    fn join(&self, _load: &Load, _fetched: &Path) {}
}

/// All that are available here; missing ones are named.
pub fn all(stage: &Stage, arguments: &Arguments) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    for build in Ours::builds(stage, arguments) {
        all.push(Box::new(build));
    }
    let mut add = |name: &str, made: Option<Vec<Box<dyn Contender>>>| match made {
        Some(made) => all.extend(made),
        None => eprintln!("{name} is not measured: it is not installed here"),
    };
    add("nginx", nginx::start(stage));
    add("rsync", rsync::start(stage));
    add("scp", scp::start(stage));
    all.extend(cp::all(stage));
    all.push(bare::new(stage));
    all
}

/// A shell's command line.
fn shell(line: String) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", &line]);
    command
}

/// Ends a command line with what makes its bytes durable, as ours are when it returns.
fn synced(line: String, folder: &Path) -> String {
    format!("{line}\nsync -f '{}'", folder.display())
}

/// On a disk peers run twice: as they are, and with their bytes made durable.
fn twice<C: Contender + 'static>(
    stage: &Stage,
    make: impl Fn(Durable) -> Option<C>,
) -> Option<Vec<Box<dyn Contender>>> {
    let kinds: &[Durable] = match stage.place {
        Place::Memory => &[Durable::No],
        Place::Disk => &[Durable::No, Durable::Yes],
    };
    let made: Option<Vec<C>> = kinds.iter().map(|kind| make(*kind)).collect();
    Some(
        made?
            .into_iter()
            .map(|one| Box::new(one) as Box<dyn Contender>)
            .collect(),
    )
}

/// Whether a peer is made to sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    Yes,
    No,
}

impl Durable {
    fn named(self, name: &str) -> String {
        match self {
            Durable::Yes => format!("{name}, synced"),
            Durable::No => name.to_owned(),
        }
    }
}
