//! `flags [command]`: the top-level flags, or those of one command.

use super::{Context, done, help::unknown};
use crate::error::CliError;
use crate::help;

/// List top-level flags, or those of a command
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The command; default: the top-level flags
    pub command: Vec<String>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let text = help::flags(context.program, &args.command).ok_or_else(|| unknown(&args.command))?;
    context.world.out.bytes(text.as_bytes())?;
    done()
}
