//! `cp [-r] <src>... <dest>`: copies up, down and within the cluster.

use std::ffi::OsString;

use super::Context;
use crate::error::CliError;
use crate::transfer::location::Location;
use crate::transfer::rules::Style;
use crate::transfer::{self, Copy, TransferArgs};

/// Upload or download files
///
/// As cp(1): from here to `/pfs/…`, from `/pfs/…` to here, or from `/pfs/…` to `/pfs/…` (then the server copies and no
/// byte comes here). `-` is a pipe. A folder that is downloaded needs no `-r`; folders on the way to the destination are
/// made, and a destination that ends with `/` is a folder. What is there already is not sent again, and the same command
/// goes on after an interruption.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to copy, then where to; `*` and `?` stand for names on both sides
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<OsString>,

    /// Also what is inside of folders
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,

    #[command(flatten)]
    transfer: TransferArgs,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (dest, sources) = args.paths.split_last().expect("clap asks for two");
    let copy = Copy {
        sources: Location::parse_all(sources.iter().map(OsString::as_os_str))?,
        dest: Location::parse(dest)?,
        recursive: args.recursive,
        style: Style::Cp,
    };
    transfer::copy(copy, &args.transfer, context).await
}
