//! `data`: prepares data sets and looks at them.

use super::not_there_yet;
use crate::error::CliError;

/// Prepare and look at data sets
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do with them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run(_: &Args) -> Result<u8, CliError> {
    not_there_yet("data")
}
