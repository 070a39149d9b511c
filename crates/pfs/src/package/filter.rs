//! `--include` and `--exclude`: selects entries of a tree by patterns, in the order given.

use globset::{Glob, GlobBuilder, GlobMatcher};

use crate::entry::Entry;
use crate::relpath::RelPath;
use crate::sys;

/// Whether a pattern includes or excludes its matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sense {
    Include,
    Exclude,
}

/// A list of patterns; the first match decides. An entry without a match is included.
///
/// A pattern without `/` matches the name at any depth; one with `/` matches the path from the top. Excluding a folder excludes
/// its contents.
#[derive(Debug, Clone, Default)]
pub struct Filter(Vec<(Sense, GlobMatcher)>);

/// An invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern: {reason}")]
pub struct FilterError {
    pub pattern: String,
    pub reason: String,
}

impl Filter {
    /// Compiles patterns; earlier ones take precedence.
    pub fn new<'a>(patterns: impl IntoIterator<Item = (Sense, &'a str)>) -> Result<Self, FilterError> {
        let compiled = patterns
            .into_iter()
            .map(|(sense, pattern)| Ok((sense, compile(pattern)?.compile_matcher())));
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// Keeps the included entries, which must be in the order of [`RelPath`].
    pub fn apply(&self, entries: &mut Vec<Entry>) {
        let mut excluded: Option<RelPath> = None;
        entries.retain(|entry| {
            if excluded
                .as_ref()
                .is_some_and(|folder| entry.path.is_within(folder))
            {
                return false;
            }
            let stays = self.takes(&entry.path);
            if !stays && entry.is_dir() {
                excluded = Some(entry.path.clone());
            }
            stays
        });
    }

    fn takes(&self, path: &RelPath) -> bool {
        let path = sys::path_to_match(path.as_bytes());
        let first = self.0.iter().find(|(_, matcher)| matcher.is_match(&*path));
        first.is_none_or(|(sense, _)| *sense == Sense::Include)
    }
}

fn compile(pattern: &str) -> Result<Glob, FilterError> {
    let trimmed = pattern.trim_end_matches('/');
    let anchored = match trimmed.strip_prefix('/') {
        Some(rest) => rest.to_owned(),
        None if trimmed.contains('/') => trimmed.to_owned(),
        None => format!("**/{trimmed}"),
    };
    let invalid = |reason: String| FilterError {
        pattern: pattern.to_owned(),
        reason,
    };
    if trimmed.is_empty() {
        return Err(invalid("it is empty".to_owned()));
    }
    let glob = GlobBuilder::new(&anchored).literal_separator(true).build();
    glob.map_err(|error| invalid(error.kind().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Mtime, Node};
    use crate::testing::rel;

    fn kept(patterns: &[(Sense, &str)], paths: &[&str]) -> Vec<String> {
        let entry = |path: &&str| {
            let node = match path.strip_suffix('/') {
                Some(_) => Node::Dir,
                None => Node::File {
                    size: 0,
                    executable: false,
                    digest: None,
                },
            };
            Entry {
                path: rel(path.trim_end_matches('/')),
                node,
                mtime: Mtime::default(),
            }
        };
        let mut entries: Vec<Entry> = paths.iter().map(entry).collect();
        Filter::new(patterns.iter().copied()).unwrap().apply(&mut entries);
        entries.into_iter().map(|entry| entry.path.to_string()).collect()
    }

    const PATHS: [&str; 6] = ["a/", "a/x.log", "a/x.txt", "b/", "b/a/", "b/a/y.log"];

    #[test]
    fn names_match_at_any_depth_and_paths_from_the_top() {
        assert_eq!(
            kept(&[(Sense::Exclude, "*.log")], &PATHS),
            ["a", "a/x.txt", "b", "b/a"]
        );
        assert_eq!(
            kept(&[(Sense::Exclude, "a/*.log")], &PATHS),
            ["a", "a/x.txt", "b", "b/a", "b/a/y.log"]
        );
        assert_eq!(kept(&[(Sense::Exclude, "/a")], &PATHS), ["b", "b/a", "b/a/y.log"]);
        assert_eq!(kept(&[(Sense::Exclude, "a/")], &PATHS), ["b"]);
    }

    #[test]
    fn the_first_pattern_that_matches_decides() {
        let patterns = [(Sense::Include, "y.log"), (Sense::Exclude, "*.log")];
        assert_eq!(kept(&patterns, &PATHS), ["a", "a/x.txt", "b", "b/a", "b/a/y.log"]);
    }

    #[test]
    fn broken_patterns_are_reported() {
        for pattern in ["[", "", "/"] {
            let error = Filter::new([(Sense::Exclude, pattern)]).unwrap_err();
            assert_eq!(error.pattern, pattern);
        }
    }
}
