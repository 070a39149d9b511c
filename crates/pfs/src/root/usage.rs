//! Counts the contents of a tree by descriptors, not by paths: folders that are too deep or unreadable do not stop the count.

use super::tree::names;
use super::{FOLDER, Meta, Root, RootError, STAGING, stat_name};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, Errno, FileType, Mode, OFlags, OwnedFd};

/// The contents of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Total size of all files; a file with two hard links counts twice.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    pub folders: u64,
    /// Folders that may not be read; their contents are not counted.
    pub unread: u64,
}

impl Usage {
    /// The usage of an unreadable folder.
    fn unread() -> Self {
        Self {
            unread: 1,
            ..Self::default()
        }
    }

    /// Counts one node.
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
    /// Bytes and files below `path`, including `path` itself if it is not a folder. Unreadable folders are not counted.
    pub fn usage(&self, path: &RelPath) -> Result<Usage, RootError> {
        self.usage_of(path, &self.stat_link(path)?)
    }

    /// Like [`Self::usage`], following a link at `path`.
    pub fn usage_behind(&self, path: &RelPath) -> Result<Usage, RootError> {
        self.usage_of(path, &self.stat(path)?)
    }

    fn usage_of(&self, path: &RelPath, meta: &Meta) -> Result<Usage, RootError> {
        if meta.is_dir() {
            return Ok(self.count_below(path)?.0);
        }
        let mut usage = Usage::default();
        usage.add(meta);
        Ok(usage)
    }

    /// A folder, in the staging folder too, whose contents are not counted because it cannot be read. Of one too deep for a path,
    /// the deepest folder above it that has one. Counts again to find it.
    pub fn unreadable(&self) -> Option<RelPath> {
        let tops = [RelPath::root(), STAGING.parse().expect("a plain name")];
        tops.iter().find_map(|top| self.count_below(top).ok()?.1)
    }

    /// The usage of the staging folder, including files that jobs put there.
    pub fn staged_usage(&self) -> Result<Usage, RootError> {
        match self.usage(&STAGING.parse().expect("a plain name")) {
            Err(error) if error.is_not_found() => Ok(Usage::default()),
            other => other,
        }
    }

    /// The raw names in the root itself; names that cannot be a path do not fail.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>, RootError> {
        names(&RelPath::root(), &self.fd)
    }

    /// The usage, and the first unreadable folder.
    fn count_below(&self, folder: &RelPath) -> Result<(Usage, Option<RelPath>), RootError> {
        if !sys::GOES_UP {
            let (mut usage, mut unreadable) = (Usage::default(), None);
            for entry in self.walk(folder) {
                match entry {
                    Ok(entry) => usage.add(&entry.meta),
                    Err(error) => {
                        usage.unread += 1;
                        unreadable = unreadable.or(error.path().cloned());
                    }
                }
            }
            return Ok((usage, unreadable));
        }
        let closed = || Ok((Usage::unread(), Some(folder.clone())));
        let fd = match self.open_dir(folder) {
            Err(RootError::Denied(_)) => return closed(),
            other => other?,
        };
        let hidden = folder.is_root().then_some(STAGING.as_bytes());
        let Some(mut count) = Count::begin(folder, fd, hidden) else {
            return closed();
        };
        while count.step() {}
        Ok((count.usage, count.unreadable))
    }
}

/// One level of the descent.
struct Level {
    /// The name in the level above.
    name: Vec<u8>,
    device_and_inode: (u64, u64),
    /// Subfolders that are not counted yet.
    left: Vec<Vec<u8>>,
}

/// Descends with one open folder at a time and goes up by `..`. A job may move folders meanwhile: if `..` is not the expected
/// folder, the path is opened again from the top by names, as far as it leads to the same folders.
struct Count<'a> {
    shown: &'a RelPath,
    usage: Usage,
    /// The first unreadable folder.
    unreadable: Option<RelPath>,
    top: OwnedFd,
    /// The folder of the last level, unless it is the top.
    here: Option<OwnedFd>,
    levels: Vec<Level>,
}

impl<'a> Count<'a> {
    /// Counts the entries of the top itself; `None` if it cannot be read.
    fn begin(shown: &'a RelPath, top: OwnedFd, hidden: Option<&[u8]>) -> Option<Self> {
        let mut usage = Usage::default();
        let mut first = look_into(shown, &top, Vec::new(), &mut usage)?;
        if let Some(at) = first.left.iter().position(|name| Some(name.as_slice()) == hidden) {
            first.left.swap_remove(at);
            usage.folders -= 1;
        }
        Some(Self {
            shown,
            usage,
            unreadable: None,
            top,
            here: None,
            levels: vec![first],
        })
    }

    /// Counts the next folder, or goes up; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else {
            return false;
        };
        match level.left.pop() {
            Some(name) => self.enter(name),
            None => {
                self.levels.pop();
                self.go_up();
            }
        }
        true
    }

    fn enter(&mut self, name: Vec<u8>) {
        let child = match open_named(self.here.as_ref().unwrap_or(&self.top), &name) {
            Ok(child) => child,
            Err(Errno::ACCESS) => return self.unread(&name),
            Err(_) => return,
        };
        match look_into(self.shown, &child, name.clone(), &mut self.usage) {
            Some(below) if !below.left.is_empty() => {
                self.levels.push(below);
                self.here = Some(child);
            }
            Some(_) => {}
            None => self.unread(&name),
        }
    }

    fn unread(&mut self, name: &[u8]) {
        self.usage.unread += 1;
        if self.unreadable.is_none() {
            let above = self.levels[1..].iter().map(|level| level.name.as_slice());
            let path = above.chain([name]).try_fold(self.shown.clone(), |path, name| {
                path.child(name).map_err(|_| path)
            });
            self.unreadable = Some(path.unwrap_or_else(|deepest| deepest));
        }
    }

    fn go_up(&mut self) {
        let here = self.here.take();
        let Some(above) = self.levels.last().filter(|_| self.levels.len() > 1) else {
            return;
        };
        let parent = here.and_then(|here| open_folder(&here, b".."));
        match parent.filter(|parent| is_level(parent, above)) {
            Some(parent) => self.here = Some(parent),
            None => self.come_again(),
        }
    }

    /// Opens the path again from the top. The remaining contents of a folder that has moved are not counted here.
    fn come_again(&mut self) {
        let mut reached = 1;
        let mut closed = None;
        for level in &self.levels[1..] {
            match open_named(self.here.as_ref().unwrap_or(&self.top), &level.name) {
                Ok(next) if is_level(&next, level) => self.here = Some(next),
                opened => {
                    closed = (opened.err() == Some(Errno::ACCESS)).then(|| level.name.clone());
                    break;
                }
            }
            reached += 1;
        }
        self.levels.truncate(reached);
        if let Some(name) = closed {
            self.unread(&name);
        }
    }
}

/// Counts the entries of a folder and returns its subfolders.
fn look_into(shown: &RelPath, folder: &OwnedFd, name: Vec<u8>, usage: &mut Usage) -> Option<Level> {
    let device_and_inode = sys::identity(&sys::fstat(folder).ok()?);
    let mut left = Vec::new();
    let names = match names(shown, folder) {
        // It was removed meanwhile.
        Err(RootError::NotFound(_)) => Vec::new(),
        found => found.ok()?,
    };
    for name in names {
        let Ok(stat) = stat_name(folder, &name) else {
            continue;
        };
        if usage.add_stat(&stat) == FileType::Directory {
            left.push(name);
        }
    }
    Some(Level {
        name,
        device_and_inode,
        left,
    })
}

fn open_folder(here: impl AsFd, name: &[u8]) -> Option<OwnedFd> {
    open_named(here, name).ok()
}

fn open_named(here: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(here, name, flags, Mode::empty())
}

fn is_level(folder: &OwnedFd, level: &Level) -> bool {
    sys::fstat(folder).is_ok_and(|stat| sys::identity(&stat) == level.device_and_inode)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{as_ordinary_user, plant, scratch};

    /// Counts until the current folder contains one called `inner`.
    fn count_until<'a>(shown: &'a RelPath, root: &Root, inner: &[u8]) -> Count<'a> {
        let top = root.open_dir(shown).unwrap();
        let mut count = Count::begin(shown, top, None).unwrap();
        let is_reached = |count: &Count<'_>| {
            let level = count.levels.last().unwrap();
            level.left.iter().any(|name| name == inner)
        };
        while !is_reached(&count) {
            assert!(count.step(), "it comes by there");
        }
        count
    }

    #[test]
    fn unreadable_folders_are_reported() {
        as_ordinary_user(|folder, root| {
            plant(
                folder,
                &[
                    ("t/a", "1"),
                    ("t/closed/b", "22"),
                    ("t/names/c", "333"),
                    ("t/z/d", "4"),
                ],
            );
            let lock = |name: &str, mode| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
                fs::set_permissions(folder.join(name), mode).unwrap();
            };
            lock("t/closed", 0o000);
            lock("t/names", 0o444);
            let usage = root.usage(&"t".parse().unwrap()).unwrap();
            let closed = root.usage(&"t/closed".parse().unwrap()).unwrap();
            lock("t/closed", 0o755);
            lock("t/names", 0o755);
            assert_eq!(
                (usage.files, usage.bytes, usage.folders, usage.unread),
                (2, 2, 3, 2)
            );
            assert_eq!((closed.files, closed.unread), (0, 1));
        });
    }

    #[test]
    fn an_unreadable_folder_is_named_by_its_path() {
        as_ordinary_user(|folder, root| {
            plant(folder, &[("t/a/b/closed/f", "1"), ("t/a/c/f", "1")]);
            fs::create_dir(folder.join(STAGING)).unwrap();
            assert_eq!(root.unreadable(), None);
            for closed in ["t/a/b/closed", STAGING] {
                let lock = |mode| {
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
                    fs::set_permissions(folder.join(closed), mode).unwrap();
                };
                lock(0o000);
                let found = root.unreadable();
                lock(0o755);
                assert_eq!(found, Some(closed.parse().unwrap()));
            }
        });
    }

    #[test]
    fn a_folder_that_moves_meanwhile_does_not_end_the_counting() {
        let (folder, root) = scratch();
        plant(
            folder.path(),
            &[
                ("a/x/inner/deep/f", "1"),
                ("a/x/f", "1"),
                ("a/y/d/f", "22"),
                ("a/z/d/f", "22"),
                ("b/d/f", "333"),
            ],
        );
        fs::create_dir(folder.path().join("c")).unwrap();
        let shown = RelPath::root();
        let whole = root.usage(&shown).unwrap();
        let mut count = count_until(&shown, &root, b"inner");
        fs::rename(folder.path().join("a/x"), folder.path().join("c/x")).unwrap();
        while count.step() {}
        assert!(count.usage.bytes >= whole.bytes, "{:?} of {whole:?}", count.usage);
        assert!(count.usage.files >= whole.files, "{:?} of {whole:?}", count.usage);
    }

    #[test]
    fn after_moves_only_unseen_folders_are_missed() {
        let (folder, root) = scratch();
        plant(folder.path(), &[("a/x/inner/deep/f", "1"), ("b/d/f", "333")]);
        fs::create_dir(folder.path().join("c")).unwrap();
        let shown = RelPath::root();
        let mut count = count_until(&shown, &root, b"deep");
        fs::rename(folder.path().join("a/x/inner"), folder.path().join("c/inner")).unwrap();
        fs::rename(folder.path().join("a/x"), folder.path().join("c/x")).unwrap();
        fs::rename(folder.path().join("a"), folder.path().join("c/a")).unwrap();
        while count.step() {}
        assert!(count.usage.bytes >= 4, "{:?}", count.usage);
    }
}
