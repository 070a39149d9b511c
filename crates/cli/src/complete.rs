//! What can complete an unfinished command line.
//!
//! Reads the commands' own definitions; `commands::completion` asks the server for jobs, workers and paths.

use clap::{Arg, ArgAction, Command};

/// What completes the last word.
#[derive(Debug, PartialEq, Eq)]
pub enum Sought {
    /// One of these; only those that begin like the last word.
    Words(Vec<String>),
    Jobs,
    /// Datacenters of the configuration.
    Datacenters,
    /// Workers of this job, or of all running jobs.
    Workers(Option<String>),
    /// A path below `/pfs`.
    Remote,
    /// What the shell would offer: usually files.
    Nothing,
}

/// What completes the last of these words, which follow the program's name. The last may be empty.
pub fn sought(root: &Command, words: &[String]) -> Sought {
    let Some((last, before)) = words.split_last() else {
        return Sought::Nothing;
    };
    let line = Line::read(root, before);
    if line.is_over {
        return Sought::Nothing;
    }
    if let Some(arg) = line.value_of {
        return line.of_arg(arg, last);
    }
    if last.starts_with('-') {
        return Sought::Words(beginning(line.flags(last), last));
    }
    let subcommands: Vec<String> = line
        .command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    if !subcommands.is_empty() && line.positionals.is_empty() {
        return Sought::Words(beginning(subcommands, last));
    }
    match line.positional() {
        Some(arg) => line.of_arg(arg, last),
        None => Sought::Nothing,
    }
}

/// The words before the last one.
struct Line<'a> {
    /// From the root to the innermost command.
    path: Vec<&'a Command>,
    positionals: Vec<&'a str>,
    /// The flag whose value the last word is.
    value_of: Option<&'a Arg>,
    /// Whether `--` was found: what follows is not ours.
    is_over: bool,
}

impl<'a> Line<'a> {
    fn read(root: &'a Command, words: &'a [String]) -> Line<'a> {
        let mut line = Line {
            path: vec![root],
            positionals: Vec::new(),
            value_of: None,
            is_over: false,
        };
        for word in words {
            line.take(word);
        }
        line
    }

    fn take(&mut self, word: &'a str) {
        // Bash makes the `=` in `--role=trainer` a separate word.
        if word == "=" && self.value_of.is_some() {
            return;
        }
        if self.value_of.take().is_some() {
            return;
        }
        if word == "--" {
            self.is_over = true;
        } else if word.starts_with('-') && word != "-" {
            self.value_of = self.flag(word).filter(|arg| takes_value(arg));
        } else if let Some(command) = self.command().find_subcommand(word) {
            self.path.push(command);
        } else {
            self.positionals.push(word);
        }
    }

    fn command(&self) -> &'a Command {
        self.path.last().expect("the root is always there")
    }

    /// Flags of the innermost command, and those of every command.
    fn args(&self) -> impl Iterator<Item = &'a Arg> {
        let command = self.command();
        command.get_arguments().filter(|arg| !arg.is_hide_set())
    }

    fn flag(&self, word: &str) -> Option<&'a Arg> {
        if word.contains('=') {
            return None;
        }
        let name = word.trim_start_matches('-');
        self.args().find(|arg| {
            let short = arg.get_short().map(String::from);
            let is_short = short.as_deref() == Some(name) && !word.starts_with("--");
            is_short
                || arg.get_long() == Some(name)
                || arg.get_all_aliases().unwrap_or_default().contains(&name)
        })
    }

    /// Long flags with as many dashes as typed; after a single dash each is listed once.
    fn flags(&self, typed: &str) -> Vec<String> {
        let dashes = match typed.starts_with("--") || typed == "-" {
            true => "--",
            false => "-",
        };
        let longs = self.args().filter_map(Arg::get_long);
        longs.map(|long| format!("{dashes}{long}")).collect()
    }

    /// The next positional argument; the last one may be repeated.
    fn positional(&self) -> Option<&'a Arg> {
        let all: Vec<&Arg> = self
            .command()
            .get_positionals()
            .filter(|arg| !arg.is_last_set())
            .collect();
        let next = all.get(self.positionals.len()).copied();
        next.or_else(|| {
            all.last()
                .copied()
                .filter(|arg| matches!(arg.get_action(), ArgAction::Append))
        })
    }

    fn of_arg(&self, arg: &Arg, last: &str) -> Sought {
        let values = arg.get_possible_values();
        let names = values.iter().filter(|value| !value.is_hide_set());
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        match arg.get_id().as_str() {
            _ if !names.is_empty() => Sought::Words(beginning(names, last)),
            "job" if self.command().get_name() == "get" && !self.lists_workers() => Sought::Nothing,
            "job" | "jobs" | "resume" => Sought::Jobs,
            "datacenter" => Sought::Datacenters,
            "name" if self.command().get_name() == "use" => Sought::Datacenters,
            "worker" => Sought::Workers(self.positionals.first().map(|job| (*job).to_owned())),
            "command" if self.path.len() == 2 => {
                let commands = self.path[0].get_subcommands();
                let commands = commands.filter(|command| !command.is_hide_set());
                let names = commands.map(|command| command.get_name().to_owned());
                Sought::Words(beginning(names.collect(), last))
            }
            _ if last.starts_with("/pfs") => Sought::Remote,
            _ => Sought::Nothing,
        }
    }

    fn lists_workers(&self) -> bool {
        self.positionals
            .first()
            .is_some_and(|what| what.starts_with("worker"))
    }
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn beginning(mut words: Vec<String>, last: &str) -> Vec<String> {
    words.retain(|word| word.starts_with(last));
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::definition;

    fn of(line: &str) -> Sought {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        sought(&definition("paddlectl"), &words)
    }

    fn words(line: &str) -> String {
        match of(line) {
            Sought::Words(words) => words.join(" "),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_and_flags_come_from_their_definitions() {
        assert_eq!(words("ki"), "kill");
        assert_eq!(words("server st"), "start status stop");
        assert_eq!(words("submit -job"), "-jobname");
        assert_eq!(words("submit --job"), "--jobname");
        assert_eq!(words("kill -r"), "-rm");
        assert!(words("kill -").split(' ').all(|flag| flag.starts_with("--")));
        assert_eq!(words("submit -output js"), "json");
        assert_eq!(words("logs --role = tr"), "trainer");
        assert_eq!(words("get w"), "workers");
        assert_eq!(words("help desc"), "describe");
    }

    #[test]
    fn jobs_workers_and_paths_are_completed_where_they_belong() {
        for line in [
            "kill ",
            "kill a b",
            "logs -f he",
            "why ",
            "get workers ",
            "-datacenter dc wait ",
        ] {
            assert_eq!(of(line), Sought::Jobs, "{line}");
        }
        for line in [
            "config use ",
            "config use-datacenter d",
            "-datacenter d",
            "get jobs --datacenter ",
        ] {
            assert_eq!(of(line), Sought::Datacenters, "{line}");
        }
        assert_eq!(of("logs -w "), Sought::Workers(None));
        assert_eq!(of("logs hello -w tr"), Sought::Workers(Some("hello".to_owned())));
        for line in [
            "ls /pfs",
            "cp -r data /pfs/local/",
            "pfs rm /pfs/x",
            "submit /pfs/a",
            "cp /pfs/a /pfs/b",
        ] {
            assert_eq!(of(line), Sought::Remote, "{line}");
        }
        for line in [
            "cp da",
            "submit ",
            "submit -- python tr",
            "get jobs x",
            "-config fi",
            "submit -jobname ",
        ] {
            assert_eq!(of(line), Sought::Nothing, "{line}");
        }
    }
}
