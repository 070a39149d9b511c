//! Unfinished files below a root: their ids, and how abandoned ones are removed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::entry::Mtime;
use crate::package::PackageId;
use crate::relpath::RelPath;
use crate::root::{self, Root, RootError, STAGING, Usage};
use crate::sys::{self, Access, AtFlags, Errno};

/// How long unfinished files are kept after their last change, on client and server.
pub const KEEP_UNFINISHED: Duration = Duration::from_secs(3 * 24 * 3600);

const OF_PACKAGE: &str = "package-";

/// The id of an unfinished upload, which the client uses to resume it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StagedId(String);

/// Text that is not such an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an unfinished upload")]
pub struct StagedIdError(String);

impl StagedId {
    pub(crate) fn fresh() -> Self {
        Self(root::fresh_name())
    }

    /// The id of a staged package, the same for every sender. It is not an upload of a file and never sent to clients.
    pub(crate) fn of_package(id: PackageId) -> Self {
        Self(format!("{OF_PACKAGE}{id}"))
    }

    /// The package that is staged under this name.
    pub(crate) fn package(name: &[u8]) -> Option<PackageId> {
        std::str::from_utf8(name)
            .ok()?
            .strip_prefix(OF_PACKAGE)?
            .parse()
            .ok()
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

impl fmt::Display for StagedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::as_text!(StagedId);

/// A file whose upload is unfinished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    pub id: StagedId,
    /// The latest change of anything in it.
    pub touched: Mtime,
    pub bytes: u64,
}

/// A package whose upload is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedPackage {
    pub id: PackageId,
    /// The latest change of anything in it.
    pub touched: Mtime,
    pub usage: Usage,
}

/// All unfinished files below a root, without packages. Foreign files in the staging folder are left out.
pub fn unfinished(root: &Root) -> Result<Vec<Unfinished>, RootError> {
    look_at_all(root, id_of, |id, touched, usage| Unfinished {
        id,
        touched,
        bytes: usage.bytes,
    })
}

/// All unfinished packages, including those being sent.
pub fn unfinished_packages(root: &Root) -> Result<Vec<UnfinishedPackage>, RootError> {
    look_at_all(root, StagedId::package, |id, touched, usage| UnfinishedPackage {
        id,
        touched,
        usage,
    })
}

/// Examines all staged nodes whose name is of one kind.
fn look_at_all<K, T>(
    root: &Root,
    kind: impl Fn(&[u8]) -> Option<K>,
    describe: impl Fn(K, Mtime, Usage) -> T,
) -> Result<Vec<T>, RootError> {
    let Some(staging) = open_staging(root)? else {
        return Ok(Vec::new());
    };
    let found = staging.names()?.into_iter().filter_map(|name| {
        let key = kind(&name)?;
        let (touched, usage) = look_at(&staging, &name)?;
        Some(describe(key, touched, usage))
    });
    Ok(found.collect())
}

fn id_of(name: &[u8]) -> Option<StagedId> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

/// The latest change of anything in a staged node, and its usage; `None` if it is gone.
fn look_at(staging: &Root, name: &[u8]) -> Option<(Mtime, Usage)> {
    let path = RelPath::root().child(name).ok()?;
    let meta = staging.stat_link(&path).ok()?;
    let mut usage = Usage::default();
    usage.add(&meta);
    // Anyone can set the mtime; the ctime is set by the system clock.
    let mut touched = meta.stamp.ctime;
    if meta.is_dir() {
        for inner in staging.walk(&path).flatten() {
            touched = touched.max(inner.meta.stamp.ctime);
            usage.add(&inner.meta);
        }
    }
    Some((touched, usage))
}

/// What was removed, and what could not be; the next sweep retries that.
#[derive(Debug, Default)]
pub struct Cleared {
    pub gone: Vec<StagedId>,
    /// The number of removed nodes that no upload created.
    pub strange: u64,
    /// The name in the staging folder, and the error.
    pub stuck: Vec<(RelPath, RootError)>,
}

impl Cleared {
    fn clear(root: &Root, names: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut cleared = Self::default();
        for name in names {
            let id = id_of(&name).or_else(|| StagedId::package(&name).map(StagedId::of_package));
            match (remove_name(root, &name), id) {
                (Ok(()), Some(id)) => cleared.gone.push(id),
                (Ok(()), None) => cleared.strange += 1,
                (Err(error), _) => {
                    let shown = RelPath::root().child(&name).unwrap_or_default();
                    cleared.stuck.push((shown, error));
                }
            }
        }
        cleared
    }
}

/// Removes everything unchanged for `age`, by any name. Active writers hold a lock or change their files.
pub fn expire(root: &Root, age: Duration, now: Mtime) -> Result<Cleared, RootError> {
    let Some(staging) = open_staging(root)? else {
        return Ok(Cleared::default());
    };
    let mut old = staging.names()?;
    old.retain(|name| {
        let is_old = look_at(&staging, name).is_some_and(|(touched, _)| touched.age(now) > age);
        is_old && !is_held(&staging, name)
    });
    Ok(Cleared::clear(root, old))
}

/// Removes what cannot be resumed and no running process holds: trees, single files and uploads without state or data, left by a
/// killed process. Unfinished uploads stay until they expire.
pub fn clear_abandoned(root: &Root) -> Result<Cleared, RootError> {
    let abandoned = match open_staging(root)? {
        Some(staging) => find_abandoned(staging)?,
        None => Vec::new(),
    };
    Ok(Cleared::clear(root, abandoned))
}

/// A writer holds the staging folder until it holds what it created.
fn find_abandoned(staging: Root) -> Result<Vec<Vec<u8>>, RootError> {
    if !root::is_free(staging.fd()) {
        return Ok(Vec::new());
    }
    let mut found = staging.names()?;
    found.retain(|name| {
        let path = id_of(name).and_then(|_| RelPath::root().child(name).ok());
        path.is_some_and(|path| {
            let meta = staging.stat_link(&path);
            meta.is_ok_and(|meta| !is_in_use(&staging, &path, meta.is_dir()))
        })
    });
    Ok(found)
}

/// Whether a running process has locked one of our nodes. On a file system without locks, none has.
fn is_held(staging: &Root, name: &[u8]) -> bool {
    let is_ours = id_of(name).is_some() || StagedId::package(name).is_some();
    let Some(path) = RelPath::root().child(name).ok().filter(|_| is_ours) else {
        return false;
    };
    let is_taken = |path: &RelPath| {
        let file = staging.open_file_no_links(path);
        file.is_ok_and(|(file, _)| !root::hold_alone(&file))
    };
    match staging.open_dir_no_links(&path) {
        Ok(folder) => !root::hold_alone(&folder) || path.child(b"journal").is_ok_and(|path| is_taken(&path)),
        Err(_) => is_taken(&path),
    }
}

/// Whether a node is locked or can be resumed. A node that cannot be examined counts as in use.
fn is_in_use(staging: &Root, path: &RelPath, is_dir: bool) -> bool {
    if !is_dir {
        return match staging.open_file_no_links(path) {
            Ok((file, _)) => !root::is_free(&file),
            // A link is created while holding the folder, until it is published.
            Err(RootError::ThroughLink(_)) => false,
            Err(_) => true,
        };
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
    staging_path()
        .child(id.0.as_bytes())
        .expect("hex digits are a plain name")
}

/// The path of a package's staged tree below the root.
pub fn package_place(id: PackageId) -> RelPath {
    staged_path(&StagedId::of_package(id))
}

/// The package whose staged tree contains a path, and the path in it.
pub fn in_package(path: &RelPath) -> Option<(PackageId, RelPath)> {
    let mut parts = path.parts();
    let staged = parts.next() == Some(STAGING.as_bytes());
    let id = parts.next().filter(|_| staged).and_then(StagedId::package)?;
    let inside = parts.try_fold(RelPath::root(), |inside, part| inside.child(part));
    Some((id, inside.ok()?))
}

/// Whether a name in the staging folder is that of a package's tree.
pub(crate) fn is_package(name: &[u8]) -> bool {
    StagedId::package(name).is_some()
}

/// Removes a staged file or folder, if it exists.
pub(crate) fn remove_staged(root: &Root, id: &StagedId) -> Result<(), RootError> {
    remove_name(root, id.as_str().as_bytes())
}

fn remove_name(root: &Root, name: &[u8]) -> Result<(), RootError> {
    let folder = root::staging_folder(root)?;
    let removed = match sys::unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(_) => root::remove_tree_in(&folder, name, &staging_path().child(name)?),
    };
    root::tidy_staging(root);
    removed
}

fn staging_path() -> RelPath {
    STAGING.parse().expect("a plain name")
}

fn open_staging(root: &Root) -> Result<Option<Root>, RootError> {
    match root.descend(&staging_path()) {
        Ok(staging) => Ok(Some(staging)),
        Err(RootError::NotFound(_)) => Ok(None),
        // A job has put something else there, so nothing is staged.
        Err(RootError::NotAFolder(_) | RootError::ThroughLink(_)) => Ok(None),
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
    use crate::testing::{leftovers, plant, rel, scratch, wait_until_expired};

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
    fn only_old_staged_entries_expire() {
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
        let hour = Duration::from_secs(3600);
        let gone = expire(&root, hour, later).unwrap().gone;
        assert_eq!(gone, [], "somebody is at all of them");
        let (left, kept) = (tree.id().clone(), assembly.id().clone());
        drop((tree, assembly, staged));
        let gone = wait_until_expired(&root, hour, later, 2);
        assert!(gone.len() == 2 && gone.contains(&left) && gone.contains(&kept));
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
        assert!(Assembly::open(&root, &kept).is_err());
    }

    #[test]
    fn foreign_entries_in_the_staging_folder_are_not_uploads_and_expire() {
        let (folder, root) = scratch();
        let staging = folder.path().join(STAGING);
        plant(
            folder.path(),
            &[
                (".pfs-staging/stash/deep/huge", "12345"),
                (".pfs-staging/.hidden", "1"),
                (".pfs-staging/l -> /etc", ""),
            ],
        );
        // An mtime one hundred years in the future.
        let far = SystemTime::now() + Duration::from_secs(100 * 365 * 86_400);
        std::fs::File::open(staging.join("stash"))
            .unwrap()
            .set_modified(far)
            .unwrap();
        assert_eq!(unfinished(&root).unwrap(), []);
        let now = Mtime::from(SystemTime::now());
        let hour = Duration::from_secs(3600);
        assert_eq!(expire(&root, hour, now).unwrap().strange, 0, "it is young");
        assert_eq!(
            clear_abandoned(&root).unwrap().strange,
            0,
            "nobody asks whose it is"
        );
        let later = Mtime::from_nanos(now.as_nanos() + 7_200_000_000_000);
        let cleared = expire(&root, hour, later).unwrap();
        assert_eq!((cleared.strange, cleared.gone.len()), (3, 0));
        assert!(cleared.stuck.is_empty(), "{:?}", cleared.stuck);
        assert!(!staging.exists());
    }

    #[test]
    fn a_staging_folder_replaced_by_a_link_is_ignored() {
        let (folder, root) = scratch();
        plant(folder.path(), &[("d/x", "1"), (".pfs-staging -> d", "")]);
        assert_eq!(unfinished(&root).unwrap(), []);
        let later = Mtime::from(SystemTime::now() + Duration::from_secs(7200));
        assert_eq!(expire(&root, Duration::ZERO, later).unwrap().strange, 0);
        assert!(folder.path().join("d/x").exists());
    }

    #[test]
    fn leftovers_of_a_dead_process_are_removed_unless_resumable() {
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
        let (lone, link) = (StagedId::fresh(), StagedId::fresh());
        std::fs::write(staging.join(lone.as_str()), "part").unwrap();
        std::os::unix::fs::symlink("somewhere", staging.join(link.as_str())).unwrap();
        std::fs::remove_file(staging.join(kept.as_str()).join("data")).unwrap();
        let mut gone = clear_abandoned(&root).unwrap().gone;
        gone.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let mut expected = [lone, link, kept];
        expected.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        assert_eq!(gone, expected);
        drop(file);
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_new_root_has_no_unfinished_uploads() {
        let (_folder, root) = scratch();
        assert_eq!(unfinished(&root).unwrap(), []);
    }
}
