//! `ls [-r] <dir>`: lists files of the cluster.

use super::not_there_yet;
use crate::error::CliError;

/// List files on PaddlePaddle Cloud
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; your home when left out
    paths: Vec<String>,

    /// Also what is inside of folders
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,

    /// Sizes and times too
    #[arg(long, short)]
    long: bool,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("ls")
}
