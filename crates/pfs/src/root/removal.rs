//! Removes whole trees: moves them to staging first if possible, else removes them in place.
//!
//! Opens one folder per step and does not recurse, so that depth needs neither stack nor descriptors: subfolders are moved up to
//! one folder and emptied one after the other. A failure does not stop the rest; the first error is returned.

use super::tree::raw_names;
use super::{FOLDER, Root, RootError, fresh_name, staging_folder, tidy_staging};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, AtFlags, BorrowedFd, Errno, Mode, OFlags, OwnedFd};

/// How often to empty a folder again that is written to while it is removed.
const MAX_ROUNDS: usize = 1000;

/// How many nested folders to remove in place: mount points, and folders that cannot be moved for lack of space.
const MOST_IN_PLACE: usize = 64;

impl Root {
    /// Removes whatever is at `path`, with everything below. Links are removed, never followed.
    ///
    /// The tree is first moved out of sight, so that a reader never sees half of it. If it cannot be moved, it is removed in
    /// place: it may contain a mount point, or the disk may be too full for another name.
    pub fn remove_all(&self, path: &RelPath) -> Result<(), RootError> {
        if !self.stat_link(path)?.is_dir() {
            return self.remove(path);
        }
        let (parent, name) = self.open_parent(path)?;
        let removed = match self.move_to_staging(&parent, name, path)? {
            Some((staging, staged_name)) => {
                self.sync_fd(&parent, path)?;
                remove_tree_in(&staging, staged_name.as_bytes(), path)
            }
            None => {
                let removed = remove_in_place(parent.as_fd(), name, 0);
                self.sync_fd(&parent, path)?;
                removed.map_err(|errno| RootError::errno("remove", path, errno))
            }
        };
        tidy_staging(self);
        removed
    }

    /// Moves a folder to staging. Returns the folder and name there; `None` if it must be removed in place.
    fn move_to_staging(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        path: &RelPath,
    ) -> Result<Option<(OwnedFd, String)>, RootError> {
        let staging = match staging_folder(self) {
            Err(RootError::NoSpace(_) | RootError::FsQuota(_)) => return Ok(None),
            other => other?,
        };
        let staged_name = fresh_name();
        match move_folder(parent, name, staging.as_fd(), &staged_name) {
            Ok(()) => Ok(Some((staging, staged_name))),
            Err(errno) if keeps_its_place(errno) => Ok(None),
            Err(errno) => Err(RootError::errno("remove", path, errno)),
        }
    }
}

/// Removes the folder `name` and everything below it; uses `dir` for its subfolders meanwhile.
pub(crate) fn remove_tree_in(dir: &OwnedFd, name: &[u8], shown: &RelPath) -> Result<(), RootError> {
    let mut doomed = Doomed {
        dir: dir.as_fd(),
        in_place: 0,
        waiting: vec![name.to_vec()],
    };
    doomed
        .remove()
        .map_err(|errno| RootError::errno("remove", shown, errno))
}

/// Like [`remove_tree_in`], but uses the folder itself for its subfolders, not its parent.
fn remove_in_place(parent: BorrowedFd<'_>, name: &[u8], in_place: usize) -> Result<(), Errno> {
    let top = open_to_empty(parent, name)?;
    let mut rounds = 0;
    loop {
        let mut first = None;
        let mut doomed = Doomed {
            dir: top.as_fd(),
            in_place,
            waiting: Vec::new(),
        };
        for (child, _) in raw_names(&top)? {
            match remove_node(&top, &child) {
                Ok(true) => {}
                Ok(false) => doomed.waiting.push(child),
                Err(errno) => first = first.or(Some(errno)),
            }
        }
        let first = first.or(doomed.remove().err());
        match (sys::unlinkat(parent, name, AtFlags::REMOVEDIR), first) {
            (Err(Errno::NOTEMPTY), Some(errno)) => return Err(errno),
            (Err(Errno::NOTEMPTY), None) if rounds < MAX_ROUNDS => rounds += 1,
            (removed, _) => return removed,
        }
    }
}

/// Folders that wait, as siblings, to be emptied.
struct Doomed<'a> {
    dir: BorrowedFd<'a>,
    in_place: usize,
    waiting: Vec<Vec<u8>>,
}

impl Doomed<'_> {
    fn remove(&mut self) -> Result<(), Errno> {
        let mut rounds = 0;
        let mut first = None;
        while let Some(current) = self.waiting.pop() {
            match self.empty_folder(&current) {
                Ok(()) | Err(Errno::NOENT) => {}
                // The folder is still written to: try again, up to a limit.
                Err(Errno::NOTEMPTY) if rounds < MAX_ROUNDS => {
                    rounds += 1;
                    self.waiting.push(current);
                }
                Err(errno) => first = first.or(Some(errno)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Removes a folder and its files; its subfolders are moved up to wait.
    fn empty_folder(&mut self, name: &[u8]) -> Result<(), Errno> {
        let fd = open_to_empty(self.dir, name)?;
        let mut first = None;
        for (child, _) in raw_names(&fd)? {
            if let Err(errno) = self.remove_child(&fd, &child) {
                first = first.or(Some(errno));
            }
        }
        match (sys::unlinkat(self.dir, name, AtFlags::REMOVEDIR), first) {
            // The folder is not empty because a child could not be removed: report that error.
            (Err(Errno::NOTEMPTY), Some(errno)) => Err(errno),
            (removed, _) => removed,
        }
    }

    fn remove_child(&mut self, folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        if remove_node(folder, name)? {
            return Ok(());
        }
        let lifted = fresh_name();
        match move_folder(folder, name, self.dir, &lifted) {
            Ok(()) => {
                self.waiting.push(lifted.into_bytes());
                Ok(())
            }
            Err(errno) if keeps_its_place(errno) && self.in_place < MOST_IN_PLACE => {
                remove_in_place(folder.as_fd(), name, self.in_place + 1)
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Removes a file or an empty folder; returns whether it is gone.
fn remove_node(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    match sys::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(sys::unlinkat(folder, name, AtFlags::REMOVEDIR).is_ok()),
        Err(errno) => Err(errno),
    }
}

/// Whether a folder that could not be moved can still be emptied: a mount point, the border of a file system or quota, no space
/// for another name.
fn keeps_its_place(errno: Errno) -> bool {
    matches!(errno, Errno::XDEV | Errno::BUSY | Errno::NOSPC | Errno::DQUOT)
}

fn move_folder(from: &OwnedFd, name: &[u8], to: BorrowedFd<'_>, new: &str) -> Result<(), Errno> {
    let rename = || sys::renameat(from, name, to, new);
    match rename() {
        // Moving a folder rewrites its `..`, for which the folder itself must be writable.
        Err(Errno::ACCESS) => {
            drop(open_to_empty(from.as_fd(), name)?);
            rename()
        }
        other => other,
    }
}

/// Opens a folder to empty it. If its owner made it unreadable or read-only, it is made usable first.
fn open_to_empty(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || sys::openat(dir, name, flags, Mode::empty());
    let fd = match open() {
        Err(Errno::ACCESS) => {
            sys::make_usable_at(dir, name)?;
            open()?
        }
        other => other?,
    };
    // If this fails, it was not needed, or removing the contents reports the error.
    let _ = sys::make_usable(&fd);
    Ok(fd)
}
