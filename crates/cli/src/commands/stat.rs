//! `stat <path>...`: what is known of a file.

use super::not_there_yet;
use crate::error::CliError;

/// Show what is known of a file
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`
    #[arg(required = true)]
    paths: Vec<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("stat")
}
