//! A local store that pretends to be remote, so that spools can be tested without a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{FileStore, LocalStore, NewFile, OpenSpace, ReadAt, StoreLimits};
use crate::content::{Assembly, AssemblyError, AssemblyPlan};
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::pack::StagedTree;
use crate::path::{Place, Space};
use crate::quota::Amount;
use crate::relpath::RelPath;
use crate::root::{DirEntry, Existing, FileAttributes, Meta, Root, RootError, Usage};
use crate::testing::{leftovers, rel};

struct Elsewhere {
    store: LocalStore,
    /// Whether writes fail at the moment.
    is_down: AtomicBool,
    /// Whether each entry of a listing costs a request of its own.
    lists_dearly: AtomicBool,
    /// Number of files begun, including failed attempts.
    started: AtomicUsize,
    /// Number of requests: entries of listings, and single places.
    asked: AtomicUsize,
}

impl FileStore for Elsewhere {
    fn limits(&self) -> StoreLimits {
        StoreLimits {
            links: false,
            writers: 4,
            lists_times: !self.lists_dearly.load(Ordering::Relaxed),
            ..self.store.limits()
        }
    }

    fn name(&self) -> String {
        "elsewhere".to_owned()
    }

    fn stat(&self, place: &Place) -> Result<Meta, RootError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.store.stat(place)
    }

    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError> {
        let listed = self.store.list(place)?;
        self.asked.fetch_add(listed.len(), Ordering::Relaxed);
        Ok(listed)
    }

    fn make_folder(&self, place: &Place) -> Result<(), RootError> {
        self.store.make_folder(place)
    }

    fn remove(&self, place: &Place) -> Result<(), RootError> {
        self.store.remove(place)
    }

    fn remove_all(&self, place: &Place) -> Result<(), RootError> {
        self.store.remove_all(place)
    }

    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        self.store.rename(from, to, existing)
    }

    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Amount, RootError> {
        self.store.copy(from, to, existing)
    }

    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError> {
        self.store.open(place)
    }

    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError> {
        self.started.fetch_add(1, Ordering::Relaxed);
        // Some stores also fail like this for a single file.
        if self.is_down.load(Ordering::Relaxed) || place.path.name() == Some(b"unlucky") {
            return Err(RootError::Unreachable {
                path: place.path.clone(),
                source: std::io::ErrorKind::ConnectionRefused.into(),
            });
        }
        self.store.begin(place, attributes)
    }

    fn usage(&self, place: &Place) -> Result<Usage, RootError> {
        self.store.usage(place)
    }

    fn folder(&self, _: &Space) -> Result<Option<Root>, RootError> {
        Ok(None)
    }

    fn sweep(&self, space: &Space, age: Duration) -> Result<u64, RootError> {
        self.store.sweep(space, age)
    }
}

struct Stage {
    there: tempfile::TempDir,
    here: tempfile::TempDir,
    store: Arc<Elsewhere>,
    space: OpenSpace,
}

fn stage() -> Stage {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Arc::new(Elsewhere {
        store: LocalStore::open(there.path()).unwrap(),
        is_down: AtomicBool::new(false),
        lists_dearly: AtomicBool::new(false),
        started: AtomicUsize::new(0),
        asked: AtomicUsize::new(0),
    });
    let spool = LocalStore::open(here.path()).unwrap();
    let shared: Arc<dyn FileStore> = store.clone();
    let space = OpenSpace::open(&shared, &Space::Home("ann".parse().unwrap()), &spool).unwrap();
    Stage {
        there,
        here,
        store,
        space,
    }
}

impl Stage {
    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.there.path().join("home/ann").join(path)).unwrap()
    }

    fn put(&self, path: &str, text: &str) {
        let path = rel(path);
        self.space.make_dirs(&path.parent().unwrap()).unwrap();
        std::fs::write(self.there.path().join("home/ann").join(path.as_path()), text).unwrap();
    }

    fn spooled(&self) -> Vec<String> {
        leftovers(&self.here.path().join("home/ann"))
    }
}

#[test]
fn a_file_is_staged_locally_and_published_even_after_a_retry() {
    let stage = stage();
    let plan = AssemblyPlan {
        path: rel("f"),
        size: 5,
        executable: true,
        mtime: Some(Mtime::new(1_500_000_000, 7)),
    };
    let assembly = Assembly::create(stage.space.staging(), plan).unwrap();
    assembly.put_range(0, b"hello").unwrap();
    let commit = || {
        stage
            .space
            .commit(&assembly, Some(Digest::of(b"hello")), Existing::Keep)
    };
    stage.store.is_down.store(true, Ordering::Relaxed);
    assert!(matches!(
        commit(),
        Err(AssemblyError::Storage(RootError::Unreachable { .. }))
    ));
    assert!(
        stage
            .space
            .stat(&rel("f"))
            .is_err_and(|error| error.is_not_found())
    );
    assert!(!stage.spooled().is_empty(), "what arrived is kept");

    stage.store.is_down.store(false, Ordering::Relaxed);
    let meta = commit().unwrap();
    assert_eq!((meta.size, meta.executable), (5, true));
    assert_eq!(meta.mtime, Mtime::new(1_500_000_000, 7));
    assert_eq!(stage.read("f"), "hello");
    assert_eq!(stage.spooled(), Vec::<String>::new());
}

#[test]
fn a_tree_is_merged_and_conflicts_are_reported() {
    let stage = stage();
    stage.put("d/old", "old");
    stage.put("d/wall", "a file where a folder comes");
    let tree = StagedTree::create(stage.space.staging()).unwrap();
    for (path, text) in [("old", "new"), ("sub/deep/x", "x"), ("wall/y", "y"), ("z", "z")] {
        let path = rel(path);
        tree.tree().make_dirs(&path.parent().unwrap()).unwrap();
        tree.tree()
            .write_file(&path, text.as_bytes(), Existing::Keep)
            .unwrap();
    }
    let target = crate::entry::LinkTarget::from_bytes(b"z").unwrap();
    tree.tree().make_link(&rel("link"), &target).unwrap();
    let merged = stage.space.merge(tree, &rel("d"), Existing::Replace).unwrap();
    let mut failed: Vec<String> = merged.failed.iter().map(|(path, _)| path.to_string()).collect();
    failed.sort();
    assert_eq!(failed, ["link", "wall"]);
    assert_eq!((merged.replaced.files, merged.replaced.bytes), (1, 3));
    let mut placed = merged.placed;
    placed.sort_by(|(one, _), (other, _)| one.cmp(other));
    let reported: Vec<String> = placed.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(reported, ["old", "sub/deep/x", "z"]);
    assert_eq!(placed[2].1, stage.space.stat(&rel("d/z")).unwrap().stamp);
    assert_eq!(
        (stage.read("d/old"), stage.read("d/sub/deep/x"), stage.read("d/z")),
        ("new".into(), "x".into(), "z".into())
    );
    assert_eq!(stage.spooled(), Vec::<String>::new());
}

#[test]
fn a_merge_into_an_unresponsive_store_stops_after_a_few_files() {
    let stage = stage();
    let merge = |last: usize| {
        let tree = StagedTree::create(stage.space.staging()).unwrap();
        let names = (0..last).map(|index| format!("{index:03}"));
        for name in names.chain(["unlucky".to_owned()]) {
            let path = rel(&name);
            tree.tree().write_file(&path, b"x", Existing::Keep).unwrap();
        }
        stage.space.merge(tree, &rel("d"), Existing::Replace).unwrap()
    };
    let merged = merge(100);
    assert_eq!(
        (merged.placed.len(), merged.failed.len()),
        (100, 1),
        "one alone stops nobody"
    );

    stage.store.is_down.store(true, Ordering::Relaxed);
    stage.store.started.store(0, Ordering::Relaxed);
    let merged = merge(100);
    let started = stage.store.started.load(Ordering::Relaxed);
    let writers = stage.store.limits().writers;
    assert!(
        started < 2 * writers,
        "each writer at most had begun the next: {started}"
    );
    assert_eq!(merged.failed.len(), 101);
    for (path, error) in merged.failed {
        let RootError::Unreachable { path: reported, .. } = error else {
            panic!("{path}: {error}");
        };
        assert_eq!(reported, rel("d").join(&path).unwrap());
    }
}

#[test]
fn a_failed_merge_leaves_nothing_in_the_spool() {
    let stage = stage();
    stage.put("wall", "a file where the folder should be");
    let tree = StagedTree::create(stage.space.staging()).unwrap();
    tree.tree().write_file(&rel("a"), b"1", Existing::Keep).unwrap();
    assert!(stage.space.merge(tree, &rel("wall"), Existing::Replace).is_err());
    assert_eq!(stage.spooled(), Vec::<String>::new());
}

#[test]
fn existing_files_are_kept() {
    let stage = stage();
    stage.put("a", "old");
    let tree = StagedTree::create(stage.space.staging()).unwrap();
    tree.tree().write_file(&rel("a"), b"new", Existing::Keep).unwrap();
    let merged = stage.space.merge(tree, &RelPath::root(), Existing::Keep).unwrap();
    assert_eq!(merged.kept, [rel("a")]);
    assert_eq!(stage.read("a"), "old");
}

#[test]
fn stat_many_agrees_with_stat() {
    let stage = stage();
    let names: Vec<String> = (0..9).map(|index| format!("d/{index}")).collect();
    names.iter().for_each(|name| stage.put(name, name));
    stage.put("e/lone", "1");
    let paths = [
        "d/3", "d/no", "d/8", "e/lone", "no/such", "d/0", "d/1", "d/2", "d/3/x",
    ]
    .map(rel);
    let each: Vec<Option<Meta>> = paths.iter().map(|path| stage.space.stat(path).ok()).collect();
    assert_eq!(each.iter().flatten().count(), 6);
    for lists_dearly in [false, true] {
        stage.store.lists_dearly.store(lists_dearly, Ordering::Relaxed);
        assert_eq!(stage.space.stat_many(&paths).unwrap(), each, "{lists_dearly}");
    }
}

/// A folder with many files is queried a few files at a time; listing all of it each time would cost too much.
#[test]
fn expensive_listings_are_avoided() {
    let stage = stage();
    for index in 0..100 {
        stage.put(&format!("d/{index}"), "");
    }
    stage.store.lists_dearly.store(true, Ordering::Relaxed);
    let asked = |paths: &[RelPath]| {
        let before = stage.store.asked.load(Ordering::Relaxed);
        let found = stage.space.stat_many(paths).unwrap();
        let asked = stage.store.asked.load(Ordering::Relaxed) - before;
        (found.iter().flatten().count(), asked)
    };
    let some: Vec<RelPath> = (0..10).map(|index| rel(&format!("d/{index}"))).collect();
    assert_eq!(asked(&some), (10, 11), "these and their folder");
    let new: Vec<RelPath> = (0..10).map(|index| rel(&format!("new/{index}"))).collect();
    assert_eq!(asked(&new), (0, 1), "a folder that is not there holds nothing");
}

#[test]
fn a_walk_has_the_same_order_as_in_a_folder() {
    let stage = stage();
    for name in ["a/b/c", "a.txt", "a/b.txt", "z"] {
        stage.put(name, "");
    }
    let there = Root::open(stage.there.path().join("home/ann")).unwrap();
    let walked =
        |entries: super::Entries| -> Vec<RelPath> { entries.map(|entry| entry.unwrap().path).collect() };
    assert_eq!(
        walked(stage.space.walk(&RelPath::root())),
        walked(OpenSpace::Folder(there).walk(&RelPath::root()))
    );
}
