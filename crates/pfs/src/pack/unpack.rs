//! Writes the contents of a pack stream into a staged tree.
//!
//! Does not publish: the owner of the tree does that with one rename.

use std::fs::File;
use std::io::Write;

use super::{PackError, PackParser, PackSink, PackTotals};
use crate::digest::Digest;
use crate::entry::{Entry, Mtime, Node};
use crate::relpath::RelPath;
use crate::root::{Root, RootError, STAGING, Stamp, timestamps};
use crate::sys::{self, AtFlags, Errno, Mode, OFlags, OwnedFd};

/// A file that was received completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    pub path: RelPath,
    pub digest: Digest,
    /// The stamp after writing.
    pub stamp: Stamp,
}

/// Writes entries below its own folder. An unfinished file is removed.
#[derive(Debug)]
pub struct Unpacker {
    tree: Root,
    folder: RelPath,
    folder_fd: Option<OwnedFd>,
    /// The file being received.
    open: Option<(RelPath, File)>,
    /// Folders that are still being filled. Their times are set last, because writing into them changes the times.
    entered: Vec<(RelPath, Mtime)>,
    /// Complete files.
    files: Vec<Unpacked>,
}

impl Unpacker {
    /// Writes into `tree`, which nothing else reads yet.
    pub fn new(tree: Root) -> Self {
        Self {
            tree,
            folder: RelPath::root(),
            folder_fd: None,
            open: None,
            entered: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The parent of an entry, opened once for consecutive children.
    fn folder(&mut self, parent: &RelPath) -> Result<&OwnedFd, RootError> {
        if self.folder_fd.is_none() || self.folder != *parent {
            self.folder_fd = Some(self.tree.open_dir_no_links(parent)?);
            self.folder = parent.clone();
        }
        Ok(self.folder_fd.as_ref().expect("just opened"))
    }

    fn leave_folders(&mut self, next: Option<&RelPath>) -> Result<(), RootError> {
        while let Some((path, mtime)) = self
            .entered
            .pop_if(|(path, _)| next.is_none_or(|next| !next.is_within(path)))
        {
            let fd = self.tree.open_dir_no_links(&path)?;
            sys::futimens(fd, &timestamps(mtime))
                .map_err(|errno| RootError::errno("set the time of", &path, errno))?;
        }
        Ok(())
    }

    fn make(&mut self, entry: &Entry) -> Result<(), RootError> {
        let (parent, name) = place_of(entry)?;
        let failed = |errno| RootError::errno("write", &entry.path, errno);
        let folder = self.folder(&parent)?;
        match &entry.node {
            Node::Dir => match sys::mkdirat(folder, name, Mode::from_raw_mode(0o755)) {
                // An earlier stream into the same tree created it.
                Ok(()) | Err(Errno::EXIST) => self.entered.push((entry.path.clone(), entry.mtime)),
                Err(errno) => return Err(failed(errno)),
            },
            Node::Symlink { target } => {
                replacing_existing(folder, name, || sys::symlinkat(target.as_bytes(), folder, name))
                    .map_err(failed)?;
                let times = timestamps(entry.mtime);
                sys::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            }
            Node::File { executable, .. } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(if *executable { 0o755 } else { 0o644 });
                let fd = replacing_existing(folder, name, || sys::openat(folder, name, flags, mode))
                    .map_err(failed)?;
                self.open = Some((entry.path.clone(), fd.into()));
            }
        }
        Ok(())
    }

    /// Call this after the whole stream was accepted. Returns the files in order.
    pub fn complete(mut self) -> Result<Vec<Unpacked>, RootError> {
        self.leave_folders(None)?;
        Ok(std::mem::take(&mut self.files))
    }
}

/// The folder and the name of an entry.
fn place_of(entry: &Entry) -> Result<(RelPath, &[u8]), RootError> {
    if entry.path.parts().next() == Some(STAGING.as_bytes()) {
        // Listings hide this folder: an entry in it would silently disappear.
        return Err(RootError::Denied(entry.path.clone()));
    }
    Ok(entry.path.split_last().expect("an entry has a name"))
}

/// Replaces what an interrupted earlier stream left under this name.
fn replacing_existing<T>(
    folder: &OwnedFd,
    name: &[u8],
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            sys::unlinkat(folder, name, AtFlags::empty())?;
            make()
        }
        done => done,
    }
}

impl PackSink for Unpacker {
    fn begin(&mut self, entry: &Entry) -> Result<(), RootError> {
        self.leave_folders(Some(&entry.path))?;
        self.make(entry)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), RootError> {
        let (path, file) = self
            .open
            .as_mut()
            .expect("content follows the beginning of a file");
        file.write_all(bytes)
            .map_err(|error| RootError::io("write", path, error))
    }

    fn end(&mut self, entry: &Entry, digest: Digest) -> Result<(), RootError> {
        let (path, file) = self.open.take().expect("the end follows the beginning of a file");
        sys::futimens(&file, &timestamps(entry.mtime))
            .map_err(|errno| RootError::errno("set the time of", &path, errno))?;
        let stat = sys::fstat(&file).map_err(|errno| RootError::errno("stat", &path, errno))?;
        let stamp = Stamp::from(&stat);
        self.files.push(Unpacked { path, digest, stamp });
        Ok(())
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if let Some((path, _)) = self.open.take() {
            // Best effort: a remaining part is found by its digest when the tree is checked.
            let _ = self.tree.remove(&path);
        }
    }
}

impl PackParser<Unpacker> {
    /// Accepts the stream if it is complete. The tree then has all of it, not yet synced. Returns the files in order.
    pub fn finish_unpacking(self) -> Result<(PackTotals, Vec<Unpacked>), PackError> {
        let (unpacker, totals) = self.finish()?;
        Ok((totals, unpacker.complete()?))
    }
}
