//! `commands`: every command's name, one per line.

use super::{Context, done};
use crate::error::CliError;
use crate::help;

/// List all command names
#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    for name in help::command_names() {
        context.world.out.line(name)?;
    }
    done()
}
