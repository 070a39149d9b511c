//! What a package's staged tree keeps and removes, and who may use it at a time.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::Existing;
use crate::pack::{PackLimits, write_pack};
use crate::package::{ScanOptions, scan};
use crate::testing::{leftovers, picture, plant, rel, scratch, wait_until_expired};

/// A folder to send, and its destination.
struct Stage {
    source: tempfile::TempDir,
    folder: tempfile::TempDir,
    root: Root,
    manifest: Manifest,
}

const BIG: usize = 300_000;

impl Stage {
    fn new() -> Self {
        let source = tempfile::tempdir().unwrap();
        let big: String = (0..BIG).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        plant(
            source.path(),
            &[
                ("a/one", "1"),
                ("a/two", "22"),
                ("big", &big),
                ("l -> a/one", ""),
                ("z", "zz"),
            ],
        );
        let (folder, root) = scratch();
        let manifest = scan(source.path(), &ScanOptions::default())
            .unwrap()
            .manifest()
            .unwrap();
        Self {
            source,
            folder,
            root,
            manifest,
        }
    }

    fn kept(&self) -> StagedTree {
        wait_for(|| StagedTree::keep(&self.root, self.manifest.id()))
    }

    fn place(&self) -> PathBuf {
        let name = StagedId::of_package(self.manifest.id());
        self.folder.path().join(STAGING).join(name.as_str())
    }

    /// A pack with all of it.
    fn pack(&self) -> Vec<u8> {
        let source = Root::open(self.source.path()).unwrap();
        write_pack(&source, self.manifest.entries(), Vec::new())
            .unwrap()
            .0
    }

    /// Sends the first bytes, then breaks.
    fn send(&self, bytes: usize) {
        let tree = self.kept();
        let mut parser = tree.unpacker(PackLimits::default());
        parser.feed(&self.pack()[..bytes]).unwrap();
    }

    /// Sends everything. Returns the number of entries that are still missing.
    fn finish(&self, tree: &StagedTree) -> usize {
        tree.tidy(&self.manifest).unwrap();
        tree.unpack(self.pack().as_slice(), PackLimits::default())
            .unwrap();
        tree.missing(&self.manifest, &Default::default()).unwrap().len()
    }

    fn publish(&self, tree: StagedTree) {
        tree.publish(&rel("done"), Existing::Keep).unwrap();
        assert_eq!(
            picture(&self.folder.path().join("done")),
            picture(self.source.path())
        );
        assert!(!self.folder.path().join(STAGING).exists(), "nothing else stays");
    }
}

/// A child process forked by another test briefly holds our open descriptors.
fn wait_for(take: impl Fn() -> Result<StagedTree, RootError>) -> StagedTree {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match take() {
            Err(RootError::Busy(_)) if std::time::Instant::now() < until => std::thread::yield_now(),
            taken => return taken.unwrap(),
        }
    }
}

#[test]
fn complete_files_of_a_broken_pack_are_kept() {
    let stage = Stage::new();
    stage.send(200_000);
    let tree = stage.kept();
    let missing = tree.missing(&stage.manifest, &Default::default()).unwrap();
    let missing: Vec<_> = missing.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(missing, ["big", "l", "z"]);
    assert!(!stage.place().join("big").exists(), "nothing of it stays");
    assert_eq!(stage.finish(&tree), 0);
    stage.publish(tree);
}

#[test]
fn folders_that_a_job_made_read_only_can_be_written_to_again() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    stage.send(200_000);
    let folders = [stage.place().join("a"), stage.place()];
    for folder in &folders {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let tree = stage.kept();
    tree.tidy(&stage.manifest).unwrap();
    for folder in &folders {
        let mode = fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{}", folder.display());
    }
    assert_eq!(stage.finish(&tree), 0);
    stage.publish(tree);
}

#[test]
fn publishing_is_exclusive_and_uploads_are_shared() {
    let stage = Stage::new();
    let id = stage.manifest.id();
    let is_busy = |taken: Result<StagedTree, RootError>| matches!(taken, Err(RootError::Busy(_)));
    let early = StagedTree::share(&stage.root, id);
    assert!(matches!(early, Err(RootError::NotFound(_))), "{early:?}");
    let alone = stage.kept();
    assert!(is_busy(StagedTree::keep(&stage.root, id)) && is_busy(StagedTree::share(&stage.root, id)));
    drop(alone);
    let shares = wait_for(|| StagedTree::share(&stage.root, id));
    drop(StagedTree::share(&stage.root, id).unwrap());
    assert!(is_busy(StagedTree::keep(&stage.root, id)));
    drop(shares);
    assert_eq!(stage.finish(&stage.kept()), 0);
}

#[test]
fn foreign_entries_are_removed_before_anything_is_written() {
    let stage = Stage::new();
    stage.send(200_000);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "mine").unwrap();
    let place = stage.place();
    fs::remove_file(place.join("a/one")).unwrap();
    fs::hard_link(outside.path().join("precious"), place.join("big")).unwrap();
    plant(
        &place,
        &[
            ("a/one/deep/x", "a folder in place of a file"),
            ("extra/deep/er", "not on the list"),
            (".pfs-staging/hidden", "no listing shows it"),
            ("z -> /etc/hostname", ""),
        ],
    );
    std::os::unix::fs::symlink(outside.path(), place.join("l")).unwrap();
    make_pipe(&place.join("pipe"));
    let tree = stage.kept();
    assert_eq!(stage.finish(&tree), 0);
    stage.publish(tree);
    assert_eq!(
        fs::read_to_string(outside.path().join("precious")).unwrap(),
        "mine"
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_foreign_entry_at_the_path_of_the_tree_is_replaced() {
    let stage = Stage::new();
    fs::create_dir(stage.folder.path().join(STAGING)).unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), stage.place()).unwrap();
    let tree = stage.kept();
    assert_eq!(stage.finish(&tree), 0);
    stage.publish(tree);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_kept_tree_survives_cleanup_and_expires() {
    use crate::entry::Mtime;
    use crate::staging::{KEEP_UNFINISHED, clear_abandoned, expire, unfinished, unfinished_packages};
    let stage = Stage::new();
    stage.send(200_000);
    assert!(clear_abandoned(&stage.root).unwrap().gone.is_empty());
    assert_eq!(unfinished(&stage.root).unwrap(), [], "it is no upload of a file");
    let all = unfinished_packages(&stage.root).unwrap();
    assert!(all.len() == 1 && all[0].id == stage.manifest.id());
    assert_eq!((all[0].usage.bytes, all[0].usage.files), (3, 2));
    let after = |age: std::time::Duration| {
        Mtime::from_nanos(all[0].touched.as_nanos() + i64::try_from(age.as_nanos()).unwrap())
    };
    expire(&stage.root, KEEP_UNFINISHED, after(KEEP_UNFINISHED)).unwrap();
    assert!(stage.place().exists(), "it is young enough");
    let later = after(KEEP_UNFINISHED + std::time::Duration::from_secs(1));
    wait_until_expired(&stage.root, KEEP_UNFINISHED, later, 1);
    assert_eq!(leftovers(stage.folder.path()), Vec::<String>::new());
}

#[test]
fn an_unpublished_tree_can_be_resumed() {
    for old in [&[][..], &[("done/old", "from before")]] {
        let stage = Stage::new();
        plant(stage.folder.path(), old);
        let tree = stage.kept();
        assert_eq!(stage.finish(&tree), 0);
        tree.step_back(&rel("done")).unwrap();
        assert!(stage.place().join("z").exists(), "it has no other place yet");
        tree.take_place(&rel("done"), Existing::Replace).unwrap();
        assert!(stage.folder.path().join("done/z").exists());
        tree.step_back(&rel("done")).unwrap();
        assert!(!stage.folder.path().join("done").exists());
        assert_eq!(
            tree.missing(&stage.manifest, &Default::default()).unwrap(),
            Vec::<&Entry>::new()
        );
        stage.publish(tree);
    }
}

#[test]
fn discarding_a_published_tree_keeps_the_next_one_with_its_name() {
    let stage = Stage::new();
    let tree = stage.kept();
    assert_eq!(stage.finish(&tree), 0);
    tree.take_place(&rel("done"), Existing::Keep).unwrap();
    let next = stage.kept();
    assert_eq!(stage.finish(&next), 0);
    tree.discard().unwrap();
    assert!(stage.place().join("z").exists(), "it belongs to somebody else");
    assert!(stage.folder.path().join("done/z").exists());
    next.discard().unwrap();
    assert!(!stage.place().exists());
}
