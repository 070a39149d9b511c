//! Puts what a staged tree holds into a folder that may be there already, file by file, each in one step.
//!
//! A folder the target lacks moves over as a whole; what cannot take its place does not stop the rest.

use super::StagedTree;
use crate::relpath::RelPath;
use crate::root::{self, Durability, Existing, Kind, Meta, Root, RootError, Usage, stat_name};
use crate::sys::{self, AsFd, Errno, FileType, OwnedFd};

/// What became of a staged tree.
#[derive(Debug, Default)]
pub struct Merged {
    /// What was in the way and was to stay, relative to the folder.
    pub kept: Vec<RelPath>,
    /// What could not take its place, and why.
    pub failed: Vec<(RelPath, RootError)>,
    /// Files that gave way.
    pub replaced: Usage,
    /// Files and links that took their place in folders that were there.
    pub placed: Vec<(RelPath, Meta)>,
}

/// Up to here one sync per folder is cheaper than writing out the whole file system.
const ONE_BY_ONE: usize = 64;

impl StagedTree {
    /// Syncs the tree and moves everything in it below `folder`, which is made if need be.
    ///
    /// `placed` is filled only when `tell_placed`: it costs a look at every file.
    pub fn merge(self, folder: &RelPath, existing: Existing, tell_placed: bool) -> Result<Merged, RootError> {
        super::staged_tree::check_links(self.tree())?;
        let staged = crate::staging::staged_path(self.id());
        root::sync_tree(self.root(), &staged)?;
        let mut merge = Merge {
            source: self.tree().clone(),
            target: self.root().clone(),
            folder: folder.clone(),
            existing,
            tell_placed,
            merged: Merged::default(),
            waiting: vec![RelPath::root()],
            touched: Vec::new(),
        };
        self.root().make_dirs(folder)?;
        merge.run()?;
        merge.sync()?;
        self.discard()?;
        Ok(merge.merged)
    }
}

struct Merge {
    source: Root,
    target: Root,
    folder: RelPath,
    existing: Existing,
    tell_placed: bool,
    merged: Merged,
    /// Folders that are on both sides.
    waiting: Vec<RelPath>,
    touched: Vec<RelPath>,
}

impl Merge {
    fn run(&mut self) -> Result<(), RootError> {
        while let Some(path) = self.waiting.pop() {
            let place = self.folder.join(&path)?;
            let source = self.source.open_dir_no_links(&path)?;
            let target = match self.target.open_dir(&place) {
                Ok(target) => target,
                Err(error) => {
                    self.merged.failed.push((path, error));
                    continue;
                }
            };
            for entry in self.source.list(&path)? {
                self.place(&source, &target, &entry.path, &entry.meta);
            }
            self.touched.push(place);
        }
        Ok(())
    }

    fn place(&mut self, source: &OwnedFd, target: &OwnedFd, path: &RelPath, meta: &Meta) {
        let name = path.name().expect("what is listed has a name");
        let moved = match meta.kind {
            Kind::Dir => self.place_folder(source, target, path, name),
            _ => self.place_file(source, target, path, name, meta),
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
            Ok(()) if self.tell_placed => self.tell_below(path),
            done => done,
        }
    }

    fn place_file(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        path: &RelPath,
        name: &[u8],
        meta: &Meta,
    ) -> Result<(), Errno> {
        let old = stat_name(target, name).ok();
        match root::publish_node((source, name), (target, name), self.existing) {
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
        if self.tell_placed {
            // The rename changed the node's own time, so it is looked at again.
            let stat = stat_name(target, name)?;
            let link = meta.kind.clone();
            if let Ok(meta) = Meta::new(&stat, || match link {
                Kind::Symlink(target) => Ok(target),
                _ => Err(Errno::INVAL),
            }) {
                self.merged.placed.push((path.clone(), meta));
            }
        }
        Ok(())
    }

    /// A folder moved over as a whole; its files are there now.
    fn tell_below(&mut self, path: &RelPath) -> Result<(), Errno> {
        let Ok(place) = self.folder.join(path) else {
            return Ok(());
        };
        for entry in self.target.walk(&place).flatten() {
            if let Some(below) = entry
                .path
                .strip_prefix(&self.folder)
                .filter(|_| !entry.meta.is_dir())
            {
                self.merged.placed.push((below, entry.meta));
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
            .merge(&"d".parse().unwrap(), Existing::Replace, true)
            .unwrap();
        assert_eq!(fixture.read("d/a"), "new");
        assert_eq!(fixture.read("d/b"), "stays");
        assert_eq!(fixture.read("d/sub/deep/e"), "e");
        assert_eq!((merged.replaced.files, merged.replaced.bytes), (1, 3));
        let mut placed: Vec<String> = merged.placed.iter().map(|(path, _)| path.to_string()).collect();
        placed.sort();
        assert_eq!(placed, ["a", "sub/c", "sub/deep/e"]);
        assert!(!fixture.folder.path().join(".pfs-staging").exists());
    }

    #[test]
    fn what_is_to_stay_stays_and_is_told() {
        let fixture = Fixture::new(&[("d/a", "old")]);
        let staged = fixture.staged(&[("a", "new"), ("b", "b")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Keep, false)
            .unwrap();
        assert_eq!(merged.kept, ["a".parse().unwrap()]);
        assert_eq!(
            (fixture.read("d/a"), fixture.read("d/b")),
            ("old".into(), "b".into())
        );
    }

    #[test]
    fn one_file_in_the_way_does_not_stop_the_rest() {
        let fixture = Fixture::new(&[("d/x", "a file"), ("d/y/z", "a folder")]);
        let staged = fixture.staged(&[("x/inner", "1"), ("y", "2"), ("w", "3")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Replace, false)
            .unwrap();
        let mut failed: Vec<String> = merged.failed.iter().map(|(path, _)| path.to_string()).collect();
        failed.sort();
        assert_eq!(failed, ["x", "y"]);
        assert_eq!(fixture.read("d/w"), "3");
        assert_eq!(fixture.read("d/x"), "a file");
        assert!(!fixture.folder.path().join(".pfs-staging").exists());
    }

    #[test]
    fn a_link_that_leads_out_does_not_carry_files_out() {
        let outside = tempfile::tempdir().unwrap();
        let fixture = Fixture::new(&[("d/a", "a")]);
        std::os::unix::fs::symlink(outside.path(), fixture.folder.path().join("d/trap")).unwrap();
        let staged = fixture.staged(&[("trap/loot", "x")]);
        let merged = staged
            .merge(&"d".parse().unwrap(), Existing::Replace, false)
            .unwrap();
        assert_eq!(merged.failed.len(), 1);
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
