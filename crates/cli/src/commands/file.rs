//! `file [put|get|ls] src dest`: the simple file operations of S0.

use super::not_there_yet;
use crate::error::CliError;

/// Simple file operations.
///
/// `file src dest` uploads; `src` must lie below the current folder, `dest` in your home. `src/` uploads what is inside,
/// `src` the folder itself. Also as `file put src dest`, `file get src dest`, `file ls path`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// `src dest`, or `put`, `get`, `ls` and their paths
    #[arg(required = true, num_args = 1..=3)]
    arguments: Vec<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("file")
}
