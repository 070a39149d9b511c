//! `top [job]`: shows what jobs use now.

use super::not_there_yet;
use crate::error::CliError;

/// Show what jobs use now
///
/// Planned for a later version.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One job; default: all running jobs
    job: Option<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("top")
}
