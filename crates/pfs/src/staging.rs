//! What is unfinished below a root: its names, and how it is cleared away when nobody comes back for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{self, Root, RootError, STAGING};

/// The name of an unfinished upload, given to the client so that it can go on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StagedId(String);

/// Text that is no such name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an unfinished upload")]
pub struct StagedIdError(String);

impl StagedId {
    pub(crate) fn fresh() -> Self {
        Self(root::fresh_name())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StagedId {
    type Err = StagedIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_ours = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_ours {
            Ok(Self(text.to_owned()))
        } else {
            Err(StagedIdError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for StagedId {
    type Error = StagedIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StagedId> for String {
    fn from(id: StagedId) -> Self {
        id.0
    }
}

impl fmt::Display for StagedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something that was begun and not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    pub id: StagedId,
    /// When anything in it last changed.
    pub touched: Mtime,
    pub bytes: u64,
}

/// Everything unfinished below a root.
pub fn unfinished(root: &Root) -> Result<Vec<Unfinished>, RootError> {
    let Some(staging) = open_staging(root)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in staging.list(&RelPath::root())? {
        let name = entry.path.to_string();
        let Ok(id) = name.parse::<StagedId>() else {
            continue;
        };
        let mut all = Unfinished {
            id,
            touched: entry.meta.mtime.max(entry.meta.stamp.ctime),
            bytes: entry.meta.size,
        };
        if entry.meta.is_dir() {
            for inner in staging.walk(&entry.path) {
                // Published or cleared away while we look: no longer unfinished.
                let Ok(inner) = inner else { break };
                // The time of last change of content is the sender's; that of the node is the clock's.
                all.touched = all.touched.max(inner.meta.stamp.ctime);
                all.bytes += inner.meta.size;
            }
        }
        found.push(all);
    }
    Ok(found)
}

/// Clears away what nobody touched for `age`. Whoever is still at it keeps it young.
pub fn expire(root: &Root, age: Duration, now: Mtime) -> Result<Vec<StagedId>, RootError> {
    let mut gone = Vec::new();
    for old in unfinished(root)?
        .into_iter()
        .filter(|unfinished| unfinished.touched.age(now) > age)
    {
        remove_staged(root, &old.id)?;
        gone.push(old.id);
    }
    Ok(gone)
}

pub(crate) fn staged_path(id: &StagedId) -> RelPath {
    let staging: RelPath = STAGING.parse().expect("a plain name");
    staging
        .child(id.0.as_bytes())
        .expect("hex digits are a plain name")
}

/// Removes something staged, file or folder; what is gone already is fine.
pub(crate) fn remove_staged(root: &Root, id: &StagedId) -> Result<(), RootError> {
    let folder = root::staging_folder(root)?;
    let removed = match rustix::fs::unlinkat(&folder, id.as_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(_) => root::remove_tree_in(&folder, id.as_str().as_bytes(), &staged_path(id)),
    };
    root::tidy_staging(root);
    removed
}

fn open_staging(root: &Root) -> Result<Option<Root>, RootError> {
    match root.descend(&STAGING.parse().expect("a plain name")) {
        Ok(staging) => Ok(Some(staging)),
        Err(RootError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;
    use crate::content::{Assembly, AssemblyPlan};
    use crate::pack::StagedTree;
    use crate::testing::{leftovers, rel, scratch};

    #[test]
    fn names_cannot_be_paths() {
        for text in [
            "",
            "..",
            "../../../../../../../../etc/passwd",
            "ABCDEF00112233445566778899aabbcc",
        ] {
            assert!(text.parse::<StagedId>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_is_old_enough_expires() {
        let (folder, root) = scratch();
        let tree = StagedTree::create(&root).unwrap();
        let plan = AssemblyPlan {
            path: rel("f"),
            size: 3,
            executable: false,
            mtime: Some(Mtime::default()),
        };
        let assembly = Assembly::create(&root, plan).unwrap();
        assembly.put_range(0, b"abc").unwrap();
        let mut staged = root.stage_file(Default::default()).unwrap();
        staged.write_all(b"xy").unwrap();

        let sizes: u64 = unfinished(&root)
            .unwrap()
            .iter()
            .map(|unfinished| unfinished.bytes)
            .sum();
        assert!(sizes >= 5, "{sizes}");
        let now = Mtime::from(SystemTime::now());
        assert_eq!(expire(&root, Duration::from_secs(3600), now).unwrap(), []);
        let later = Mtime::from_nanos(now.as_nanos() + 7_200_000_000_000);
        let gone = expire(&root, Duration::from_secs(3600), later).unwrap();
        assert_eq!(gone.len(), 3);
        assert!(gone.contains(tree.id()) && gone.contains(assembly.id()));
        drop(staged);
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
        assert!(Assembly::open(&root, assembly.id()).is_err());
    }

    #[test]
    fn a_root_where_nothing_was_begun_has_nothing_unfinished() {
        let (_folder, root) = scratch();
        assert_eq!(unfinished(&root).unwrap(), []);
    }
}
