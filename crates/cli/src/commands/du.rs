//! `du <path>...`: how much space files take.

use super::not_there_yet;
use crate::error::CliError;

/// Show how much space files take
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; your home when left out
    paths: Vec<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("du")
}
