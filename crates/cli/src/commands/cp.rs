//! `cp [-r] <src>... <dest>`: copies up, down and within the cluster.

use super::not_there_yet;
use crate::error::CliError;

/// Upload or download files
///
/// As cp(1): from here to `/pfs/…`, from `/pfs/…` to here, or from `/pfs/…` to `/pfs/…`. A folder that is downloaded
/// needs no `-r`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to copy, then where to
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<String>,

    /// Also what is inside of folders
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("cp")
}
