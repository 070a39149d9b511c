//! A space in a remote store, with its spool: uploads are staged and checked on this machine, and streamed to the store when
//! complete.
//!
//! Nothing is acknowledged before the store has it. After a crash, staged uploads are resumed from the spool.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::patience::Patience;
use super::{FileStore, LocalStore, ReadAt};
use crate::pack::{Merged, StagedTree};
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{DirEntry, Existing, FileAttributes, Kind, Meta, Root, RootError, Usage, if_exists};
use crate::sys::FileExt;

/// Bytes per call to the store.
const PIECE: usize = 1 << 20;

/// Up to this many paths of a folder are queried one by one; for more, the folder is listed.
const ONE_BY_ONE: usize = 4;

/// After this many consecutive folders that cannot be created, the store counts as unreachable.
const MAX_FOLDER_FAILURES: usize = 3;

/// A space of a remote store; cheap to clone.
#[derive(Clone)]
pub struct RemoteSpace {
    pub(super) store: Arc<dyn FileStore>,
    space: Space,
    /// Where uploads are staged.
    pub(super) spool: Root,
}

impl RemoteSpace {
    pub(super) fn open(
        store: &Arc<dyn FileStore>,
        space: &Space,
        spool: &LocalStore,
    ) -> Result<Self, RootError> {
        Ok(Self {
            store: store.clone(),
            space: space.clone(),
            spool: spool.space(space)?,
        })
    }

    pub(super) fn at(&self, path: &RelPath) -> Place {
        Place {
            space: self.space.clone(),
            path: path.clone(),
        }
    }

    pub(super) fn stat(&self, path: &RelPath) -> Result<Meta, RootError> {
        self.made_first(path, |place| self.store.stat(place))
    }

    pub(super) fn list(&self, folder: &RelPath) -> Result<Vec<DirEntry>, RootError> {
        self.made_first(folder, |place| self.store.list(place))
    }

    /// A home always exists, so it is created on first use.
    fn made_first<T>(
        &self,
        path: &RelPath,
        look: impl Fn(&Place) -> Result<T, RootError>,
    ) -> Result<T, RootError> {
        let place = self.at(path);
        match look(&place) {
            Err(RootError::NotFound(_)) if path.is_root() => {
                self.store.make_folder(&place)?;
                look(&place)
            }
            other => other,
        }
    }

    pub(super) fn open_file(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>, RootError> {
        self.store.open(&self.at(path)).map(Arc::from)
    }

    pub(super) fn make_dirs(&self, path: &RelPath) -> Result<(), RootError> {
        self.store.make_folder(&self.at(path))
    }

    pub(super) fn usage(&self, path: &RelPath) -> Result<Usage, RootError> {
        self.made_first(path, |place| self.store.usage(place))
    }

    pub(super) fn walk(&self, folder: &RelPath) -> RemoteWalk {
        RemoteWalk {
            space: self.clone(),
            start: Some(folder.clone()),
            levels: Vec::new(),
        }
    }

    /// Queries single paths, but lists a folder if several of its paths are requested, to save requests. If a listing costs a
    /// request per entry, queries only the requested paths, many concurrently.
    pub(super) fn stat_many(&self, paths: &[RelPath]) -> Result<Vec<Option<Meta>>, RootError> {
        match self.store.limits().lists_times {
            true => self.stat_by_listing(paths),
            false => self.stat_each(paths),
        }
    }

    fn stat_each(&self, paths: &[RelPath]) -> Result<Vec<Option<Meta>>, RootError> {
        // Paths in a missing folder need no query: that is most of a new tree.
        let folders: Vec<RelPath> = shared_folders(paths).into_iter().collect();
        // One folder that cannot be examined fails the whole call.
        let there = self.for_each(&folders, Patience::new(1), RelPath::clone, |folder| {
            if_exists(self.stat(folder))
        });
        let mut absent = HashSet::new();
        for (folder, found) in folders.iter().zip(there) {
            if !found?.is_some_and(|meta| meta.is_dir()) {
                absent.insert(folder);
            }
        }
        let look = |path: &RelPath| match absent.contains(&path.parent().unwrap_or_default()) {
            true => Ok(None),
            false => if_exists(self.stat(path)),
        };
        let found = self.for_each(paths, Patience::new(1), RelPath::clone, look);
        found.into_iter().collect()
    }

    /// Runs `work` for each item, as many concurrently as the store allows, and returns the results in order. After `patience`
    /// gives up, the remaining items fail without being tried.
    fn for_each<T: Sync, R: Send>(
        &self,
        items: &[T],
        patience: Patience,
        path_of: impl Fn(&T) -> RelPath + Sync,
        work: impl Fn(&T) -> Result<R, RootError> + Sync,
    ) -> Vec<Result<R, RootError>> {
        let threads = self.store.limits().writers.clamp(1, items.len().max(1));
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(items.len()));
        let run = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else {
                    return;
                };
                let result = patience.with(|| path_of(item), || work(item));
                done.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((index, result));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(run);
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }

    fn stat_by_listing(&self, paths: &[RelPath]) -> Result<Vec<Option<Meta>>, RootError> {
        let folders = shared_folders(paths);
        let mut listed: HashMap<RelPath, Meta> = HashMap::new();
        for folder in &folders {
            let entries = if_exists(self.list(folder))?.unwrap_or_default();
            listed.extend(entries.into_iter().map(|entry| (entry.path, entry.meta)));
        }
        let look = |path: &RelPath| match folders.contains(&path.parent().unwrap_or_default()) {
            true => Ok(listed.get(path).cloned()),
            false => if_exists(self.stat(path)),
        };
        paths.iter().map(look).collect()
    }

    /// Sends a complete file from the spool, in order. It is durable on return.
    pub(super) fn publish(
        &self,
        source: &File,
        path: &RelPath,
        attributes: FileAttributes,
        existing: Existing,
    ) -> Result<Meta, RootError> {
        let failed = |error| RootError::io("read the spool of", path, error);
        let size = source.metadata().map_err(failed)?.len();
        let mut buffer = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE))];
        let mut file = self.store.begin(&self.at(path), attributes)?;
        let mut sent = 0;
        while sent < size {
            let step = buffer.len().min(usize::try_from(size - sent).unwrap_or(PIECE));
            source.read_exact_at(&mut buffer[..step], sent).map_err(failed)?;
            file.append(&buffer[..step])?;
            sent += step as u64;
        }
        file.publish(existing)
    }

    /// Sends all contents of a staged tree, many files concurrently. A failed file does not stop the rest.
    pub(super) fn merge(
        &self,
        staged: StagedTree,
        folder: &RelPath,
        existing: Existing,
    ) -> Result<Merged, RootError> {
        let merged = self.merge_tree(staged.tree(), folder, existing);
        // The error of the merge matters more than an error of the cleanup.
        let gone = staged.discard();
        merged.and_then(|merged| gone.map(|()| merged))
    }

    fn merge_tree(&self, tree: &Root, folder: &RelPath, existing: Existing) -> Result<Merged, RootError> {
        self.make_dirs(folder)?;
        let mut files = Vec::new();
        let mut merged = Merged::default();
        let patience = Patience::new(MAX_FOLDER_FAILURES);
        for entry in tree.walk(&RelPath::root()) {
            let entry = entry?;
            let place = folder.join(&entry.path)?;
            match entry.meta.kind {
                Kind::Dir => {
                    let made = patience.with(|| place.clone(), || self.make_dirs(&place));
                    if let Err(error) = made {
                        merged.failed.push((entry.path, error));
                    }
                }
                Kind::File => files.push(entry),
                Kind::Symlink(_) | Kind::Special => {
                    let reason = "it keeps no symbolic links".to_owned();
                    let error = RootError::Unsupported { path: place, reason };
                    merged.failed.push((entry.path, error));
                }
            }
        }
        // Files in a folder that cannot be created are skipped: one error is enough.
        let refused: Vec<RelPath> = merged.failed.iter().map(|(path, _)| path.clone()).collect();
        files.retain(|entry| !refused.iter().any(|folder| entry.path.is_within(folder)));
        self.merge_files(tree, folder, existing, &files, &mut merged);
        Ok(merged)
    }

    fn merge_files(
        &self,
        tree: &Root,
        folder: &RelPath,
        existing: Existing,
        files: &[DirEntry],
        merged: &mut Merged,
    ) {
        let path_of = |entry: &DirEntry| folder.join(&entry.path).unwrap_or_default();
        // Give up when as many as are sent concurrently have failed.
        let patience = Patience::new(self.store.limits().writers);
        let placed = self.for_each(files, patience, path_of, |entry| {
            self.merge_file(tree, folder, existing, entry)
        });
        for (entry, placed) in files.iter().zip(placed) {
            match placed {
                Ok((old, new)) => {
                    old.iter().for_each(|old| merged.replaced.add(old));
                    merged.placed.push((entry.path.clone(), new.stamp));
                }
                Err(RootError::Exists(_)) if existing == Existing::Keep => {
                    merged.kept.push(entry.path.clone());
                }
                Err(error) => merged.failed.push((entry.path.clone(), error)),
            }
        }
    }

    /// Sends one file; returns the metadata of the replaced file and of the new one.
    fn merge_file(
        &self,
        tree: &Root,
        folder: &RelPath,
        existing: Existing,
        entry: &DirEntry,
    ) -> Result<(Option<Meta>, Meta), RootError> {
        let place = folder.join(&entry.path)?;
        let old = if_exists(self.stat(&place))?;
        let (file, meta) = tree.open_file_no_links(&entry.path)?;
        let attributes = FileAttributes {
            executable: meta.executable,
            mtime: Some(meta.mtime),
        };
        let new = self.publish(&file, &place, attributes, existing)?;
        Ok((old, new))
    }
}

/// The folders of many of these paths.
fn shared_folders(paths: &[RelPath]) -> HashSet<RelPath> {
    let mut counts: HashMap<RelPath, usize> = HashMap::new();
    for path in paths {
        *counts.entry(path.parent().unwrap_or_default()).or_default() += 1;
    }
    counts.retain(|_, count| *count > ONE_BY_ONE);
    counts.into_keys().collect()
}

/// Walks a remote tree, one listing per level in memory.
pub(super) struct RemoteWalk {
    space: RemoteSpace,
    start: Option<RelPath>,
    levels: Vec<std::vec::IntoIter<DirEntry>>,
}

impl RemoteWalk {
    fn enter(&mut self, folder: &RelPath) -> Result<(), RootError> {
        let entries = self.space.list(folder)?;
        self.levels.push(entries.into_iter());
        Ok(())
    }
}

impl Iterator for RemoteWalk {
    type Item = Result<DirEntry, RootError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take()
            && let Err(error) = self.enter(&start)
        {
            return Some(Err(error));
        }
        let entry = loop {
            match self.levels.last_mut()?.next() {
                Some(entry) => break entry,
                None => drop(self.levels.pop()),
            }
        };
        if entry.meta.is_dir() {
            match self.enter(&entry.path) {
                // Removed since it was listed: it is no longer a folder.
                Ok(()) | Err(RootError::NotFound(_) | RootError::NotAFolder(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(entry))
    }
}
