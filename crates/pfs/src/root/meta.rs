//! Metadata of one node.

use std::fs::File;
use std::io;

use serde::{Deserialize, Serialize};

use crate::entry::{LinkTarget, Mtime};
use crate::sys::{self, FileType, Stat};

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink(LinkTarget),
    /// A socket, pipe or device: listed, never read.
    Special,
}

/// Kind, size and times of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub kind: Kind,
    /// The size of the content; zero except for files.
    pub size: u64,
    pub mtime: Mtime,
    pub executable: bool,
    pub stamp: Stamp,
}

/// Identifies one state of one file: while the stamp is the same, so is the content (see [`Stamp::is_settled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub mtime: Mtime,
    pub ctime: Mtime,
}

impl Stamp {
    /// File system clocks are coarse: a file changed within this time may change again without a new stamp.
    pub const SETTLING: std::time::Duration = std::time::Duration::from_secs(2);

    /// Whether the last change is long enough before `now` that a later change gets another stamp.
    pub fn is_settled(&self, now: Mtime) -> bool {
        self.mtime.max(self.ctime).age(now) > Self::SETTLING
    }
}

impl From<&Stat> for Stamp {
    fn from(stat: &Stat) -> Self {
        let (device, inode) = sys::identity(stat);
        Self {
            device,
            inode,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: Mtime::new(stat.st_mtime, stat.st_mtime_nsec as u32),
            ctime: Mtime::new(stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }
}

impl Meta {
    /// Creates metadata from the kernel's `stat`; `target` is called only for links.
    pub(crate) fn new<E>(stat: &Stat, target: impl FnOnce() -> Result<LinkTarget, E>) -> Result<Self, E> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink(target()?),
            _ => Kind::Special,
        };
        let stamp = Stamp::from(stat);
        Ok(Self {
            size: if kind == Kind::File { stamp.size } else { 0 },
            executable: kind == Kind::File && stat.st_mode & 0o111 != 0,
            mtime: stamp.mtime,
            kind,
            stamp,
        })
    }

    /// The metadata of an open file, even without a name.
    pub fn of_file(file: &File) -> io::Result<Self> {
        let stat = sys::fstat(file)?;
        Self::new(&stat, || Err(io::Error::other("a link cannot be opened")))
    }

    /// Whether this is a folder.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }
}
