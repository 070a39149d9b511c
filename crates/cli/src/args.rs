//! The command line as types, and the messages when it cannot be parsed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};
use paddlecloud_core::spec::shell_quote;

use crate::commands::Command;
use crate::compat;
use crate::config::ConfigOverrides;
use crate::error::CliError;
use crate::nearest::is_near;

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

impl GlobalFlags {
    /// The flags that select a server, as a shell reads them.
    pub fn selection(&self) -> String {
        let config = self
            .config
            .as_ref()
            .map(|file| file.to_string_lossy().into_owned());
        let flags = [("--config", config), ("--datacenter", self.datacenter.clone())];
        let typed = |(flag, value): (&str, Option<String>)| Some(format!("{flag} {}", shell_quote(&value?)));
        flags.into_iter().filter_map(typed).collect::<Vec<_>>().join(" ")
    }

    /// The server these flags select.
    pub fn overrides(&self) -> ConfigOverrides {
        ConfigOverrides {
            config: self.config.clone(),
            datacenter: self.datacenter.clone(),
        }
    }
}

/// Help is wrapped here, or at the edge of a narrower terminal.
pub const HELP_WIDTH: usize = 100;

/// The definition of all commands, under the name the program was called by.
pub fn definition(program: &str) -> clap::Command {
    let mut command = Cli::command()
        .name(program.to_owned())
        .bin_name(program.to_owned())
        .term_width(HELP_WIDTH);
    command.build();
    command
}

/// Reads a command line.
pub fn parse(program: &str, args: Vec<OsString>) -> Result<Cli, CliError> {
    let command = definition(program);
    let flags = flags_of(&args);
    let args = compat::rewrite(&command, args);
    let path = command_path(&command, &args);
    let typed = Typed::of(flags, &command, &path);
    if wants_help(&command, &path, &args) {
        return Ok(help_cli(path));
    }
    let line = std::iter::once(OsString::from(program)).chain(args);
    command
        .try_get_matches_from(line)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| usage_error(program, &path, &typed, &error))
}

/// `--help` anywhere before `--` overrides missing arguments; so does `-h`, unless the command has its own (`ls -h`).
fn wants_help(root: &clap::Command, path: &[String], args: &[OsString]) -> bool {
    let named = path
        .iter()
        .try_fold(root, |command, name| command.find_subcommand(name));
    let has_own = named.is_some_and(|command| {
        let mut args = command.get_arguments();
        args.any(|arg| arg.get_short() == Some('h') && arg.get_long() != Some("help"))
    });
    let mut before_stop = args.iter().take_while(|arg| *arg != "--");
    before_stop.any(|arg| arg == "--help" || (arg == "-h" && !has_own))
}

/// The command's names among the words, from the first to the innermost.
fn command_path(root: &clap::Command, args: &[OsString]) -> Vec<String> {
    let mut path = Vec::new();
    let mut current = root;
    for word in args.iter().take_while(|arg| *arg != "--") {
        if let Some(next) = word.to_str().and_then(|word| current.find_subcommand(word)) {
            path.push(next.get_name().to_owned());
            current = next;
        }
    }
    path
}

fn help_cli(path: Vec<String>) -> Cli {
    Cli {
        global: GlobalFlags {
            config: None,
            datacenter: None,
            help: false,
            version: false,
        },
        command: Some(Command::Help(crate::commands::help::Args {
            command: path,
            markdown: false,
        })),
    }
}

/// Clap's errors in our form: one sentence, then hints.
fn usage_error(program: &str, path: &[String], typed: &Typed, error: &clap::Error) -> CliError {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let mut message: String = first.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        message = "a subcommand is missing".to_owned();
    }
    if error.kind() == ErrorKind::TooFewValues && message.contains("<DEST>") {
        message = "the destination is missing".to_owned();
    }
    if let Some(missing) = message.strip_prefix("the following required arguments were not provided: ") {
        message = format!("{} is missing", in_words(missing));
    }
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    let mut hints: Vec<String> = tips
        .filter(|tip| !tip.starts_with("to pass") && !is_far_guess(tip, error))
        .map(|tip| typed.form(&backticks(tip)))
        .collect();
    if let Some(meant) = meant_by(error) {
        hints = vec![format!("`{program} {meant}` does that")];
    }
    let words = [&["help".to_owned()], path].concat().join(" ");
    hints.push(match path {
        [] => format!("`{program} help` lists all commands"),
        _ => format!("`{program} {words}` shows how it is used"),
    });
    CliError::Usage {
        message: typed.form(&backticks(&message)),
        hints,
    }
}

/// Clap's `<JOB|--all>` as `<JOB> or --all`.
fn in_words(missing: &str) -> String {
    let choice = missing.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    match choice.filter(|choice| choice.contains('|')) {
        Some(choice) => choice
            .split('|')
            .map(|one| match one.starts_with('-') {
                true => one.to_owned(),
                false => format!("<{one}>"),
            })
            .collect::<Vec<_>>()
            .join(" or "),
        None => missing.to_owned(),
    }
}

/// Names that other programs have for our commands.
const SYNONYMS: [(&str, &str); 6] = [
    ("cancel", "kill"),
    ("list", "get jobs"),
    ("ps", "get jobs"),
    ("run", "submit"),
    ("stop", "kill"),
    ("tail", "logs -f"),
];

fn meant_by(error: &clap::Error) -> Option<&'static str> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) => {
            let known = SYNONYMS.iter().find(|(synonym, _)| synonym == word);
            known.map(|(_, command)| *command)
        }
        _ => None,
    }
}

/// Clap suggests words that are too far from what was typed.
fn is_far_guess(tip: &str, error: &clap::Error) -> bool {
    let kinds = [
        ContextKind::InvalidSubcommand,
        ContextKind::InvalidValue,
        ContextKind::InvalidArg,
    ];
    let wrong = kinds.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.trim_start_matches('-')),
        _ => None,
    });
    let guesses = tip.split('\'').skip(1).step_by(2);
    tip.contains("similar")
        && wrong.is_some_and(|wrong| {
            let mut guesses = guesses.map(|guess| guess.trim_start_matches('-'));
            !guesses.any(|guess| is_near(wrong, guess))
        })
}

/// The flags of a command line, without their values.
fn flags_of(args: &[OsString]) -> Vec<String> {
    let before_stop = args.iter().take_while(|arg| *arg != "--");
    let flags = before_stop
        .filter_map(|arg| arg.to_str())
        .filter(|arg| arg.starts_with('-'));
    let names = flags.map(|flag| flag.split_once('=').map_or(flag, |(name, _)| name));
    names.map(str::to_owned).collect()
}

/// The flags as typed, so that messages use the same form.
struct Typed {
    flags: Vec<String>,
    /// What was typed for a flag, by clap's name for it.
    spelled: Vec<(String, String)>,
}

impl Typed {
    fn of(flags: Vec<String>, root: &clap::Command, path: &[String]) -> Typed {
        let spelled = flags.iter().filter_map(|flag| {
            let long = long_name(flag, root, path)?;
            Some((long, flag.clone()))
        });
        Typed {
            spelled: spelled.collect(),
            flags,
        }
    }

    /// Rewrites the long flags in `text`, which have two dashes there, to the form used on the command line.
    fn form(&self, text: &str) -> String {
        let mut parts = text.split("`--");
        let mut formed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
            let name = part.split(is_end).next().unwrap_or_default();
            let dashes = if self.has_one_dash(name) { "-" } else { "--" };
            let shown = match self.spelled.iter().find(|(long, _)| long == name) {
                Some((_, typed)) => typed.clone(),
                None => format!("{dashes}{name}"),
            };
            formed.push('`');
            formed.push_str(&shown);
            formed.push_str(&part[name.len()..]);
        }
        formed
    }

    /// A flag that was not typed gets the form of those that were.
    fn has_one_dash(&self, name: &str) -> bool {
        let typed = |dashes: &str| {
            self.flags
                .iter()
                .any(|flag| flag.strip_prefix(dashes) == Some(name))
        };
        let other_style = || self.flags.iter().any(|flag| flag.starts_with("--"));
        !name.is_empty() && !typed("--") && (typed("-") || !other_style())
    }
}

/// Clap's name for a flag of the command at `path`.
fn long_name(flag: &str, root: &clap::Command, path: &[String]) -> Option<String> {
    let mut commands = vec![root];
    for name in path {
        commands.extend(commands.last().and_then(|command| command.find_subcommand(name)));
    }
    let name = flag.trim_start_matches('-');
    let short = flag
        .strip_prefix('-')
        .and_then(|letter| letter.parse::<char>().ok());
    let is_it = |arg: &&clap::Arg| {
        let letters = arg.get_short_and_visible_aliases().unwrap_or_default();
        let words = arg.get_all_aliases().unwrap_or_default();
        match short {
            Some(letter) => letters.contains(&letter),
            None => arg.get_long() == Some(name) || words.contains(&name),
        }
    };
    let mut args = commands.iter().rev().flat_map(|command| command.get_arguments());
    args.find(is_it)?.get_long().map(str::to_owned)
}

/// Clap quotes with `'`; our messages put backticks around what can be typed. An apostrophe inside a value stays.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asks_for_help(line: &str) -> bool {
        let words = line.split(' ').map(OsString::from).collect();
        let cli = parse("paddlectl", words).unwrap();
        matches!(cli.command, Some(Command::Help(_)))
    }

    fn refused(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        parse("paddlectl", words).unwrap_err().to_string()
    }

    #[test]
    fn flags_are_quoted_as_they_were_typed() {
        assert!(refused("submit -parallelism many x").contains("for `-parallelism <NUMBER>`"));
        assert!(refused("submit --parallelism many x").contains("for `--parallelism <NUMBER>`"));
        assert!(refused("submit --cpu 1 -gpu many x").contains("for `-gpu <NUMBER>`"));
        assert!(refused("logs -n ten x").contains("for `-n <NUMBER>`"));
        assert!(refused("logs --tail ten x").contains("for `--tail <NUMBER>`"));
        assert!(refused("submit -p many x").contains("for `-p <NUMBER>`"));
        assert!(refused("kill -o x").contains("`-o`"));
        assert!(refused("kill -outpt x").contains("`-outpt`"));
    }

    #[test]
    fn a_short_h_is_help_unless_the_command_has_its_own() {
        assert!(asks_for_help("cp -h"));
        assert!(asks_for_help("-h"));
        assert!(asks_for_help("pfs -h"));
        for line in ["ls -l -h", "pfs ls -h", "du -h"] {
            assert!(!asks_for_help(line), "{line}");
        }
        for line in ["ls --help", "pfs ls -help", "du -h --help"] {
            assert!(asks_for_help(line), "{line}");
        }
    }
}
