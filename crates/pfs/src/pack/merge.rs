//! Merges a staged tree into a folder that may exist, file by file, each atomically.
//!
//! A folder that the target lacks is moved as a whole. An entry that fails does not stop the others.

use std::collections::{HashMap, HashSet};

use super::{StagedTree, Unpacked};
use crate::relpath::RelPath;
use crate::root::{self, Durability, Existing, Kind, Meta, Root, RootError, Stamp, Usage, stat_name};
use crate::sys::{self, AsFd, Errno, FileType, OwnedFd};

/// Whether a merge returns the new stamps of files that it places individually, which costs a `stat` of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacedStamps {
    Return,
    Omit,
}

/// The result of merging a staged tree.
#[derive(Debug, Default)]
pub struct Merged {
    /// Existing entries that were kept, relative to the folder.
    pub kept: Vec<RelPath>,
    /// Entries that could not be placed, with the error.
    pub failed: Vec<(RelPath, RootError)>,
    /// Files that were replaced.
    pub replaced: Usage,
    /// Files placed in existing folders, with their new stamps: a rename changes a file's stamp. Empty with
    /// [`PlacedStamps::Omit`].
    pub placed: Vec<(RelPath, Stamp)>,
    /// Folders that were moved whole: the files in them keep their stamps.
    pub moved: Vec<RelPath>,
}

impl Merged {
    /// The staged files that are in place now, with their current stamps.
    pub fn settled(&self, staged: impl IntoIterator<Item = Unpacked>) -> Vec<Unpacked> {
        let placed: HashMap<&RelPath, &Stamp> =
            self.placed.iter().map(|(path, stamp)| (path, stamp)).collect();
        let moved: HashSet<&RelPath> = self.moved.iter().collect();
        let lies_in_moved = |path: &RelPath| {
            let mut above = std::iter::successors(path.parent(), RelPath::parent);
            !moved.is_empty() && above.any(|folder| moved.contains(&folder))
        };
        let settled = staged
            .into_iter()
            .filter_map(|file| match placed.get(&file.path) {
                Some(stamp) => is_still(&file.stamp, stamp).then_some(Unpacked {
                    stamp: **stamp,
                    ..file
                }),
                None => lies_in_moved(&file.path).then_some(file),
            });
        settled.collect()
    }
}

/// Whether the file found after placing is the staged one, neither replaced nor written since.
fn is_still(staged: &Stamp, placed: &Stamp) -> bool {
    let same_file_system = placed.device == staged.device;
    let is_same_node = (placed.inode, placed.mtime) == (staged.inode, staged.mtime);
    placed.size == staged.size && (is_same_node || !same_file_system)
}

/// Up to this many folders, syncing each is cheaper than syncing the whole file system.
const ONE_BY_ONE: usize = 64;

impl StagedTree {
    /// Syncs the tree and moves its contents below `folder`, which is created if needed.
    ///
    /// After an error, some files may be in place; nothing stays staged.
    pub fn merge(
        self,
        folder: &RelPath,
        existing: Existing,
        stamps: PlacedStamps,
    ) -> Result<Merged, RootError> {
        let merged = self.merge_into(folder, existing, stamps);
        // The error of the merge matters more than an error of the cleanup.
        let gone = self.discard();
        merged.and_then(|merged| gone.map(|()| merged))
    }

    fn merge_into(
        &self,
        folder: &RelPath,
        existing: Existing,
        stamps: PlacedStamps,
    ) -> Result<Merged, RootError> {
        super::staged_tree::check_links(self.tree())?;
        let staged = crate::staging::staged_path(self.id());
        root::sync_tree(self.root(), &staged)?;
        let mut merge = Merge {
            source: self.tree().clone(),
            target: self.root().clone(),
            folder: folder.clone(),
            existing,
            stamps,
            merged: Merged::default(),
            waiting: vec![RelPath::root()],
            touched: Vec::new(),
        };
        self.root().make_dirs(folder)?;
        merge.run()?;
        merge.sync()?;
        Ok(merge.merged)
    }
}

struct Merge {
    source: Root,
    target: Root,
    folder: RelPath,
    existing: Existing,
    stamps: PlacedStamps,
    merged: Merged,
    /// Folders that exist on both sides.
    waiting: Vec<RelPath>,
    touched: Vec<RelPath>,
}

impl Merge {
    fn run(&mut self) -> Result<(), RootError> {
        while let Some(path) = self.waiting.pop() {
            let place = self.folder.join(&path)?;
            let source = self.source.open_dir_no_links(&path)?;
            let (target, real) = match self.target.open_to_write(&place) {
                Ok(opened) => opened,
                Err(error) => {
                    self.merged.failed.push((path, error));
                    continue;
                }
            };
            for entry in self.source.list(&path)? {
                match self
                    .target
                    .refuse_protected(&lying_in(&real, &entry.path)?, &entry.path)
                {
                    Ok(()) => self.place(&source, &target, &entry.path, &entry.meta),
                    Err(error) => self.merged.failed.push((entry.path, error)),
                }
            }
            self.touched.push(place);
        }
        Ok(())
    }

    fn place(&mut self, source: &OwnedFd, target: &OwnedFd, path: &RelPath, meta: &Meta) {
        let name = path.name().expect("what is listed has a name");
        let moved = match meta.kind {
            Kind::Dir => self.place_folder(source, target, path, name),
            _ => self.place_file(source, target, path, name),
        };
        if let Err(errno) = moved {
            let error = RootError::errno("publish", path, errno);
            self.merged.failed.push((path.clone(), error));
        }
    }

    fn place_folder(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        path: &RelPath,
        name: &[u8],
    ) -> Result<(), Errno> {
        match root::publish_node((source, name), (target, name), Existing::Keep) {
            Err(Errno::EXIST) => {
                self.waiting.push(path.clone());
                Ok(())
            }
            Ok(()) => {
                self.merged.moved.push(path.clone());
                Ok(())
            }
            failed => failed,
        }
    }

    fn place_file(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        path: &RelPath,
        name: &[u8],
    ) -> Result<(), Errno> {
        let old = stat_name(target, name).ok();
        match root::publish_over((source, name), (target, name), old.as_ref(), self.existing) {
            Err(Errno::EXIST) if self.existing == Existing::Keep => {
                self.merged.kept.push(path.clone());
                return Ok(());
            }
            done => done?,
        }
        if let Some(old) = old {
            self.merged.replaced.files += 1;
            if FileType::from_raw_mode(old.st_mode) == FileType::RegularFile {
                self.merged.replaced.bytes += u64::try_from(old.st_size).unwrap_or(0);
            }
        }
        if self.stamps == PlacedStamps::Return {
            let stat = stat_name(target, name)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                self.merged.placed.push((path.clone(), Stamp::from(&stat)));
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), RootError> {
        if self.target.durability() != Durability::Synced {
            return Ok(());
        }
        if sys::SYNCS_FILE_SYSTEMS && self.touched.len() > ONE_BY_ONE {
            let fd = self.target.open_dir(&self.folder)?;
            return sys::sync_file_system(fd.as_fd())
                .map_err(|errno| RootError::errno("sync", &self.folder, errno));
        }
        for place in &self.touched {
            self.target.sync_fd(self.target.open_dir(place)?, place)?;
        }
        Ok(())
    }
}

/// The path of a listed entry in the target folder.
fn lying_in(folder: &RelPath, entry: &RelPath) -> Result<RelPath, RootError> {
    Ok(folder.child(entry.name().expect("what is listed has a name"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::FileAttributes;
    use std::io::Write;

    struct Fixture {
        folder: tempfile::TempDir,
        root: Root,
    }

    impl Fixture {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            let fixture = Self { folder, root };
            fixture.fill(&fixture.root, files);
            fixture
        }

        fn fill(&self, root: &Root, files: &[(&str, &str)]) {
            for (path, text) in files {
                let path: RelPath = path.parse().unwrap();
                root.make_dirs(&path.parent().unwrap()).unwrap();
                let mut staged = root.stage_file(FileAttributes::default()).unwrap();
                staged.write_all(text.as_bytes()).unwrap();
                staged.publish(&path, Existing::Replace).unwrap();
            }
        }

        fn staged(&self, files: &[(&str, &str)]) -> StagedTree {
            let staged = StagedTree::create(&self.root).unwrap();
            self.fill(staged.tree(), files);
            staged
        }

        fn read(&self, path: &str) -> String {
            std::fs::read_to_string(self.folder.path().join(path)).unwrap()
        }
    }

    #[test]
    fn folders_are_merged_and_files_replaced() {
        let fixture = Fixture::new(&[("d/a", "old"), ("d/b", "stays")]);
        let staged = fixture.staged(&[("a", "new"), ("sub/c", "c"), ("sub/deep/e", "e")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Replace, PlacedStamps::Return)
            .unwrap();
        assert_eq!(fixture.read("d/a"), "new");
        assert_eq!(fixture.read("d/b"), "stays");
        assert_eq!(fixture.read("d/sub/deep/e"), "e");
        assert_eq!((merged.replaced.files, merged.replaced.bytes), (1, 3));
        let stamp = |path: &str| fixture.root.stat(&path.parse().unwrap()).unwrap().stamp;
        assert_eq!(merged.placed, [("a".parse().unwrap(), stamp("d/a"))]);
        assert_eq!(merged.moved, ["sub".parse().unwrap()]);
        assert!(!fixture.folder.path().join(".pfs-staging").exists());
    }

    #[test]
    fn a_merge_reports_the_stamps_of_placed_files() {
        let fixture = Fixture::new(&[("d/a", "old"), ("d/kept", "old")]);
        let staged = fixture.staged(&[("a", "new"), ("kept", "new"), ("sub/deep/e", "e")]);
        std::fs::create_dir(fixture.folder.path().join("d/wall")).unwrap();
        fixture.fill(staged.tree(), &[("wall", "not here")]);
        let unpacked = |path: &str| Unpacked {
            path: path.parse().unwrap(),
            digest: crate::Digest::of(path.as_bytes()),
            stamp: staged.tree().stat(&path.parse().unwrap()).unwrap().stamp,
        };
        let files = ["a", "kept", "sub/deep/e", "wall"].map(unpacked);
        let staged_as = files[0].clone();
        std::fs::remove_file(fixture.folder.path().join("d/a")).unwrap();
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Keep, PlacedStamps::Return)
            .unwrap();
        let inode = staged_as.stamp.inode + 1;
        for stamp in [
            Stamp {
                inode,
                ..staged_as.stamp
            },
            Stamp {
                size: 9,
                ..staged_as.stamp
            },
            Stamp {
                mtime: crate::Mtime::from_nanos(1),
                ..staged_as.stamp
            },
        ] {
            let another = Unpacked {
                stamp,
                ..staged_as.clone()
            };
            let settled = merged.settled([another]);
            assert_eq!(settled, [], "something else lay there when it was looked at");
        }
        let settled = merged.settled(files);
        let reported: Vec<String> = settled.iter().map(|file| file.path.to_string()).collect();
        assert_eq!(
            reported,
            ["a", "sub/deep/e"],
            "neither what was kept nor what failed"
        );
        for file in settled {
            let place = "d".parse::<RelPath>().unwrap().join(&file.path).unwrap();
            assert_eq!(file.stamp, fixture.root.stat(&place).unwrap().stamp, "{place}");
        }
    }

    #[test]
    fn kept_files_are_reported_by_a_merge() {
        let fixture = Fixture::new(&[("d/a", "old")]);
        let staged = fixture.staged(&[("a", "new"), ("b", "b")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Keep, PlacedStamps::Omit)
            .unwrap();
        assert_eq!(merged.kept, ["a".parse().unwrap()]);
        assert_eq!(
            (fixture.read("d/a"), fixture.read("d/b")),
            ("old".into(), "b".into())
        );
    }

    #[test]
    fn a_conflicting_file_does_not_stop_the_others() {
        let fixture = Fixture::new(&[("d/x", "a file"), ("d/y/z", "a folder")]);
        let staged = fixture.staged(&[("x/inner", "1"), ("y", "2"), ("w", "3")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Replace, PlacedStamps::Omit)
            .unwrap();
        let mut failed: Vec<String> = merged.failed.iter().map(|(path, _)| path.to_string()).collect();
        failed.sort();
        assert_eq!(failed, ["x", "y"]);
        assert_eq!(fixture.read("d/w"), "3");
        assert_eq!(fixture.read("d/x"), "a file");
        assert!(!fixture.folder.path().join(".pfs-staging").exists());
    }

    #[test]
    fn a_failed_merge_leaves_nothing_staged() {
        let fixture = Fixture::new(&[("wall", "a file where the folder should be")]);
        let staged = fixture.staged(&[("a", "1")]);
        let failed = staged.merge(&"wall".parse().unwrap(), Existing::Replace, PlacedStamps::Omit);
        assert!(matches!(failed, Err(RootError::NotAFolder(_))), "{failed:?}");
        assert_eq!(fixture.read("wall"), "a file where the folder should be");
        assert!(!fixture.folder.path().join(".pfs-staging").exists());
    }

    #[test]
    fn a_socket_or_pipe_is_not_replaced() {
        let fixture = Fixture::new(&[("d/a", "a")]);
        let path = fixture.folder.path().join("d/socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let staged = fixture.staged(&[("socket", "x"), ("b", "b")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Replace, PlacedStamps::Omit)
            .unwrap();
        let [(failed, RootError::NotAFile(_))] = merged.failed.as_slice() else {
            panic!("{:?}", merged.failed);
        };
        assert_eq!(failed.to_string(), "socket");
        assert_eq!(fixture.read("d/b"), "b");
        let place: RelPath = "d/socket".parse().unwrap();
        assert_eq!(fixture.root.stat_link(&place).unwrap().kind, Kind::Special);
        for existing in [Existing::Replace, Existing::Keep] {
            fixture.root.write_file(&place, b"x", existing).unwrap_err();
            let link = fixture
                .root
                .publish_link(&"d/a".parse().unwrap(), &place, existing);
            link.unwrap_err();
        }
        assert_eq!(fixture.root.stat_link(&place).unwrap().kind, Kind::Special);
    }

    #[test]
    fn a_merge_does_not_follow_a_link_to_the_outside() {
        let outside = tempfile::tempdir().unwrap();
        let fixture = Fixture::new(&[("d/a", "a")]);
        std::os::unix::fs::symlink(outside.path(), fixture.folder.path().join("d/trap")).unwrap();
        let staged = fixture.staged(&[("trap/loot", "x")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Replace, PlacedStamps::Omit)
            .unwrap();
        assert_eq!(merged.failed.len(), 1);
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
