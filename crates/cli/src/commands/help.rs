//! `help [command]`: the overview, or the full help of one command.

use super::{Context, done};
use crate::error::CliError;
use crate::help;
use crate::nearest::nearest;

/// Describe subcommands and their syntax
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// The command to describe; default: an overview
    pub command: Vec<String>,

    /// Print the reference page of all commands
    #[arg(long, hide = true, conflicts_with = "command")]
    pub markdown: bool,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let text = if args.markdown {
        help::reference(context.program)
    } else if args.command.is_empty() {
        help::overview(context.program)
    } else {
        let columns = context.world.out.terminal_columns().unwrap_or(usize::MAX);
        help::of_command(context.program, &args.command, columns).ok_or_else(|| unknown(&args.command))?
    };
    context.world.out.line(text.trim_end_matches('\n'))?;
    done()
}

/// An unknown command, with the nearest known one.
pub fn unknown(path: &[String]) -> CliError {
    let typed = path.join(" ");
    let error = CliError::usage(format!("there is no command `{typed}`"));
    let first = path.first().map_or("", String::as_str);
    match nearest(first, help::command_names()) {
        Some(name) => error.with_hint(format!("did you mean `{name}`?")),
        None => error.with_hint("`commands` lists all of them"),
    }
}
