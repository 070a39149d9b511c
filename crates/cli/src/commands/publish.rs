//! `publish <path>`: shares files by a link.

use super::not_there_yet;
use crate::error::CliError;

/// Share files by a link
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A path `/pfs/…`
    path: String,

    /// How long the link works: `12h`, `7d`
    #[arg(long, value_name = "TIME", value_parser = crate::time_text::parse_span)]
    expires: Option<std::time::Duration>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("publish")
}
