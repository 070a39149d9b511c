//! `rm [-r] <path>...`: removes files of the cluster.

use super::not_there_yet;
use crate::error::CliError;

/// Remove files on PaddlePaddle Cloud
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; `*` and `?` stand for names
    #[arg(required = true)]
    paths: Vec<String>,

    /// Also folders and what is inside
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,

    /// No error when there is nothing to remove
    #[arg(long, short)]
    force: bool,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("rm")
}
