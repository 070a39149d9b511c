//! The help of the whole program: the groups of the submit guide and ours; lists of names and flags.

use crate::args;

/// A group of the overview: its title and its commands.
struct Group {
    title: &'static str,
    commands: &'static [(&'static str, &'static str)],
}

const GROUPS: [Group; 5] = [
    Group {
        title: "Subcommands",
        commands: &[
            ("commands", "list all command names"),
            ("delete", "Delete the specified resource."),
            ("file", "Simple file operations."),
            ("get", "Print resources"),
            ("help", "describe subcommands and their syntax"),
            ("kill", "Stop the job. -rm will remove the job from history."),
            ("logs", "Print logs of the job."),
            ("registry", "Add registry secret on paddlectl."),
            ("submit", "Submit job to PaddlePaddle Cloud."),
        ],
    },
    Group {
        title: "Subcommands for PFS",
        commands: &[
            ("cp", "upload or download files"),
            ("ls", "List files on PaddlePaddle Cloud"),
            ("mkdir", "mkdir directories on PaddlePaddle Cloud"),
            ("rm", "rm files on PaddlePaddle Cloud"),
        ],
    },
    Group {
        title: "More subcommands for PFS",
        commands: &[
            ("cat", "print files"),
            ("check", "compare a local folder with a remote one"),
            ("data", "prepare and inspect data sets"),
            ("du", "show how much space files take"),
            ("mv", "move or rename files"),
            ("pfs", "the same commands, as `pfs cp` and so on"),
            ("publish", "share a file with a link"),
            ("stat", "show the metadata of a file"),
            ("sync", "copy new and changed files"),
        ],
    },
    Group {
        title: "More subcommands for jobs",
        commands: &[
            ("describe", "Show everything about a job."),
            ("jobs", "List running jobs."),
            ("output", "Download the results of a job."),
            ("prune", "Remove ended jobs from history."),
            ("rerun", "Submit a job again unchanged."),
            ("secret", "Store secrets for jobs."),
            ("wait", "Wait until a job has ended."),
            ("why", "Explain why a job waits or failed."),
        ],
    },
    Group {
        title: "Subcommands for this client",
        commands: &[
            ("admin", "manage accounts, groups and the audit log"),
            ("cert", "log in with a certificate instead of a password"),
            ("completion", "print a completion script for a shell"),
            ("config", "show the configuration, choose a datacenter"),
            ("doctor", "check programs written for Paddle of 2016 and 2017"),
            ("flags", "list top-level flags, or those of a command"),
            ("login", "log in and store a token"),
            ("logout", "revoke the stored token"),
            ("passwd", "change your password"),
            (
                "pserver",
                "inspect parameter servers, saved models and checkpoints",
            ),
            ("server", "start or stop the embedded server, or show its state"),
            ("token", "create, list and revoke tokens"),
            ("version", "print the version"),
            ("whoami", "print user, datacenter and home"),
        ],
    },
];

/// The output of `paddlectl` without arguments.
pub fn overview(program: &str) -> String {
    let mut text = format!("Usage: {program} <flags> <subcommand> <subcommand args>\n");
    for group in &GROUPS {
        text.push_str(&format!("\n{}:\n", group.title));
        for (name, about) in group.commands {
            let about = about.replace("paddlectl", program);
            text.push_str(&format!("\t{name:<16} {about}\n"));
        }
    }
    text.push_str(&format!(
        "\n\nUse \"{program} flags\" for a list of top-level flags\n\
         Use \"{program} help submit\" for the help of a command\n"
    ));
    text
}

/// All command names, sorted.
pub fn command_names() -> Vec<&'static str> {
    let all = GROUPS.iter().flat_map(|group| group.commands);
    let mut names: Vec<&str> = all.map(|(name, _)| *name).collect();
    names.sort_unstable();
    names
}

/// The full help of one command, in lines of at most this many columns; `None` if there is no such command.
pub fn of_command(program: &str, path: &[String], columns: usize) -> Option<String> {
    let mut command = args::definition(program);
    for word in path {
        command = command.find_subcommand(word)?.clone();
    }
    let mut command = command.term_width(columns.min(args::HELP_WIDTH));
    Some(command.render_long_help().to_string())
}

/// Every command with its full help, as the page `docs/reference/commands.md`.
pub fn reference(program: &str) -> String {
    let mut page = String::from(
        "# Commands\n\n\
         <!-- Written by `cargo xtask spec`. Change the commands' doc comments instead. -->\n\n\
         Long flags take one dash or two: `-jobname x`, `--jobname x`, `--jobname=x`. Every command also takes `--config`,\n\
         `--datacenter` and `--help`. [Exit codes](exit-codes.md) are the same for all.\n",
    );
    let definition = args::definition(program);
    for command in definition.get_subcommands() {
        add_to_reference(&mut page, program, command, 2);
    }
    page
}

fn add_to_reference(page: &mut String, parent: &str, command: &clap::Command, level: usize) {
    if command.is_hide_set() {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let help = command.clone().render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let marks = "#".repeat(level);
    page.push_str(&format!(
        "\n{marks} `{name}`\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    ));
    for inner in command.get_subcommands() {
        add_to_reference(page, &name, inner, level + 1);
    }
}

/// Flags, one per line with what they mean: of the whole program, or of one command.
pub fn flags(program: &str, path: &[String]) -> Option<String> {
    let mut command = args::definition(program);
    for word in path {
        command = command.find_subcommand(word)?.clone();
    }
    let mut text = String::new();
    for arg in command.get_arguments() {
        let (Some(long), Some(about)) = (arg.get_long(), arg.get_help()) else {
            continue;
        };
        if arg.is_hide_set() || (arg.is_global_set() && !path.is_empty()) {
            continue;
        }
        let short = arg
            .get_short()
            .map(|letter| format!(", -{letter}"))
            .unwrap_or_default();
        text.push_str(&format!("\t-{long}{short}\n\t\t{about}\n"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_wrapped_at_the_edge_of_a_narrow_terminal() {
        let widest = |columns| {
            let help = of_command("paddlectl", &["submit".to_owned()], columns).unwrap();
            help.lines().map(|line| line.chars().count()).max().unwrap()
        };
        assert!((81..=100).contains(&widest(usize::MAX)), "{}", widest(usize::MAX));
        assert!(widest(80) <= 80, "{}", widest(80));
    }

    #[test]
    fn the_overview_lists_every_command_once_and_only_real_ones() {
        let definition = args::definition("paddlectl");
        let mut real: Vec<&str> = definition
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        real.sort_unstable();
        assert_eq!(command_names(), real);
    }
}
