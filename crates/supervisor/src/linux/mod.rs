//! The Linux part: namespaces, control groups, pidfds, kernel tables.

mod account;
mod attempt;
mod cgroup;
mod clients;
mod home;
mod hosts;
mod identity;
mod init;
mod listeners;
mod namespaces;
mod own_files;
mod peer;
mod plain;
mod probe;
mod program;
mod shortage;
mod sock_diag;
mod start;
mod supervise;
mod sweep;
mod tree;
mod view;
mod worker;

pub use account::find_account;
pub use attempt::{connect, is_alive, run, take_place};
pub use hosts::hosts_text;
pub use identity::{ActingAs, act_as};
pub use peer::peer_user;
pub use probe::probe;
pub use shortage::is_shortage;
pub use start::{StartError, start};
pub use sweep::{SweepError, Swept, end_hung, sweep};

use std::io;

/// An operation that the kernel refused, described so that a person can act on it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
struct Refused {
    what: String,
    source: io::Error,
}

trait Refusal<T> {
    fn refused(self, what: impl FnOnce() -> String) -> Result<T, Refused>;
}

impl<T, E: Into<io::Error>> Refusal<T> for Result<T, E> {
    fn refused(self, what: impl FnOnce() -> String) -> Result<T, Refused> {
        self.map_err(|error| Refused {
            what: what(),
            source: error.into(),
        })
    }
}
