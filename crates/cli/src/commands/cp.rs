//! `cp [-r] <src>... <dest>`: copies up, down and within the cluster.

use std::ffi::OsString;

use super::Context;
use crate::error::CliError;
use crate::transfer::location::Location;
use crate::transfer::rules::Style;
use crate::transfer::{self, Copy, TransferArgs};

/// Upload or download files
///
/// Works like cp(1): local to `/pfs/…`, `/pfs/…` to local, or `/pfs/…` to `/pfs/…` (copied by the server). `-` is a pipe.
/// Downloading a folder needs no `-r`. Missing folders are created, and a destination that ends with `/` is a folder.
/// Unchanged files are skipped. Run the same command again to resume.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sources, then the destination; `*` and `?` match names on both sides
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<OsString>,

    /// Copy folders and their contents
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,

    #[command(flatten)]
    transfer: TransferArgs,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (dest, sources) = args.paths.split_last().expect("clap requires two");
    let copy = Copy {
        sources: Location::parse_all(sources)?,
        dest: Location::parse(dest)?,
        recursive: args.recursive,
        style: Style::Cp,
    };
    transfer::copy(copy, &args.transfer, context).await
}
