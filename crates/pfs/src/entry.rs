//! One node of a tree, as used in scans, manifests and pack streams.
//!
//! Independent of how a node is stored.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::escape::{Escaped, unescape};
use crate::relpath::RelPath;

/// A file, folder or symbolic link, and its path in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: RelPath,
    #[serde(flatten)]
    pub node: Node,
    pub mtime: Mtime,
}

/// The kind of an entry, with its attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Node {
    Dir,
    File {
        size: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        executable: bool,
        /// Absent if the content has not been read yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    Symlink {
        target: LinkTarget,
    },
}

impl Node {
    /// A file whose content has not been read yet.
    pub fn file(size: u64, executable: bool) -> Node {
        Node::File {
            size,
            executable,
            digest: None,
        }
    }
}

impl Entry {
    /// Finds the entry at a path in a list ordered by [`RelPath`].
    pub fn find<'a>(entries: &'a [Entry], path: &RelPath) -> Option<&'a Entry> {
        let found = entries.binary_search_by(|entry| entry.path.cmp(path));
        found.ok().map(|at| &entries[at])
    }

    /// The size of the content; zero except for files.
    pub fn size(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            Node::Dir | Node::Symlink { .. } => 0,
        }
    }

    /// The content's digest, for a file that has been read.
    pub fn digest(&self) -> Option<Digest> {
        match self.node {
            Node::File { digest, .. } => digest,
            Node::Dir | Node::Symlink { .. } => None,
        }
    }

    /// Whether this is a folder.
    pub fn is_dir(&self) -> bool {
        self.node == Node::Dir
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self.node, Node::File { .. })
    }
}

/// A modification time in nanoseconds since 1970. Years outside 1678..2262 are clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mtime(i64);

impl Mtime {
    const SECOND: i128 = 1_000_000_000;

    /// Creates a time from nanoseconds since 1970.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a time from the kernel's seconds and nanoseconds.
    pub fn new(seconds: i64, nanos: u32) -> Self {
        let wide = i128::from(seconds) * Self::SECOND + i128::from(nanos);
        Self(wide.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// Nanoseconds since 1970.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds and the remaining nanoseconds (never negative).
    pub const fn parts(self) -> (i64, u32) {
        let second = Self::SECOND as i64;
        (self.0.div_euclid(second), self.0.rem_euclid(second) as u32)
    }

    /// Whether two times are equal at the coarser of their precisions: some stores keep only milliseconds, Windows steps of 100
    /// ns.
    pub fn is_same_moment(self, other: Self) -> bool {
        let agree = |step: i64| {
            let is_coarse = self.0 % step == 0 || other.0 % step == 0;
            is_coarse && self.0.div_euclid(step) == other.0.div_euclid(step)
        };
        self == other || agree(1_000_000) || agree(100)
    }

    /// The time from this to `now`; zero if this is in the future.
    pub fn age(self, now: Self) -> Duration {
        Duration::from_nanos(u64::try_from(now.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Mtime {
    fn from(time: SystemTime) -> Self {
        let nanos = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
        };
        Self(nanos)
    }
}

/// The target of a symbolic link, as written in the link.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinkTarget(Vec<u8>);

/// Why bytes cannot be the target of a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be the target of a symbolic link")]
pub struct LinkTargetError(String);

impl LinkTarget {
    /// Checks the kernel's rules for a target: not empty, no NUL, at most 4095 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LinkTargetError> {
        if bytes.is_empty() || bytes.len() > RelPath::MAX_LEN || bytes.contains(&0) {
            return Err(LinkTargetError(
                Escaped(&bytes[..bytes.len().min(120)]).to_string(),
            ));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The target as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for LinkTarget {
    type Err = LinkTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = unescape(text).ok_or_else(|| LinkTargetError(text.to_owned()))?;
        Self::from_bytes(&bytes)
    }
}

impl fmt::Display for LinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0).fmt(f)
    }
}

crate::as_text!(LinkTarget);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_windows_rounded_is_the_same_moment() {
        let same = |a, b| Mtime::new(-7, a).is_same_moment(Mtime::new(-7, b));
        assert!(same(123_456_789, 123_456_700) && same(123_456_700, 123_456_799));
        assert!(!same(123_456_789, 123_456_788) && !same(123_456_789, 123_456_800));
    }

    #[test]
    fn json_of_each_kind_is_flat_and_short() {
        let json = |node| {
            let entry = Entry {
                path: "a/b".parse().unwrap(),
                node,
                mtime: Mtime::new(1, 5),
            };
            let text = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
            text
        };
        assert_eq!(
            json(Node::Dir),
            r#"{"path":"a/b","kind":"dir","mtime":1000000005}"#
        );
        assert_eq!(
            json(Node::File {
                size: 3,
                executable: false,
                digest: None
            }),
            r#"{"path":"a/b","kind":"file","size":3,"mtime":1000000005}"#
        );
        assert_eq!(
            json(Node::Symlink {
                target: LinkTarget::from_bytes(b"c\xff").unwrap()
            }),
            r#"{"path":"a/b","kind":"symlink","target":"c\\xff","mtime":1000000005}"#
        );
    }

    #[test]
    fn times_before_1970_and_far_away_are_kept_or_moved_to_the_edge() {
        assert_eq!(Mtime::new(-2, 250_000_000).parts(), (-2, 250_000_000));
        assert_eq!(Mtime::new(i64::MAX, 0).as_nanos(), i64::MAX);
        let early = SystemTime::UNIX_EPOCH - Duration::from_millis(1750);
        assert_eq!(Mtime::from(early), Mtime::new(-2, 250_000_000));
    }
}
