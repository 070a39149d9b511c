//! `check <local> <remote>`: compares, changes nothing.

use super::not_there_yet;
use crate::error::CliError;

/// Compare a local folder with a remote one
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder here
    local: String,

    /// A path `/pfs/…`
    remote: String,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("check")
}
