//! `sync <src> <dest>`: copies to one folder what is new or changed in another.

use std::ffi::OsString;

use super::Context;
use crate::error::CliError;
use crate::transfer::location::Location;
use crate::transfer::{self, Mirror, TransferArgs};

/// Copy new and changed files from a local folder to a remote one, or vice versa
///
/// Copies to DEST whatever is different in SRC; a trailing `/` makes no difference. Only changes are sent. With
/// `--delete`, files that SRC lacks are deleted last, and only if SRC was read and copied completely. Excluded files are
/// neither sent nor deleted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The source folder
    src: OsString,

    /// The folder to change
    dest: OsString,

    /// Delete files that the source lacks
    #[arg(long)]
    delete: bool,

    #[command(flatten)]
    transfer: TransferArgs,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let mirror = Mirror {
        src: Location::parse(&args.src)?,
        dest: Location::parse(&args.dest)?,
        delete: args.delete,
    };
    transfer::mirror(mirror, &args.transfer, context).await
}
