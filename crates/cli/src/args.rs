//! The command line as types, and what is said when it cannot be read.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::compat;
use crate::error::CliError;

/// Trains models on many machines as easily as on one.
#[derive(Debug, Parser)]
#[command(
    name = "paddlectl",
    disable_help_subcommand = true,
    disable_version_flag = true,
    disable_help_flag = true,
    infer_long_args = false
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalFlags,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The flags every command takes.
#[derive(Debug, Clone, clap::Args)]
pub struct GlobalFlags {
    /// Read this configuration instead of `~/.paddle/config` (also: PADDLE_CONFIG)
    #[arg(long, global = true, value_name = "FILE", help_heading = "Top-level flags")]
    pub config: Option<PathBuf>,

    /// Use this datacenter of the configuration for one command (also: PADDLE_DATACENTER)
    #[arg(long, global = true, value_name = "NAME", help_heading = "Top-level flags")]
    pub datacenter: Option<String>,

    /// Show help
    #[arg(long, short = 'h', global = true, help_heading = "Top-level flags")]
    pub help: bool,

    /// Show the version
    #[arg(long, short = 'V', help_heading = "Top-level flags")]
    pub version: bool,
}

/// The commands' definition under the name the program was called by.
pub fn definition(program: &str) -> clap::Command {
    let mut command = Cli::command()
        .name(program.to_owned())
        .bin_name(program.to_owned());
    command.build();
    command
}

/// Reads a command line.
pub fn parse(program: &str, args: Vec<OsString>) -> Result<Cli, CliError> {
    let command = definition(program);
    let args = compat::rewrite(&command, args);
    if let Some(path) = help_wanted(&command, &args) {
        return Ok(help_cli(path));
    }
    let line = std::iter::once(OsString::from(program)).chain(args);
    command
        .try_get_matches_from(line)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| usage_error(program, &error))
}

/// `--help` anywhere before `--` beats every missing argument; gives the words of the command it belongs to.
fn help_wanted(root: &clap::Command, args: &[OsString]) -> Option<Vec<String>> {
    let before_stop = args.iter().take_while(|arg| *arg != "--");
    let texts: Vec<&str> = before_stop.filter_map(|arg| arg.to_str()).collect();
    if !texts.iter().any(|text| matches!(*text, "--help" | "-h")) {
        return None;
    }
    let mut path = Vec::new();
    let mut current = root;
    for word in texts {
        if let Some(next) = current.find_subcommand(word) {
            path.push(next.get_name().to_owned());
            current = next;
        }
    }
    Some(path)
}

fn help_cli(path: Vec<String>) -> Cli {
    Cli {
        global: GlobalFlags {
            config: None,
            datacenter: None,
            help: false,
            version: false,
        },
        command: Some(Command::Help(crate::commands::help::Args { command: path })),
    }
}

/// Clap's findings in our words' form: one sentence, hints behind it.
fn usage_error(program: &str, error: &clap::Error) -> CliError {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n");
    let first = paragraphs.next().unwrap_or_default().trim();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let mut message: String = first.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        message = "a subcommand is missing".to_owned();
    }
    let mut hints: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        .map(|tip| backticks(tip))
        .collect();
    if hints.is_empty()
        && let Some(valid) = error.get(ContextKind::ValidValue)
        && !valid.to_string().is_empty()
        && !message.contains("possible values")
    {
        hints.push(format!("possible: {valid}"));
    }
    let topic = command_of(&text, program);
    hints.push(format!("`{program} help{topic}` shows how it is used"));
    CliError::Usage {
        message: backticks(&message),
        hints,
    }
}

/// The command named in clap's usage line, to point at its help.
fn command_of(text: &str, program: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let words = usage.and_then(|usage| usage.strip_prefix(program)).unwrap_or("");
    let plain = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let names: Vec<&str> = words.split_whitespace().take_while(plain).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" {}", names.join(" "))
    }
}

/// Clap quotes with `'`; our messages use backticks around what is typed. An apostrophe inside a value stays.
fn backticks(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut open = false;
    let swap = |(at, c): (usize, &char)| {
        if *c != '\'' {
            return *c;
        }
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1).copied();
        let opens = !open && before.is_none_or(|c| c.is_whitespace() || "([".contains(c));
        let closes = open && after.is_none_or(|c| c.is_whitespace() || ":,;)].".contains(c));
        if opens || closes {
            open = !open;
            return '`';
        }
        '\''
    };
    chars.iter().enumerate().map(swap).collect()
}
