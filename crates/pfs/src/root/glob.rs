//! Patterns such as `data/*.rio`, expanded inside a root after the path itself was checked.
//!
//! `*` and `?` do not match `/`, `**` does; `{a,b}` and `[a-z]` work as in a shell. A leading dot must be matched explicitly.

use globset::{GlobBuilder, GlobMatcher};

use super::error::if_exists;
use super::{DirEntry, Meta, Root, RootError};
use crate::relpath::{RelPath, RelPathError};
use crate::sys;

/// A pattern whose literal prefix is a valid path.
#[derive(Debug, Clone)]
pub struct GlobPattern {
    base: RelPath,
    matcher: Option<GlobMatcher>,
    /// Matchers for the intermediate folders, one per level. Deeper levels match anything.
    on_the_way: Vec<GlobMatcher>,
    deep: bool,
    depth: usize,
    hidden: bool,
}

/// An invalid pattern.
#[derive(Debug, thiserror::Error)]
pub enum GlobError {
    #[error(transparent)]
    Path(#[from] RelPathError),
    #[error("`{pattern}` is not a valid pattern: {reason}")]
    Syntax { pattern: String, reason: String },
}

impl GlobPattern {
    /// Splits a pattern into its literal folder and its variable part.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        let is_special = |part: &str| part.contains(['*', '?', '[', '{']);
        let fixed: Vec<&str> = pattern.split('/').take_while(|part| !is_special(part)).collect();
        let base = RelPath::from_bytes(fixed.join("/").as_bytes())?;
        let rest: Vec<&str> = pattern.split('/').skip(fixed.len()).collect();
        // The variable part follows the rules of any path: no `..`, no empty part.
        RelPath::from_bytes(rest.join("/").as_bytes())?;
        Ok(Self {
            matcher: if rest.is_empty() {
                None
            } else {
                Some(compile(pattern)?)
            },
            on_the_way: on_the_way(pattern, fixed.len(), &rest),
            deep: rest.iter().any(|part| part.contains("**")),
            depth: base.depth() + rest.len(),
            hidden: rest.iter().any(|part| part.starts_with('.')),
            base,
        })
    }

    /// Whether the pattern has no wildcards.
    pub fn is_literal(&self) -> bool {
        self.matcher.is_none()
    }

    fn matches(&self, path: &RelPath) -> bool {
        self.is_shown(path) && self.matcher.as_ref().is_none_or(|matcher| fits(matcher, path))
    }

    fn is_shown(&self, path: &RelPath) -> bool {
        let mut below = path.parts().skip(self.base.depth());
        self.hidden || !below.any(|part| part.starts_with(b"."))
    }

    fn may_hold_matches(&self, folder: &RelPath) -> bool {
        let level = folder.depth() - self.base.depth();
        let matches_so_far = self
            .on_the_way
            .get(level - 1)
            .is_none_or(|so_far| fits(so_far, folder));
        (self.deep || folder.depth() < self.depth) && matches_so_far && self.is_shown(folder)
    }
}

fn fits(matcher: &GlobMatcher, path: &RelPath) -> bool {
    matcher.is_match(&*sys::path_to_match(path.as_bytes()))
}

/// A matcher for each prefix of the pattern that ends at a `/`, up to the first `**`. Empty if a `/` is inside brackets: then
/// prefixes have no meaning.
fn on_the_way(pattern: &str, fixed: usize, rest: &[&str]) -> Vec<GlobMatcher> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let levels = rest.iter().take_while(|part| !part.contains("**")).count();
    let beginnings = (1..=levels.min(rest.len().saturating_sub(1)))
        .map(|level| compile(&parts[..fixed + level].join("/")));
    beginnings.collect::<Result<_, _>>().unwrap_or_default()
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
    /// All matches in order, found with the given functions. No match is an empty list, not an error.
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
            let listed = match list(&folder) {
                // A folder that is unreadable or too deep hides only its own contents.
                Err(RootError::Denied(_) | RootError::TooLong(_)) if folder != self.base => Ok(Vec::new()),
                other => if_exists(other).map(Option::unwrap_or_default),
            };
            for entry in listed? {
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

impl Root {
    /// All matches below the root, in order. No match is an empty list, not an error.
    pub fn glob(&self, pattern: &GlobPattern) -> Result<Vec<DirEntry>, RootError> {
        pattern.expand(|path| self.stat_link(path), |folder| self.list(folder))
    }
}
