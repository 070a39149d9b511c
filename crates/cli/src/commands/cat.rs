//! `cat <path>...`: prints files of the cluster.

use std::ffi::OsString;

use super::Context;
use crate::error::CliError;
use crate::transfer::location::reach;
use crate::transfer::print_files;

/// Print files
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; `*` and `?` match names
    #[arg(required = true)]
    paths: Vec<OsString>,

    /// Skip this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = byte_count)]
    offset: u64,

    /// Print at most this many bytes of each file
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    length: Option<u64>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let end = args
        .length
        .map_or(u64::MAX, |length| args.offset.saturating_add(length));
    let is_whole = args.offset == 0 && args.length.is_none();
    let range = (!is_whole).then_some(args.offset..end);
    let (session, paths) = reach(&args.paths, context).await?;
    print_files(&session, &paths, range, context.world).await
}

fn byte_count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number of bytes between 0 and {}", u64::MAX))
}
