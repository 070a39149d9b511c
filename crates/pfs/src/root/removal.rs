//! Removing whole trees: out of sight first where that can be, and where they lie where it cannot.
//!
//! One open folder per step and no recursion, so that depth costs neither stack nor descriptors: folders wait side by
//! side in one that stays until the end, and are emptied one after the other. What cannot be removed does not keep
//! the rest; the first reason is told.

use super::tree::raw_names;
use super::{FOLDER, Root, RootError, fresh_name, staging_folder, tidy_staging};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, AtFlags, BorrowedFd, Errno, Mode, OFlags, OwnedFd};

/// How often a folder that is being written to while it is removed is emptied again.
const MAX_ROUNDS: usize = 1000;

/// How many folders, one in the other, are removed where they lie: mount points, and what no other folder has room for.
const MOST_IN_PLACE: usize = 64;

impl Root {
    /// Removes whatever is at `path`, with all that lies below. Links are removed, never followed.
    ///
    /// The tree first moves out of sight, so nobody sees half of it, and then goes. Where it cannot move, it goes where
    /// it is: something may be mounted there, or the disk be too full for one more name.
    pub fn remove_all(&self, path: &RelPath) -> Result<(), RootError> {
        if !self.stat_link(path)?.is_dir() {
            return self.remove(path);
        }
        let (parent, name) = self.open_parent(path)?;
        let removed = match self.bury(&parent, name, path)? {
            Some((grave, buried)) => {
                self.sync_fd(&parent, path)?;
                remove_tree_in(&grave, buried.as_bytes(), path)
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

    /// Moves a folder to where nobody looks. Answers where, and its name there; `None` when it must stay where it is.
    fn bury(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        path: &RelPath,
    ) -> Result<Option<(OwnedFd, String)>, RootError> {
        let grave = match staging_folder(self) {
            Err(RootError::NoSpace(_) | RootError::FsQuota { .. }) => return Ok(None),
            other => other?,
        };
        let buried = fresh_name();
        match move_folder(parent, name, grave.as_fd(), &buried) {
            Ok(()) => Ok(Some((grave, buried))),
            Err(errno) if keeps_its_place(errno) => Ok(None),
            Err(errno) => Err(RootError::errno("remove", path, errno)),
        }
    }
}

/// Removes `name`, a folder, and all below it; `dir` takes its subfolders meanwhile.
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

/// The same without touching what lies beside it: subfolders wait in the folder itself.
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

/// Folders that wait side by side for their turn to be emptied.
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
                // Somebody still writes into it: go round again, but not for ever.
                Err(Errno::NOTEMPTY) if rounds < MAX_ROUNDS => {
                    rounds += 1;
                    self.waiting.push(current);
                }
                Err(errno) => first = first.or(Some(errno)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Removes a folder with all in it that is no folder; those are moved up to wait for their turn.
    fn empty_folder(&mut self, name: &[u8]) -> Result<(), Errno> {
        let fd = open_to_empty(self.dir, name)?;
        let mut first = None;
        for (child, _) in raw_names(&fd)? {
            if let Err(errno) = self.remove_child(&fd, &child) {
                first = first.or(Some(errno));
            }
        }
        match (sys::unlinkat(self.dir, name, AtFlags::REMOVEDIR), first) {
            // The folder is in the way of nobody but for the reason that something in it is.
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

/// Removes what is no folder, or an empty one; answers whether it is gone.
fn remove_node(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    match sys::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(sys::unlinkat(folder, name, AtFlags::REMOVEDIR).is_ok()),
        Err(errno) => Err(errno),
    }
}

/// Whether a folder could not move for a reason that does not keep it from being emptied: a mount point, the border of
/// a file system or of a quota, no room for its name elsewhere.
fn keeps_its_place(errno: Errno) -> bool {
    matches!(errno, Errno::XDEV | Errno::BUSY | Errno::NOSPC | Errno::DQUOT)
}

fn move_folder(from: &OwnedFd, name: &[u8], to: BorrowedFd<'_>, new: &str) -> Result<(), Errno> {
    let rename = || sys::renameat(from, name, to, new);
    match rename() {
        // A folder that changes its place has `..` written anew, for which it must be writable itself.
        Err(Errno::ACCESS) => {
            drop(open_to_empty(from.as_fd(), name)?);
            rename()
        }
        other => other,
    }
}

/// Opens a folder that is to be emptied. Its owner may have made it unreadable or read-only, which keeps nobody from
/// removing what is theirs.
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
    // Whoever may not do so need not, or hears of it when something cannot be removed.
    let _ = sys::make_usable(&fd);
    Ok(fd)
}
