//! Counts what a tree holds, by descriptors and not by paths: what is too deep to be named, or may not be read, does
//! not keep the rest from being counted.

use super::tree::names;
use super::{FOLDER, Meta, Root, RootError, STAGING, stat_name};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, FileType, Mode, OFlags, OwnedFd};

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of content of all files; a file with two names counts twice.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    pub folders: u64,
}

impl Usage {
    /// Counts one more node.
    pub fn add(&mut self, meta: &Meta) {
        self.bytes += meta.size;
        if meta.is_dir() {
            self.folders += 1;
        } else {
            self.files += 1;
        }
    }

    fn add_stat(&mut self, stat: &sys::Stat) -> FileType {
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::Directory => self.folders += 1,
            FileType::RegularFile => {
                self.files += 1;
                self.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
            _ => self.files += 1,
        }
        kind
    }
}

impl Root {
    /// Bytes and files below `path`, itself included when it is not a folder. What cannot be read is not counted.
    pub fn usage(&self, path: &RelPath) -> Result<Usage, RootError> {
        let meta = self.stat_link(path)?;
        if meta.is_dir() {
            return self.usage_below(path);
        }
        let mut usage = Usage::default();
        usage.add(&meta);
        Ok(usage)
    }

    /// The same of what a link at `path` leads to.
    pub fn usage_behind(&self, path: &RelPath) -> Result<Usage, RootError> {
        let meta = self.stat(path)?;
        if meta.is_dir() {
            return self.usage_below(path);
        }
        let mut usage = Usage::default();
        usage.add(&meta);
        Ok(usage)
    }

    fn usage_below(&self, folder: &RelPath) -> Result<Usage, RootError> {
        if !sys::GOES_UP {
            let mut usage = Usage::default();
            let readable = self.walk(folder).flatten();
            readable.for_each(|entry| usage.add(&entry.meta));
            return Ok(usage);
        }
        let fd = match self.open_dir(folder) {
            Err(RootError::Denied(_)) => return Ok(Usage::default()),
            other => other?,
        };
        let mut count = Count::default();
        let hidden = folder.is_root().then_some(STAGING.as_bytes());
        count.run(folder, fd, hidden);
        Ok(count.usage)
    }
}

/// One level on the way down.
struct Level {
    device_and_inode: (u64, u64),
    /// Folders that were not entered yet.
    left: Vec<Vec<u8>>,
}

/// Goes down with one open folder at a time, and up by `..`, which must lead where it came from: a job may move
/// folders about meanwhile.
#[derive(Default)]
struct Count {
    usage: Usage,
    levels: Vec<Level>,
}

impl Count {
    fn run(&mut self, shown: &RelPath, top: OwnedFd, hidden: Option<&[u8]>) {
        let Some(mut first) = self.look_into(shown, &top) else {
            return;
        };
        if let Some(at) = first.left.iter().position(|name| Some(name.as_slice()) == hidden) {
            first.left.swap_remove(at);
            self.usage.folders -= 1;
        }
        self.levels.push(first);
        let mut here = top;
        while let Some(level) = self.levels.last_mut() {
            match level.left.pop() {
                Some(name) => {
                    if let Some((below, child)) = self.enter(shown, &here, &name) {
                        self.levels.push(below);
                        here = child;
                    }
                }
                None => {
                    self.levels.pop();
                    match self.levels.last().and_then(|above| go_up(&here, above)) {
                        Some(above) => here = above,
                        None => return,
                    }
                }
            }
        }
    }

    /// Counts a folder and gives it where it has folders of its own and there is a way back.
    fn enter(&mut self, shown: &RelPath, here: &OwnedFd, name: &[u8]) -> Option<(Level, OwnedFd)> {
        let child = open_folder(here, name)?;
        let below = self.look_into(shown, &child)?;
        let back = go_up(&child, self.levels.last()?);
        (!below.left.is_empty() && back.is_some()).then_some((below, child))
    }

    fn look_into(&mut self, shown: &RelPath, folder: &OwnedFd) -> Option<Level> {
        let device_and_inode = sys::identity(&sys::fstat(folder).ok()?);
        let mut left = Vec::new();
        for name in names(shown, folder).ok()? {
            let Ok(stat) = stat_name(folder, &name) else {
                continue;
            };
            if self.usage.add_stat(&stat) == FileType::Directory {
                left.push(name);
            }
        }
        Some(Level {
            device_and_inode,
            left,
        })
    }
}

fn open_folder(here: impl AsFd, name: &[u8]) -> Option<OwnedFd> {
    let flags = FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(here, name, flags, Mode::empty()).ok()
}

fn go_up(here: &OwnedFd, above: &Level) -> Option<OwnedFd> {
    let parent = open_folder(here, b"..")?;
    let stat = sys::fstat(&parent).ok()?;
    (sys::identity(&stat) == above.device_and_inode).then_some(parent)
}
