//! `mkdir <dir>...`: makes folders on the cluster.

use super::not_there_yet;
use crate::error::CliError;

/// Make directories on PaddlePaddle Cloud
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`
    #[arg(required = true)]
    paths: Vec<String>,

    /// Also those above, and no error when they exist
    #[arg(long, short)]
    parents: bool,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("mkdir")
}
