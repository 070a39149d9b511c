//! `registry`: stores the credentials of an image registry.

use super::not_there_yet;
use crate::error::CliError;

/// Add registry secret on paddlectl.
///
/// Comes with a later version; until then it only says so.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name `submit -registry` uses
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The user at the registry
    #[arg(long, value_name = "USER")]
    username: Option<String>,

    /// Their password; read from stdin when left out
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,

    /// The registry's address
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("registry")
}
