//! Atomic writes: content is staged under a temporary name in the same root, synced and renamed, so that a reader sees the old
//! file or the new one.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::{Durability, Meta, Root, RootError, stat_name, timestamps};
use crate::entry::{LinkTarget, Mtime};
use crate::relpath::RelPath;
use crate::sys::{
    self, AsFd, AtFlags, Errno, FileType, FlockOperation, Mode, OFlags, OwnedFd, RenameFlags, Stat,
};

/// The folder, directly below a root, of everything that is not published yet. Hidden from listings, removed when empty.
pub(crate) const STAGING: &str = ".pfs-staging";

/// What to do if the destination exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Replace it atomically.
    Replace,
    /// Keep it and fail with [`RootError::Exists`]; of two racing writers exactly one wins.
    Keep,
}

/// The attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileAttributes {
    pub executable: bool,
    /// `None` means now.
    pub mtime: Option<Mtime>,
}

impl FileAttributes {
    pub(super) fn mode(self) -> Mode {
        Mode::from_raw_mode(if self.executable { 0o755 } else { 0o644 })
    }
}

/// A file that is being written under a temporary name. It is removed on drop unless published.
#[derive(Debug)]
pub struct StagedFile {
    root: Root,
    folder: OwnedFd,
    name: String,
    file: File,
    attributes: FileAttributes,
    published: bool,
}

impl Root {
    /// Creates a staged file.
    pub fn stage_file(&self, attributes: FileAttributes) -> Result<StagedFile, RootError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = fresh_name();
        let (folder, fd) = in_staging(self, |folder| {
            sys::openat(folder, name.as_str(), flags, attributes.mode())
        })?;
        // The file is new, and only its owner could have locked it first; then they lose only their own file.
        let _ = hold(&fd);
        let_go(&folder);
        Ok(StagedFile {
            root: self.clone(),
            folder,
            name,
            file: fd.into(),
            attributes,
            published: false,
        })
    }

    /// Writes a small file at once.
    pub fn write_file(&self, path: &RelPath, content: &[u8], existing: Existing) -> Result<(), RootError> {
        let mut staged = self.stage_file(FileAttributes::default())?;
        staged
            .write_all(content)
            .map_err(|error| RootError::io("write", path, error))?;
        staged.publish(path, existing).map(drop)
    }
}

impl Root {
    /// Creates a symbolic link with the text `target` atomically. The target is checked when the link is followed.
    pub fn publish_link(
        &self,
        target: &LinkTarget,
        path: &RelPath,
        existing: Existing,
    ) -> Result<(), RootError> {
        let name = fresh_name();
        let (folder, ()) = in_staging(self, |folder| {
            sys::symlinkat(target.as_bytes(), folder, name.as_str())
        })?;
        let published = self.open_parent(path).and_then(|(parent, own)| {
            publish_node((&folder, name.as_bytes()), (&parent, own), existing)
                .map_err(|errno| RootError::errno("create the link", path, errno))?;
            self.sync_fd(&parent, path)
        });
        if published.is_err() {
            // The caller gets the original error.
            let _ = sys::unlinkat(&folder, name.as_str(), AtFlags::empty());
        }
        tidy_staging(self);
        published
    }
}

impl StagedFile {
    /// The open file, for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the content and renames the file to `path`. The parent folder must exist.
    pub fn publish(mut self, path: &RelPath, existing: Existing) -> Result<Meta, RootError> {
        let failed = |errno| RootError::errno("publish", path, errno);
        if let Some(mtime) = self.attributes.mtime {
            sys::futimens(&self.file, &timestamps(mtime)).map_err(failed)?;
        }
        self.root.sync_content(&self.file, path)?;
        let (parent, name) = self.root.open_parent(path)?;
        publish_node((&self.folder, self.name.as_bytes()), (&parent, name), existing).map_err(failed)?;
        self.published = true;
        self.root.sync_fd(&parent, path)?;
        let stat = sys::fstat(&self.file).map_err(failed)?;
        Meta::new(&stat, || Err(RootError::NotAFile(path.clone())))
    }
}

impl Write for StagedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published {
            // Errors cannot be reported here; a remaining file expires like unfinished uploads.
            let _ = sys::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
        }
        tidy_staging(&self.root);
    }
}

/// A unique random name.
pub(crate) fn fresh_name() -> String {
    // Each `RandomState` has new keys from the operating system's random source.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// The staging folder of a root, created if needed.
pub(crate) fn staging_folder(root: &Root) -> Result<OwnedFd, RootError> {
    in_staging(root, |_| Ok(())).map(|(folder, ())| folder)
}

/// Creates something in the staging folder, which another process may remove at any moment while it is empty.
///
/// While the returned folder is open, nothing in it counts as abandoned: the caller has time to [`hold`] what it created.
pub(crate) fn in_staging<T>(
    root: &Root,
    make: impl Fn(&OwnedFd) -> Result<T, Errno>,
) -> Result<(OwnedFd, T), RootError> {
    let path: RelPath = STAGING.parse().expect("a plain name");
    let failed = |errno| RootError::errno("stage in", &path, errno);
    loop {
        match sys::mkdirat(root.fd(), STAGING, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let folder = match root.open_dir_no_links(&path) {
            Err(RootError::NotFound(_)) => continue,
            other => other?,
        };
        hold(&folder).map_err(|errno| not_held(&path, errno))?;
        match make(&folder) {
            Ok(made) => return Ok((folder, made)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// How long to wait for an exclusive lock on a node. A sweep takes much less; a job may hold one forever.
const HELD_AT_MOST: Duration = Duration::from_secs(10);

/// Marks a node as in use while its descriptor is open. The kernel releases the mark when the process exits.
///
/// Fails if another process keeps the node locked for long.
pub(crate) fn hold(fd: impl AsFd) -> Result<(), Errno> {
    hold_within(fd, HELD_AT_MOST)
}

fn hold_within(fd: impl AsFd, limit: Duration) -> Result<(), Errno> {
    match lock_within(fd, FlockOperation::NonBlockingLockShared, limit) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        // On a file system without locks, no sweep relies on them either.
        _ => Ok(()),
    }
}

/// Retries a lock that another process holds. A child that this process has just forked shares its locks until it calls `exec`.
pub(crate) fn lock_within(fd: impl AsFd, operation: FlockOperation, limit: Duration) -> Result<(), Errno> {
    let until = Instant::now() + limit;
    loop {
        match sys::flock(&fd, operation) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            result => return result,
        }
    }
}

/// A sweep may hold the lock for a while; callers can retry.
fn not_held(path: &RelPath, errno: Errno) -> RootError {
    match errno {
        Errno::WOULDBLOCK => RootError::Busy(path.clone()),
        errno => RootError::errno("stage in", path, errno),
    }
}

fn let_go(fd: impl AsFd) {
    let _ = sys::flock(fd, FlockOperation::Unlock);
}

/// Whether a node is not locked, by this or another process.
pub(crate) fn is_free(fd: impl AsFd) -> bool {
    sys::flock(fd, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Locks a node exclusively; returns `false` if it is locked already. Always succeeds on a file system without locks.
pub(crate) fn hold_alone(fd: impl AsFd) -> bool {
    sys::flock(fd, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Removes the staging folder if it is empty.
pub(crate) fn tidy_staging(root: &Root) {
    let _ = sys::unlinkat(root.fd(), STAGING, AtFlags::REMOVEDIR);
}

type Name<'a> = (&'a OwnedFd, &'a [u8]);

/// Renames a node to its destination, keeping or replacing what exists. Sockets, pipes and devices are not replaced: that would
/// break the programs that use them.
pub(crate) fn publish_node(from: Name<'_>, to: Name<'_>, existing: Existing) -> Result<(), Errno> {
    let there = match existing {
        Existing::Replace => stat_name(to.0, to.1).ok(),
        Existing::Keep => None,
    };
    publish_over(from, to, there.as_ref(), existing)
}

/// Like [`publish_node`] for callers that know the `stat` of the destination.
pub(crate) fn publish_over(
    from: Name<'_>,
    to: Name<'_>,
    there: Option<&Stat>,
    existing: Existing,
) -> Result<(), Errno> {
    match existing {
        Existing::Replace if there.is_some_and(is_special) => Err(Errno::NXIO),
        Existing::Replace => sys::renameat(from.0, from.1, to.0, to.1),
        Existing::Keep => match sys::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => keep_without_flag(from, to),
            done => done,
        },
    }
}

fn is_special(stat: &Stat) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    !matches!(
        kind,
        FileType::RegularFile | FileType::Directory | FileType::Symlink
    )
}

/// For file systems without `RENAME_NOREPLACE` (some FUSE ones): hard links and `mkdir` also refuse an existing name atomically.
fn keep_without_flag(from: Name<'_>, to: Name<'_>) -> Result<(), Errno> {
    let stat = stat_name(from.0, from.1)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        sys::mkdirat(to.0, to.1, Mode::from_raw_mode(0o755))?;
        let moved = sys::renameat(from.0, from.1, to.0, to.1);
        if moved.is_err() {
            // The rename failed for another reason, so the name is freed again.
            let _ = sys::unlinkat(to.0, to.1, AtFlags::REMOVEDIR);
        }
        return moved;
    }
    sys::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())?;
    sys::unlinkat(from.0, from.1, AtFlags::empty())
}

/// Publishes a whole folder. Returns whether it replaced one, which then has the old name of `from`.
pub(crate) fn publish_folder(from: Name<'_>, to: Name<'_>, existing: Existing) -> Result<bool, Errno> {
    if existing == Existing::Keep {
        return publish_node(from, to, existing).map(|()| false);
    }
    loop {
        match sys::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(true),
            Err(Errno::NOENT) => match publish_node(from, to, Existing::Keep) {
                Err(Errno::EXIST) => continue,
                done => return done.map(|()| false),
            },
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return replace_in_two_steps(from, to),
            Err(errno) => return Err(errno),
        }
    }
}

/// For file systems without `RENAME_EXCHANGE`: the old folder is renamed first. Between the two renames a reader gets "not
/// found", never a mixture.
fn replace_in_two_steps(from: Name<'_>, to: Name<'_>) -> Result<bool, Errno> {
    let aside = fresh_name();
    let moved = match sys::renameat(to.0, to.1, from.0, aside.as_str()) {
        Ok(()) => true,
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(errno),
    };
    sys::renameat(from.0, from.1, to.0, to.1)?;
    if moved {
        sys::renameat(from.0, aside.as_str(), from.0, from.1)?;
    }
    Ok(moved)
}

/// Syncs every file and folder of a tree before it is published.
pub(crate) fn sync_tree(root: &Root, folder: &RelPath) -> Result<(), RootError> {
    // Up to this many nodes, syncing each is cheaper than syncing the whole file system.
    let one_by_one = match root.durability() {
        Durability::Relaxed => return Ok(()),
        Durability::Contents => 8,
        Durability::Synced => 64,
    };
    let mut nodes = Vec::new();
    for entry in root.walk(folder) {
        let entry = entry?;
        if entry.meta.is_dir() || entry.meta.is_file() {
            nodes.push(entry);
        }
        if sys::SYNCS_FILE_SYSTEMS && nodes.len() > one_by_one {
            let fd = root.open_dir(folder)?;
            return sys::sync_file_system(fd.as_fd())
                .map_err(|errno| RootError::errno("sync", folder, errno));
        }
    }
    for entry in &nodes {
        match entry.meta.is_dir() {
            true => root.sync_fd(root.open_dir_no_links(&entry.path)?, &entry.path)?,
            false => root.sync_content(root.open_file_no_links(&entry.path)?.0, &entry.path)?,
        }
    }
    root.sync_fd(root.open_dir(folder)?, folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;

    #[test]
    fn waiting_for_a_locked_staging_folder_times_out() {
        let (_folder, root) = scratch();
        let theirs = staging_folder(&root).unwrap();
        let_go(&theirs);
        assert!(is_free(&theirs), "it is taken now");
        let ours = root.open_dir_no_links(&STAGING.parse().unwrap()).unwrap();
        let refused = hold_within(&ours, Duration::ZERO).unwrap_err();
        let error = not_held(&STAGING.parse().unwrap(), refused);
        assert!(matches!(error, RootError::Busy(_)), "{error}");
        let_go(&theirs);
        assert_eq!(hold_within(&ours, Duration::ZERO), Ok(()));
    }
}
