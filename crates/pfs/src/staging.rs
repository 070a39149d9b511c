//! What is unfinished below a root: its names, and how it is cleared away when nobody comes back for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{self, Root, RootError, STAGING};
use crate::sys::{self, Access, AtFlags, Errno};

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

/// What was cleared away, and what was to be and could not. The next one tries again.
#[derive(Debug, Default)]
pub struct Cleared {
    pub gone: Vec<StagedId>,
    pub stuck: Vec<(StagedId, RootError)>,
}

impl Cleared {
    fn clear(root: &Root, ids: impl IntoIterator<Item = StagedId>) -> Self {
        let mut cleared = Self::default();
        for id in ids {
            match remove_staged(root, &id) {
                Ok(()) => cleared.gone.push(id),
                Err(error) => cleared.stuck.push((id, error)),
            }
        }
        cleared
    }
}

/// Clears away what nobody touched for `age`. Whoever is still at it keeps it young.
pub fn expire(root: &Root, age: Duration, now: Mtime) -> Result<Cleared, RootError> {
    let old = unfinished(root)?
        .into_iter()
        .filter(|unfinished| unfinished.touched.age(now) > age);
    Ok(Cleared::clear(root, old.map(|old| old.id)))
}

/// Clears away what nobody can go on with and no living process works at: trees, single files and uploads without
/// state or data that a killed process left. Unfinished uploads stay; they expire.
pub fn clear_abandoned(root: &Root) -> Result<Cleared, RootError> {
    let abandoned = match open_staging(root)? {
        Some(staging) => find_abandoned(staging)?,
        None => Vec::new(),
    };
    Ok(Cleared::clear(root, abandoned))
}

/// Whoever begins something holds the staging folder until it holds what it began.
fn find_abandoned(staging: Root) -> Result<Vec<StagedId>, RootError> {
    if !root::is_free(staging.fd()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in staging.list(&RelPath::root())? {
        if let Ok(id) = entry.path.to_string().parse::<StagedId>()
            && !is_in_use(&staging, &entry.path, entry.meta.is_dir())
        {
            found.push(id);
        }
    }
    Ok(found)
}

/// Whether somebody works at it or can go on with it; what cannot be looked at is left alone.
fn is_in_use(staging: &Root, path: &RelPath, is_dir: bool) -> bool {
    if !is_dir {
        return staging
            .open_file_no_links(path)
            .map_or(true, |(file, _)| !root::is_free(&file));
    }
    let Ok(folder) = staging.open_dir_no_links(path) else {
        return true;
    };
    let has = |name: &str| sys::accessat(&folder, name, Access::EXISTS, AtFlags::empty()).is_ok();
    let journal = path
        .child(b"journal")
        .map_err(RootError::from)
        .and_then(|path| staging.open_file_no_links(&path));
    let is_owned = journal.is_ok_and(|(journal, _)| !root::is_free(&journal));
    is_owned || (has("state") && has("data")) || !root::is_free(&folder)
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
    let removed = match sys::unlinkat(&folder, id.as_str(), AtFlags::empty()) {
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
        assert_eq!(expire(&root, Duration::from_secs(3600), now).unwrap().gone, []);
        let later = Mtime::from_nanos(now.as_nanos() + 7_200_000_000_000);
        let gone = expire(&root, Duration::from_secs(3600), later).unwrap().gone;
        assert_eq!(gone.len(), 3);
        assert!(gone.contains(tree.id()) && gone.contains(assembly.id()));
        drop(staged);
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
        assert!(Assembly::open(&root, assembly.id()).is_err());
    }

    #[test]
    fn what_a_dead_process_left_goes_unless_somebody_can_go_on_with_it() {
        let (folder, root) = scratch();
        let tree = StagedTree::create(&root).unwrap();
        tree.tree()
            .write_file(&rel("f"), b"part", crate::Existing::Keep)
            .unwrap();
        let file = root.stage_file(Default::default()).unwrap();
        let plan = AssemblyPlan {
            path: rel("big"),
            size: 3,
            executable: false,
            mtime: None,
        };
        let assembly = Assembly::create(&root, plan).unwrap();
        assert_eq!(
            clear_abandoned(&root).unwrap().gone,
            [],
            "all of it is being worked at"
        );

        let (left, kept) = (tree.id().clone(), assembly.id().clone());
        drop((tree, assembly));
        assert_eq!(clear_abandoned(&root).unwrap().gone, [left]);
        assert!(Assembly::open(&root, &kept).is_ok(), "it can be gone on with");

        let staging = folder.path().join(STAGING);
        let lone = StagedId::fresh();
        std::fs::write(staging.join(lone.as_str()), "part").unwrap();
        std::fs::remove_file(staging.join(kept.as_str()).join("data")).unwrap();
        let mut gone = clear_abandoned(&root).unwrap().gone;
        gone.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let mut expected = [lone, kept];
        expected.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        assert_eq!(gone, expected);
        drop(file);
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_root_where_nothing_was_begun_has_nothing_unfinished() {
        let (_folder, root) = scratch();
        assert_eq!(unfinished(&root).unwrap(), []);
    }
}
