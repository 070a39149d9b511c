//! The spellings of the documents: Go's single-dash long flags (`-jobname x`, `-rm`) in addition to clap's own.
//!
//! Rewrites the command line, using the commands' own definitions, before clap parses it; no command is known by name
//! here.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

/// How close a word must be to a long flag to be taken for a misspelling of it.
const SIMILAR: f64 = 0.75;

/// Rewrites `args` (without the program's name) for `root`.
pub fn rewrite(root: &Command, args: Vec<OsString>) -> Vec<OsString> {
    let mut rewriter = Rewriter {
        path: vec![root],
        out: Vec::with_capacity(args.len()),
    };
    let mut args = args.into_iter().peekable();
    while let Some(token) = args.next() {
        if token == "--" {
            rewriter.out.push(token);
            break;
        }
        let takes_value = rewriter.token(token);
        if takes_value && let Some(value) = args.next_if(|next| !rewriter.is_flag(next)) {
            rewriter.join(&value);
        }
    }
    rewriter.out.extend(args);
    rewriter.out
}

struct Rewriter<'a> {
    /// From the root to the command that the next word belongs to.
    path: Vec<&'a Command>,
    out: Vec<OsString>,
}

/// A parsed token that may be a flag.
struct Flag<'t> {
    name: &'t str,
    value: Option<&'t str>,
    double_dash: bool,
}

impl<'t> Flag<'t> {
    fn of(token: &'t OsStr) -> Option<Flag<'t>> {
        let text = token.to_str()?;
        let (body, double_dash) = match text.strip_prefix("--") {
            Some(body) => (body, true),
            None => (text.strip_prefix('-')?, false),
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        (!name.is_empty()).then_some(Flag {
            name,
            value,
            double_dash,
        })
    }
}

impl<'a> Rewriter<'a> {
    /// Rewrites one token; true if its value must be the next one.
    fn token(&mut self, token: OsString) -> bool {
        let Some(flag) = Flag::of(&token) else {
            self.descend(&token);
            self.out.push(token);
            return false;
        };
        let one_char = flag.name.chars().count() == 1 && !flag.double_dash;
        let found = if one_char {
            self.short(flag.name)
        } else {
            self.long(flag.name)
        };
        match found {
            Some(arg) => self.known(arg, &flag, one_char),
            None => {
                self.unknown(&flag, token.clone());
                false
            }
        }
    }

    fn known(&mut self, arg: &Arg, flag: &Flag<'_>, one_char: bool) -> bool {
        let dashes = if one_char { "-" } else { "--" };
        if takes_value(arg) {
            let spelled = match flag.value {
                Some(value) => format!("{dashes}{}={value}", flag.name),
                None => format!("{dashes}{}", flag.name),
            };
            self.out.push(spelled.into());
            return flag.value.is_none();
        }
        // Go accepts `-rm=true` and `-rm=false` for a switch.
        match flag.value {
            Some("false" | "0" | "f" | "F" | "FALSE" | "False") => {}
            Some(value) if !matches!(value, "true" | "1" | "t" | "T" | "TRUE" | "True") => {
                self.out.push(format!("{dashes}{}={value}", flag.name).into());
            }
            _ => self.out.push(format!("{dashes}{}", flag.name).into()),
        }
        false
    }

    /// Passes an unknown flag to clap in a form for which clap can suggest the nearest.
    fn unknown(&mut self, flag: &Flag<'_>, token: OsString) {
        let cluster = self.is_cluster(flag.name);
        let misspelled = self
            .longs()
            .any(|long| strsim::jaro_winkler(long, flag.name) > SIMILAR);
        let number = flag.name.starts_with(|c: char| c.is_ascii_digit());
        let letters = flag.name.chars().count();
        let word = letters > 3 && misspelled;
        if flag.double_dash || letters == 1 || number || (cluster && !word) {
            self.out.push(token);
            return;
        }
        let value = flag.value.map(|value| format!("={value}")).unwrap_or_default();
        self.out.push(format!("--{}{value}", flag.name).into());
    }

    /// Whether these are combined short flags, the last perhaps with its value: `rf`, `n10`, `ojson`.
    fn is_cluster(&self, letters: &str) -> bool {
        for (at, letter) in letters.char_indices() {
            match self.short(&letter.to_string()) {
                None => return false,
                Some(arg) if takes_value(arg) => {
                    return could_be_value(arg, &letters[at + letter.len_utf8()..]);
                }
                Some(_) => {}
            }
        }
        true
    }

    /// Appends the value to the flag before it, so that a leading `-` does not make it a flag.
    fn join(&mut self, value: &OsStr) {
        let flag = self.out.last_mut().expect("a flag was just written");
        flag.push("=");
        flag.push(value);
    }

    fn descend(&mut self, word: &OsStr) {
        let current = self.path.last().expect("the root is always there");
        if let Some(next) = word.to_str().and_then(|word| current.find_subcommand(word)) {
            self.path.push(next);
        }
    }

    /// Whether a token would be parsed as a flag: then the flag before it lacks its value.
    fn is_flag(&self, token: &OsStr) -> bool {
        if token == "--" {
            return true;
        }
        Flag::of(token).is_some_and(|flag| {
            let short =
                !flag.double_dash && flag.name.chars().count() == 1 && self.short(flag.name).is_some();
            short || self.long(flag.name).is_some()
        })
    }

    fn args(&self) -> impl Iterator<Item = &'a Arg> {
        let here = self.path.len() - 1;
        self.path
            .iter()
            .enumerate()
            .flat_map(move |(depth, command)| {
                command
                    .get_arguments()
                    .filter(move |arg| depth == here || arg.is_global_set())
            })
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn long(&self, name: &str) -> Option<&'a Arg> {
        self.args()
            .find(|arg| arg.get_long() == Some(name) || aliases(arg).contains(&name))
    }

    fn short(&self, name: &str) -> Option<&'a Arg> {
        let letter = name.chars().next()?;
        self.args().find(|arg| {
            arg.get_short() == Some(letter)
                || arg
                    .get_all_short_aliases()
                    .is_some_and(|all| all.contains(&letter))
        })
    }

    fn longs(&self) -> impl Iterator<Item = &'a str> {
        self.args().filter_map(Arg::get_long)
    }
}

fn aliases(arg: &Arg) -> Vec<&str> {
    arg.get_all_aliases().unwrap_or_default()
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Whether the flag accepts this value; `None` means that the value is still to come.
fn could_be_value(arg: &Arg, text: &str) -> bool {
    let possible = arg.get_possible_values();
    text.is_empty() || possible.is_empty() || possible.iter().any(|value| value.matches(text, true))
}

#[cfg(test)]
mod tests {
    use crate::args::definition;

    fn rewritten(line: &str) -> String {
        let words = line.split(' ').map(Into::into).collect();
        let out = super::rewrite(&definition("paddlectl"), words);
        let out: Vec<String> = out.into_iter().map(|word| word.into_string().unwrap()).collect();
        out.join(" ")
    }

    #[test]
    fn single_dash_long_flags_become_double_and_keep_their_values() {
        assert_eq!(
            rewritten("submit -jobname my-job -cpu=1 -parallelism 10 pkg -psmemory 1Gi"),
            "submit --jobname=my-job --cpu=1 --parallelism=10 pkg --psmemory=1Gi"
        );
        assert_eq!(
            rewritten("submit ./p -p 4 -c 2 -m 10Gi -t f.py"),
            "submit ./p -p=4 -c=2 -m=10Gi -t=f.py"
        );
        assert_eq!(rewritten("submit -name x"), "submit --name=x");
        assert_eq!(rewritten("-datacenter dc get jobs"), "--datacenter=dc get jobs");
        assert_eq!(rewritten("get jobs -datacenter dc"), "get jobs --datacenter=dc");
    }

    #[test]
    fn switches_and_clusters_are_unchanged() {
        assert_eq!(rewritten("kill -rm job"), "kill --rm job");
        assert_eq!(rewritten("kill -rm=true job"), "kill --rm job");
        assert_eq!(rewritten("kill -rm=false job"), "kill job");
        assert_eq!(rewritten("get jobs -a"), "get jobs -a");
        assert_eq!(rewritten("rm -rf /pfs/x"), "rm -rf /pfs/x");
        assert_eq!(rewritten("logs -fn 10 job"), "logs -fn 10 job");
        assert_eq!(rewritten("logs -n10 -"), "logs -n10 -");
    }

    #[test]
    fn negative_numbers_are_values_and_flags_are_not() {
        assert_eq!(rewritten("submit -parallelism -1"), "submit --parallelism=-1");
        assert_eq!(rewritten("submit -jobname -cpu 1"), "submit --jobname --cpu=1");
    }

    #[test]
    fn everything_after_two_dashes_is_left_alone() {
        assert_eq!(
            rewritten("submit -p 2 -- python train.py -jobname x -p 3"),
            "submit -p=2 -- python train.py -jobname x -p 3"
        );
    }

    #[test]
    fn misspelled_flags_reach_clap_as_long_ones() {
        assert_eq!(rewritten("submit -jobnam x"), "submit --jobnam x");
        assert_eq!(rewritten("submit -parallelsim 3"), "submit --parallelsim 3");
        assert_eq!(rewritten("submit -foo x"), "submit --foo x");
        assert_eq!(rewritten("submit -fojson x"), "submit -fojson x");
        assert_eq!(rewritten("kill -o json x"), "kill -o json x");
    }
}
