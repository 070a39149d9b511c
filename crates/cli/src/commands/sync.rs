//! `sync <src> <dest>`: makes one folder like another.

use std::ffi::OsString;

use super::Context;
use crate::error::CliError;
use crate::transfer::location::Location;
use crate::transfer::{self, Mirror, TransferArgs};

/// Make a remote folder like a local one, or the other way round
///
/// The contents of SRC become the contents of DEST, with or without `/` at their ends. Only what differs travels. What
/// `--exclude` leaves out is neither sent nor deleted; when SRC cannot be read completely, nothing is deleted. What only
/// DEST has goes last, and not at all when something could not be copied.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder as it should be
    src: OsString,

    /// The folder that is changed
    dest: OsString,

    /// Also remove what the first one lacks
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
