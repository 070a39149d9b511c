//! A path relative to some root that is safe by construction: no `..`, no empty part, no NUL, no leading slash.
//!
//! Does not resolve symbolic links; `Root` does.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::escape::{Escaped, unescape};
use crate::root::RootError;
use crate::sys;

/// A path below a root. The empty path is the root itself.
///
/// Ordered part by part, so that a folder comes directly before its contents (`a`, `a/b`, `a.b`). The text form escapes bytes
/// that are not UTF-8 (`caf\xe9`); [`FromStr`] parses that form.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath(Vec<u8>);

/// Why bytes are not a relative path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelPathError {
    #[error("`{0}` is an absolute path")]
    Absolute(String),
    #[error("`{0}` contains `..`")]
    Parent(String),
    #[error("`{0}` has an empty part or a `.` in it")]
    NotNormal(String),
    #[error("`{0}` contains a NUL byte")]
    Nul(String),
    #[error("a name in `{0}` is longer than {max} bytes", max = RelPath::MAX_NAME)]
    NameTooLong(String),
    #[error("the path that starts with `{0}` is longer than {max} bytes", max = RelPath::MAX_LEN)]
    TooLong(String),
    #[error("`{0}` has a broken escape: write a backslash as `\\\\`")]
    Escape(String),
}

impl RelPath {
    /// The longest name of a file or folder, in bytes (the limit of Linux file systems).
    pub const MAX_NAME: usize = 255;
    /// The longest path, in bytes: the most that a Linux program can open by name.
    pub const MAX_LEN: usize = 4095;

    /// The root itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Checks bytes that must be a relative path in normal form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RelPathError> {
        check(bytes)?;
        Ok(Self(bytes.to_vec()))
    }

    /// The path as bytes, parts joined by `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as a [`Path`]; `.` for the root, so that it can be opened.
    #[cfg(unix)]
    pub fn as_path(&self) -> &Path {
        use sys::OsStrExt;
        let bytes: &[u8] = if self.0.is_empty() { b"." } else { &self.0 };
        Path::new(std::ffi::OsStr::from_bytes(bytes))
    }

    /// The local path of this below a folder, in the system's notation; an error if the system does not allow such names.
    pub fn in_folder(&self, folder: &Path) -> Result<PathBuf, RootError> {
        let below = sys::local_path(&self.0).map_err(|errno| RootError::errno("name", self, errno))?;
        Ok(folder.join(below))
    }

    /// Whether this is the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The names from the root down; none for the root.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
    }

    /// The number of names in the path.
    pub fn depth(&self) -> usize {
        self.parts().count()
    }

    /// The last name; `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.parts().next_back()
    }

    /// The parent folder; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.split_last().map(|(parent, _)| parent)
    }

    /// Parent folder and last name; `None` for the root.
    pub fn split_last(&self) -> Option<(Self, &[u8])> {
        let name = self.name()?;
        let end = (self.0.len() - name.len()).saturating_sub(1);
        Some((Self(self.0[..end].to_vec()), name))
    }

    /// The path of `name` inside this folder.
    pub fn child(&self, name: &[u8]) -> Result<Self, RelPathError> {
        if name.contains(&b'/') || name.is_empty() {
            return Err(RelPathError::NotNormal(Escaped(name).to_string()));
        }
        self.join(&Self::from_bytes(name)?)
    }

    /// The path of `other` below this folder.
    pub fn join(&self, other: &Self) -> Result<Self, RelPathError> {
        if self.is_root() || other.is_root() {
            return Ok(Self([self.0.as_slice(), other.0.as_slice()].concat()));
        }
        Self::from_bytes(&[self.0.as_slice(), other.0.as_slice()].join(&b'/'))
    }

    /// Whether this is `folder` or below it.
    pub fn is_within(&self, folder: &Self) -> bool {
        self.strip_prefix(folder).is_some()
    }

    /// The rest of the path below `folder`; `None` if it is not below.
    pub fn strip_prefix(&self, folder: &Self) -> Option<Self> {
        if folder.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(folder.0.as_slice())? {
            [] => Some(Self::root()),
            [b'/', rest @ ..] => Some(Self(rest.to_vec())),
            _ => None,
        }
    }

    /// Whether the path is valid UTF-8, which some backends require.
    pub fn is_utf8(&self) -> bool {
        std::str::from_utf8(&self.0).is_ok()
    }
}

fn check(bytes: &[u8]) -> Result<(), RelPathError> {
    let shown = || Escaped(&bytes[..bytes.len().min(120)]).to_string();
    if bytes.is_empty() {
        return Ok(());
    }
    if bytes.len() > RelPath::MAX_LEN {
        return Err(RelPathError::TooLong(shown()));
    }
    if bytes.contains(&0) {
        return Err(RelPathError::Nul(shown()));
    }
    if bytes[0] == b'/' {
        return Err(RelPathError::Absolute(shown()));
    }
    for part in bytes.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => return Err(RelPathError::NotNormal(shown())),
            b".." => return Err(RelPathError::Parent(shown())),
            part if part.len() > RelPath::MAX_NAME => return Err(RelPathError::NameTooLong(shown())),
            _ => {}
        }
    }
    Ok(())
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(other.parts())
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for RelPath {
    type Err = RelPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = unescape(text).ok_or_else(|| RelPathError::Escape(text.to_owned()))?;
        Self::from_bytes(&bytes)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            f.write_str(".")
        } else {
            Escaped(&self.0).fmt(f)
        }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Escaped(&self.0))
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RelPath {
        text.parse().unwrap()
    }

    #[test]
    fn harmful_paths_are_refused() {
        use RelPathError as E;
        let refused = |bytes: &[u8]| RelPath::from_bytes(bytes).unwrap_err();
        assert!(matches!(refused(b"/etc/passwd"), E::Absolute(_)));
        assert!(matches!(refused(b"a/../b"), E::Parent(_)));
        assert!(matches!(refused(b".."), E::Parent(_)));
        assert!(matches!(refused(b"a//b"), E::NotNormal(_)));
        assert!(matches!(refused(b"a/./b"), E::NotNormal(_)));
        assert!(matches!(refused(b"a/"), E::NotNormal(_)));
        assert!(matches!(refused(b"a\0b"), E::Nul(_)));
        assert!(matches!(refused(&[b'x'; 256]), E::NameTooLong(_)));
        assert!(matches!(refused("d/".repeat(2048).as_bytes()), E::TooLong(_)));
    }

    #[test]
    fn dots_and_percent_signs_inside_names_are_only_names() {
        for text in ["...", "..a", "%2e%2e", ".hidden", "a..b"] {
            assert_eq!(path(text).depth(), 1);
        }
    }

    #[test]
    fn a_folder_sorts_directly_before_what_it_holds() {
        let mut paths = ["a.b", "a/b", "a", "a-", "a/b/c", "B"].map(path);
        paths.sort();
        assert_eq!(
            paths.map(|p| p.to_string()),
            ["B", "a", "a/b", "a/b/c", "a-", "a.b"]
        );
    }

    #[test]
    fn parents_children_and_prefixes_fit_together() {
        let deep = path("a/b/c");
        assert_eq!(deep.parent(), Some(path("a/b")));
        assert_eq!(path("a").parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(path("a/b").child(b"c").unwrap(), deep);
        assert!(path("a").child(b"b/c").is_err());
        assert_eq!(deep.strip_prefix(&path("a")), Some(path("b/c")));
        assert_eq!(path("ab").strip_prefix(&path("a")), None);
        assert!(deep.is_within(&RelPath::root()) && deep.is_within(&deep));
    }

    proptest! {
        #[test]
        fn an_accepted_path_never_climbs(bytes in "[a./%\\x00]{0,12}".prop_map(String::into_bytes)) {
            if let Ok(path) = RelPath::from_bytes(&bytes) {
                prop_assert!(path.parts().all(|part| part != b".." && part != b"." && !part.contains(&0)));
                prop_assert!(!bytes.starts_with(b"/"));
                prop_assert_eq!(path.to_string().parse::<RelPath>().map(|p| p.depth()).ok().filter(|_| !path.is_root()),
                    Some(path.depth()).filter(|_| !path.is_root()));
            }
        }
    }
}
