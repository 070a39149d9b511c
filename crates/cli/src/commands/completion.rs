//! `completion <shell>`: a script that completes commands and flags.

use clap_complete::Shell;

use super::{Context, done};
use crate::args;
use crate::error::CliError;

/// Print a completion script for a shell
///
/// For bash: `source <(paddlectl completion bash)`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell the script is for
    shell: Shell,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let mut script = Vec::new();
    let mut definition = args::definition(context.program);
    clap_complete::generate(args.shell, &mut definition, context.program, &mut script);
    context.world.out.bytes(&script)?;
    done()
}
