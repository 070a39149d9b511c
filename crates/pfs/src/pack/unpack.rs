//! Writes what a pack stream holds into a staged tree.
//!
//! Publishes nothing: that is one rename, done by whoever owns the tree.

use std::fs::File;
use std::io::{Read, Seek, Write};

use super::{PackError, PackLimits, PackParser, PackSink, PackTotals};
use crate::digest::Digest;
use crate::entry::{Entry, Mtime, Node};
use crate::relpath::RelPath;
use crate::root::{Root, RootError, STAGING, Stamp, timestamps};
use crate::sys::{self, AtFlags, Errno, FileType, Mode, OFlags, OwnedFd};

/// A file that came whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    pub path: RelPath,
    pub digest: Digest,
    /// What it was when it was written.
    pub stamp: Stamp,
}

/// Writes entries below a folder of its own; a file that is not finished is removed again, unless somebody comes back
/// for it.
#[derive(Debug)]
pub struct Unpacker {
    tree: Root,
    folder: RelPath,
    folder_fd: Option<OwnedFd>,
    /// The file that is coming in; without a place to put it where its beginning is not there.
    open: Option<(RelPath, Option<File>)>,
    keeps_parts: bool,
    /// Folders entered and not left; their times are set last, as writing into them changes those.
    entered: Vec<(RelPath, Mtime)>,
    /// Files that are complete.
    files: Vec<RelPath>,
    /// The same with more, where somebody wants to know.
    noted: Option<Vec<Unpacked>>,
}

impl Unpacker {
    /// Writes into `tree`, which nobody else looks at yet.
    pub fn new(tree: Root) -> Self {
        Self {
            tree,
            folder: RelPath::root(),
            folder_fd: None,
            open: None,
            keeps_parts: false,
            entered: Vec::new(),
            files: Vec::new(),
            noted: None,
        }
    }

    /// The same, which notes digest and stamp of every file; see [`Unpacker::end_noting`].
    pub fn noting(mut self) -> Self {
        self.noted = Some(Vec::new());
        self
    }

    /// The same, which leaves what came of a file when the stream breaks, to be gone on with.
    pub fn keeping_parts(mut self) -> Self {
        self.keeps_parts = true;
        self
    }

    /// The parent of an entry, opened once for all its children.
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
                // An earlier stream into the same tree made it.
                Ok(()) | Err(Errno::EXIST) => self.entered.push((entry.path.clone(), entry.mtime)),
                Err(errno) => return Err(failed(errno)),
            },
            Node::Symlink { target } => {
                again_if_there(folder, name, || sys::symlinkat(target.as_bytes(), folder, name))
                    .map_err(failed)?;
                let times = timestamps(entry.mtime);
                sys::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            }
            Node::File { executable, .. } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(if *executable { 0o755 } else { 0o644 });
                let fd = again_if_there(folder, name, || sys::openat(folder, name, flags, mode))
                    .map_err(failed)?;
                self.open = Some((entry.path.clone(), Some(fd.into())));
            }
        }
        Ok(())
    }

    fn reopen(
        &mut self,
        entry: &Entry,
        from: u64,
        so_far: &mut blake3::Hasher,
    ) -> Result<Option<File>, RootError> {
        let (parent, name) = place_of(entry)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Whatever else is there under this name, or is not: the beginning of the file it is not.
        let Ok(fd) = sys::openat(self.folder(&parent)?, name, flags, Mode::empty()) else {
            return Ok(None);
        };
        let mut file = File::from(fd);
        let stat = sys::fstat(&file).map_err(|errno| RootError::errno("look at", &entry.path, errno))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // What has another name too is somebody's, who would find all this in it.
        if !is_file || Stamp::from(&stat).size < from || !sys::has_one_name(&stat) {
            return Ok(None);
        }
        let read = file
            .set_len(from)
            .and_then(|()| so_far.update_reader((&mut file).take(from)).map(drop))
            .and_then(|()| file.stream_position())
            .map_err(|error| RootError::io("go on with", &entry.path, error))?;
        Ok((read == from).then_some(file))
    }

    /// Called once the whole stream was accepted. Answers which files it held.
    fn complete(mut self) -> Result<Vec<RelPath>, RootError> {
        self.leave_folders(None)?;
        Ok(std::mem::take(&mut self.files))
    }

    /// To be called once the whole stream was accepted: what was noted of its files, in order.
    pub fn end_noting(mut self) -> Result<Vec<Unpacked>, RootError> {
        self.leave_folders(None)?;
        Ok(self.noted.take().unwrap_or_default())
    }
}

/// The folder and the name an entry gets.
fn place_of(entry: &Entry) -> Result<(RelPath, &[u8]), RootError> {
    if entry.path.parts().next() == Some(STAGING.as_bytes()) {
        // Hidden in every listing: what came under it would vanish without a word.
        return Err(RootError::Denied(entry.path.clone()));
    }
    Ok(entry.path.split_last().expect("an entry has a name"))
}

/// What an interrupted earlier stream left under this name gives way.
fn again_if_there<T>(folder: &OwnedFd, name: &[u8], make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
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
        let written = file.as_mut().map_or(Ok(()), |file| file.write_all(bytes));
        written.map_err(|error| RootError::io("write", path, error))
    }

    fn go_on(&mut self, entry: &Entry, from: u64, so_far: &mut blake3::Hasher) -> Result<(), RootError> {
        self.leave_folders(Some(&entry.path))?;
        let file = self.reopen(entry, from, so_far)?;
        self.open = Some((entry.path.clone(), file));
        Ok(())
    }

    fn spoiled(&mut self, entry: &Entry) -> Result<(), RootError> {
        self.open = None;
        let (parent, name) = place_of(entry)?;
        match sys::unlinkat(self.folder(&parent)?, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(RootError::errno("remove", &entry.path, errno)),
        }
    }

    fn end(&mut self, entry: &Entry, digest: Digest) -> Result<(), RootError> {
        let (path, Some(file)) = self.open.take().expect("the end follows the beginning of a file") else {
            // Of nothing but its rest, it has the digest of the whole: that cannot be.
            return Err(RootError::Denied(entry.path.clone()));
        };
        sys::futimens(&file, &timestamps(entry.mtime))
            .map_err(|errno| RootError::errno("set the time of", &path, errno))?;
        match &mut self.noted {
            Some(noted) => {
                let stat = sys::fstat(&file).map_err(|errno| RootError::errno("look at", &path, errno))?;
                let stamp = Stamp::from(&stat);
                noted.push(Unpacked { path, digest, stamp });
            }
            None => self.files.push(path),
        }
        Ok(())
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if let Some((path, _)) = self.open.take()
            && !self.keeps_parts
        {
            // Best effort: a part that stays is found by its digest when the tree is checked.
            let _ = self.tree.remove(&path);
        }
    }
}

impl PackParser<Unpacker> {
    /// Accepts the stream if it is complete. The tree then holds all of it, not yet synced.
    pub fn finish_unpacking(self) -> Result<PackTotals, PackError> {
        self.finish_told().map(|(totals, _)| totals)
    }

    /// The same, and tells which files came, in order.
    pub fn finish_told(self) -> Result<(PackTotals, Vec<RelPath>), PackError> {
        let (unpacker, totals) = self.finish()?;
        Ok((totals, unpacker.complete()?))
    }
}

/// Unpacks a whole stream from a blocking reader, which is read up to the stream's end and no further
/// than one buffer beyond.
pub fn unpack(tree: &Root, mut stream: impl Read, limits: PackLimits) -> Result<PackTotals, PackError> {
    let mut parser = PackParser::new(Unpacker::new(tree.clone()), limits);
    let mut buffer = vec![0; 256 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return parser.finish_unpacking(),
            Ok(read) => parser.feed(&buffer[..read])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PackError::Stream(error)),
        }
    }
}
