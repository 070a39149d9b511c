//! Patterns such as `data/*.rio`, expanded inside a root after the path itself was accepted.
//!
//! `*` and `?` stop at `/`, `**` does not, `{a,b}` and `[a-z]` work as in a shell; a leading dot must be
//! asked for by name.

use globset::{GlobBuilder, GlobMatcher};

use super::{DirEntry, Meta, Root, RootError};
use crate::relpath::{RelPath, RelPathError};
use crate::sys;

/// A pattern whose fixed beginning is a checked path.
#[derive(Debug, Clone)]
pub struct GlobPattern {
    base: RelPath,
    matcher: Option<GlobMatcher>,
    deep: bool,
    depth: usize,
    hidden: bool,
}

/// A pattern that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GlobError {
    #[error(transparent)]
    Path(#[from] RelPathError),
    #[error("`{pattern}` is not a valid pattern: {reason}")]
    Syntax { pattern: String, reason: String },
}

impl GlobPattern {
    /// Splits a pattern into its fixed folder and what varies.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        let is_special = |part: &str| part.contains(['*', '?', '[', '{']);
        let fixed: Vec<&str> = pattern.split('/').take_while(|part| !is_special(part)).collect();
        let base = RelPath::from_bytes(fixed.join("/").as_bytes())?;
        let rest: Vec<&str> = pattern.split('/').skip(fixed.len()).collect();
        // The variable part obeys the same rules as any path: no `..`, no empty part.
        RelPath::from_bytes(rest.join("/").as_bytes())?;
        Ok(Self {
            matcher: if rest.is_empty() {
                None
            } else {
                Some(compile(pattern)?)
            },
            deep: rest.iter().any(|part| part.contains("**")),
            depth: base.depth() + rest.len(),
            hidden: rest.iter().any(|part| part.starts_with('.')),
            base,
        })
    }

    /// Whether the text held any wildcard at all.
    pub fn is_literal(&self) -> bool {
        self.matcher.is_none()
    }

    fn matches(&self, path: &RelPath) -> bool {
        let shown = self.hidden
            || !path
                .parts()
                .skip(self.base.depth())
                .any(|part| part.starts_with(b"."));
        let text = sys::path_to_match(path.as_bytes());
        shown
            && self
                .matcher
                .as_ref()
                .is_none_or(|matcher| matcher.is_match(&*text))
    }

    fn may_hold_matches(&self, folder: &RelPath) -> bool {
        self.deep || folder.depth() < self.depth
    }
}

fn compile(pattern: &str) -> Result<GlobMatcher, GlobError> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| GlobError::Syntax {
            pattern: pattern.to_owned(),
            reason: error.kind().to_string(),
        })
}

impl GlobPattern {
    /// Everything that matches, in order, as two ways to look say. No match is an empty answer, not an error.
    pub(crate) fn expand(
        &self,
        look: impl FnOnce(&RelPath) -> Result<Meta, RootError>,
        list: impl Fn(&RelPath) -> Result<Vec<DirEntry>, RootError>,
    ) -> Result<Vec<DirEntry>, RootError> {
        if self.is_literal() {
            return match look(&self.base) {
                Ok(meta) => Ok(vec![DirEntry {
                    path: self.base.clone(),
                    meta,
                }]),
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                Err(error) => Err(error),
            };
        }
        let mut found = Vec::new();
        let mut folders = vec![self.base.clone()];
        while let Some(folder) = folders.pop() {
            for entry in if_there(list(&folder))? {
                if entry.meta.is_dir() && self.may_hold_matches(&entry.path) {
                    folders.push(entry.path.clone());
                }
                if self.matches(&entry.path) {
                    found.push(entry);
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

fn if_there(listed: Result<Vec<DirEntry>, RootError>) -> Result<Vec<DirEntry>, RootError> {
    match listed {
        Err(RootError::NotAFolder(_) | RootError::ThroughLink(_)) => Ok(Vec::new()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        other => other,
    }
}

impl Root {
    /// Everything below the root that matches, in order. No match is an empty answer, not an error.
    pub fn glob(&self, pattern: &GlobPattern) -> Result<Vec<DirEntry>, RootError> {
        pattern.expand(|path| self.stat_link(path), |folder| self.list(folder))
    }
}
