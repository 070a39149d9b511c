//! `--include`, `--exclude` and `--files-from`: which entries of a tree are selected.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use paddlecloud_pfs::package::{Filter, Sense};
use paddlecloud_pfs::{Entry, Mtime, Node, RelPath};

use super::location::shown;
use crate::error::CliError;

/// The flags, in the order in which they were given: the first pattern that matches decides.
#[derive(Debug, Clone, Default)]
pub struct FilterArgs {
    patterns: Vec<(Sense, String)>,
    files_from: Option<PathBuf>,
}

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const FILES_FROM: &str = "files_from";

impl clap::FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut patterns = typed(matches, INCLUDE, Sense::Include);
        patterns.extend(typed(matches, EXCLUDE, Sense::Exclude));
        patterns.sort_by_key(|(position, _)| *position);
        Ok(FilterArgs {
            patterns: patterns.into_iter().map(|(_, pattern)| pattern).collect(),
            files_from: matches.get_one::<PathBuf>(FILES_FROM).cloned(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = FilterArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

fn typed(matches: &ArgMatches, id: &str, sense: Sense) -> Vec<(usize, (Sense, String))> {
    let positions = matches.indices_of(id).into_iter().flatten();
    let values = matches.get_many::<String>(id).into_iter().flatten();
    positions
        .zip(values)
        .map(|(at, value)| (at, (sense, value.clone())))
        .collect()
}

impl clap::Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let pattern = |id: &'static str, help: &'static str| {
            Arg::new(id)
                .long(id)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help(help)
                .help_heading("Filters")
        };
        command
            .arg(pattern(
                EXCLUDE,
                "Exclude what matches: `*.log` at any depth, `/tmp` or `a/*.log` from the top; repeatable",
            ))
            .arg(pattern(
                INCLUDE,
                "Include what matches, even if a later `--exclude` does too; without `--exclude`, include nothing else",
            ))
            .arg(
                Arg::new(FILES_FROM)
                    .long("files-from")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help(
                        "Only the paths listed in this file, one per line, relative to the source; `-` for stdin; \
                         `#` starts a comment, `./#x` names a file",
                    )
                    .help_heading("Filters"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        FilterArgs::augment_args(command)
    }
}

impl FilterArgs {
    /// Whether any of them was given.
    pub fn is_given(&self) -> bool {
        !self.patterns.is_empty() || self.files_from.is_some()
    }

    /// Compiles the patterns and reads the list.
    pub fn selection(&self) -> Result<Selection, CliError> {
        let only_includes = self.patterns.iter().all(|(sense, _)| *sense == Sense::Include);
        let patterns = self.patterns.iter().map(|(sense, pattern)| match only_includes {
            // Excluding the matches leaves what is not selected, see `Patterns::Only`.
            true => (Sense::Exclude, pattern.as_str()),
            false => (*sense, pattern.as_str()),
        });
        let filter = Filter::new(patterns).map_err(|error| CliError::usage(error.to_string()))?;
        Ok(Selection {
            filter: match (self.patterns.is_empty(), only_includes) {
                (true, _) => None,
                (false, true) => Some(Patterns::Only(filter)),
                (false, false) => Some(Patterns::Ordered(filter)),
            },
            listed: self.files_from.as_deref().map(read_list).transpose()?,
        })
    }
}

/// The selection of entries for a transfer.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    filter: Option<Patterns>,
    listed: Option<Vec<RelPath>>,
}

#[derive(Debug, Clone)]
enum Patterns {
    Ordered(Filter),
    /// The complement of what the filter leaves.
    Only(Filter),
}

impl Selection {
    /// Whether everything is selected.
    pub fn is_all(&self) -> bool {
        self.filter.is_none() && self.listed.is_none()
    }

    /// Keeps the selected entries and their parent folders. Entries are in the order of [`RelPath`].
    pub fn apply(&self, entries: &mut Vec<Entry>) {
        match &self.filter {
            None => {}
            Some(Patterns::Ordered(filter)) => filter.apply(entries),
            Some(Patterns::Only(filter)) => {
                let mut rest = entries.clone();
                filter.apply(&mut rest);
                let rest: HashSet<RelPath> = rest.into_iter().map(|entry| entry.path).collect();
                keep_with_folders(entries, |path| !rest.contains(path));
            }
        }
        if let Some(listed) = &self.listed {
            let listed: HashSet<&RelPath> = listed.iter().collect();
            keep_with_folders(entries, |path| is_listed(path, &listed));
        }
    }

    /// Whether a file named on the command line is selected.
    pub fn takes_file(&self, name: &[u8]) -> bool {
        let Ok(path) = RelPath::from_bytes(name) else {
            return true;
        };
        let mut alone = vec![Entry {
            path,
            node: Node::file(0, false),
            mtime: Mtime::default(),
        }];
        self.apply(&mut alone);
        !alone.is_empty()
    }

    /// Paths of the list that the tree does not have.
    pub fn missing(&self, entries: &[Entry]) -> Vec<RelPath> {
        let there: HashSet<&RelPath> = entries.iter().map(|entry| &entry.path).collect();
        let listed = self.listed.iter().flatten();
        listed.filter(|path| !there.contains(path)).cloned().collect()
    }
}

/// A listed folder means everything below it.
fn is_listed(path: &RelPath, listed: &HashSet<&RelPath>) -> bool {
    std::iter::successors(Some(path.clone()), RelPath::parent).any(|path| listed.contains(&path))
}

fn keep_with_folders(entries: &mut Vec<Entry>, is_selected: impl Fn(&RelPath) -> bool) {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..).rev() {
        let leads_to_something = kept.last().is_some_and(|next| next.path.is_within(&entry.path));
        if leads_to_something || is_selected(&entry.path) {
            kept.push(entry);
        }
    }
    kept.reverse();
    *entries = kept;
}

fn read_list(file: &Path) -> Result<Vec<RelPath>, CliError> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| CliError::refused(format!("cannot read the list `{}`: {error}", shown(file))))?;
    parse_list(&bytes).map_err(|(number, error)| {
        CliError::refused(format!("the list `{}`, line {number}: {error}", shown(file)))
    })
}

/// One path per line, or separated by NUL (as `find -print0` writes them). Lines that start with `#` are comments. A line that
/// is not a path is reported with its number.
fn parse_list(bytes: &[u8]) -> Result<Vec<RelPath>, (usize, paddlecloud_pfs::RelPathError)> {
    let separator = if bytes.contains(&0) { 0 } else { b'\n' };
    let lines = bytes.split(|byte| *byte == separator).zip(1..);
    lines
        .map(|(line, number)| (tidy(line, separator), number))
        .filter(|(line, _)| !line.is_empty())
        .map(|(line, number)| RelPath::from_bytes(&line).map_err(|error| (number, error)))
        .collect()
}

/// Removes what has no meaning: `./`, doubled slashes, a carriage return.
fn tidy(line: &[u8], separator: u8) -> Vec<u8> {
    let is_text = separator == b'\n';
    let line = line.strip_suffix(b"\r").filter(|_| is_text).unwrap_or(line);
    if is_text && line.starts_with(b"#") {
        return Vec::new();
    }
    let parts: Vec<&[u8]> = line
        .split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
        .collect();
    let path = parts.join(&b'/');
    if line.starts_with(b"/") {
        [b"/", path.as_slice()].concat()
    } else {
        path
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    /// Filters as they are typed.
    pub fn args(words: &[&str]) -> FilterArgs {
        let command = FilterArgs::augment_args(Command::new("t"));
        let matches = command.get_matches_from(std::iter::once(&"t").chain(words));
        FilterArgs::from_arg_matches(&matches).unwrap()
    }

    /// Empty files, and folders where a path ends with a slash.
    pub fn tree(paths: &[&str]) -> Vec<Entry> {
        let entry = |path: &&str| Entry {
            path: path.trim_end_matches('/').parse().unwrap(),
            node: match path.ends_with('/') {
                true => Node::Dir,
                false => Node::File {
                    size: 0,
                    executable: false,
                    digest: None,
                },
            },
            mtime: Mtime::default(),
        };
        paths.iter().map(entry).collect()
    }

    fn kept(selection: &Selection) -> Vec<String> {
        let mut entries = tree(&["a/", "a/x.log", "a/x.txt", "b/", "b/a/", "b/a/y.log", "c/"]);
        selection.apply(&mut entries);
        entries.iter().map(|entry| entry.path.to_string()).collect()
    }

    fn kept_by(words: &[&str]) -> Vec<String> {
        kept(&args(words).selection().unwrap())
    }

    #[test]
    fn patterns_keep_the_order_in_which_they_were_typed() {
        let first = ["--include", "y.log", "--exclude", "*.log"];
        assert_eq!(kept_by(&first), ["a", "a/x.txt", "b", "b/a", "b/a/y.log", "c"]);
        let later = ["--exclude", "*.log", "--include", "y.log"];
        assert_eq!(kept_by(&later), ["a", "a/x.txt", "b", "b/a", "c"]);
    }

    #[test]
    fn includes_alone_select_matches_and_their_parent_folders() {
        assert_eq!(kept_by(&["--include", "*.txt"]), ["a", "a/x.txt"]);
        assert_eq!(kept_by(&["--include", "/b"]), ["b", "b/a", "b/a/y.log"]);
    }

    #[test]
    fn a_list_names_files_and_whole_folders() {
        let selection = Selection {
            filter: None,
            listed: Some(parse_list(b"# remark\n./b//a/\r\n\nnone\n").unwrap()),
        };
        assert_eq!(kept(&selection), ["b", "b/a", "b/a/y.log"]);
        assert_eq!(selection.missing(&[]).len(), 2);
        assert_eq!(parse_list(b"#x\n./#x\n").unwrap()[0].to_string(), "#x");
        assert_eq!(parse_list(b"#x\0").unwrap()[0].to_string(), "#x");
        assert_eq!(parse_list(b"a\nb\0c").unwrap()[0].to_string(), r"a\x0ab");
    }

    #[test]
    fn a_list_with_a_path_outside_the_source_is_refused() {
        for (list, line) in [
            (&b"../x"[..], 1),
            (b"a\n# remark\n/etc/passwd\nb\n", 3),
            (b"a\0b/../c\0", 2),
        ] {
            assert_eq!(parse_list(list).unwrap_err().0, line);
        }
    }

    #[test]
    fn a_file_that_was_named_itself_is_judged_by_its_name() {
        let selection = args(&["--exclude", "*.log"]).selection().unwrap();
        assert!(!selection.takes_file(b"x.log"));
        assert!(selection.takes_file(b"x.txt"));
    }

    #[test]
    fn a_broken_pattern_is_a_usage_error() {
        let error = args(&["--exclude", "["]).selection().unwrap_err();
        assert!(matches!(error, CliError::Usage { .. }), "{error}");
    }
}
