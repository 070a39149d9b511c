//! `delete registry [name]`: forgets stored credentials.

use super::not_there_yet;
use crate::error::CliError;

/// Delete the specified resource.
///
/// Comes with a later version; until then it only says so.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    resource: Resource,
}

#[derive(Debug, clap::Subcommand)]
enum Resource {
    /// Forget a registry's credentials
    Registry {
        /// Its name; may be left out when there is exactly one
        name: Option<String>,
    },
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("delete")
}
