//! `cat <path>...`: prints files of the cluster.

use super::not_there_yet;
use crate::error::CliError;

/// Print files
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`
    #[arg(required = true)]
    paths: Vec<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("cat")
}
