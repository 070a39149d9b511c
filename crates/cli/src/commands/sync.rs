//! `sync <src> <dest>`: makes one folder like another.

use super::not_there_yet;
use crate::error::CliError;

/// Make a remote folder like a local one, or the other way round
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder as it should be
    src: String,

    /// The folder that is changed
    dest: String,

    /// Also remove what the first one lacks
    #[arg(long)]
    delete: bool,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("sync")
}
