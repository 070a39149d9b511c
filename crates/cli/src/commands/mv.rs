//! `mv <src>... <dest>`: moves files within the cluster.

use super::not_there_yet;
use crate::error::CliError;

/// Move or rename files
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to move, then where to
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("mv")
}
