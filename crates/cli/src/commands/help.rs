//! `help [command]`: the overview, or all about one command.

use super::{Context, done};
use crate::error::CliError;
use crate::help;
use crate::nearest::nearest;

/// Describe subcommands and their syntax
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// The command to describe; all of them in short when left out
    pub command: Vec<String>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let text = if args.command.is_empty() {
        help::overview(context.program)
    } else {
        help::of_command(context.program, &args.command).ok_or_else(|| unknown(&args.command))?
    };
    context.world.out.line(text.trim_end_matches('\n'))?;
    done()
}

/// A command that does not exist, with the nearest one that does.
pub fn unknown(path: &[String]) -> CliError {
    let wanted = path.join(" ");
    let error = CliError::usage(format!("there is no command `{wanted}`"));
    let first = path.first().map_or("", String::as_str);
    match nearest(first, help::command_names()) {
        Some(name) => error.with_hint(format!("did you mean `{name}`?")),
        None => error.with_hint("`commands` lists all of them"),
    }
}
