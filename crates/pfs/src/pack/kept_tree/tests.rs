//! What a kept tree accepts, removes and resumes.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::Existing;
use crate::pack::{PackError, PackWriter, write_pack};
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
        // A child process forked by another test briefly holds our open descriptors.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            match StagedTree::keep(&self.root, self.manifest.id()) {
                Err(RootError::Busy(_)) if std::time::Instant::now() < until => std::thread::yield_now(),
                kept => return kept.unwrap(),
            }
        }
    }

    fn list(&self) -> Arc<Manifest> {
        Arc::new(self.manifest.clone())
    }

    fn place(&self) -> PathBuf {
        let name = StagedId::of_package(self.manifest.id());
        self.folder.path().join(STAGING).join(name.as_str())
    }

    /// The stream of a client that knows this stock.
    fn stream(&self, stock: &Stock) -> Vec<u8> {
        let source = Root::open(self.source.path()).unwrap();
        let mut writer = PackWriter::new(Vec::new()).unwrap();
        for entry in self.manifest.entries() {
            let part = stock.parts.iter().find(|part| part.path == entry.path);
            match (entry.digest(), part) {
                (Some(digest), _) if stock.whole.contains(&digest) => {}
                (Some(_), Some(part)) => writer.add_rest(entry, &source, part.len).unwrap(),
                _ => writer.add(entry, &source).unwrap(),
            }
        }
        writer.finish().unwrap().0
    }

    /// Sends the first `bytes` bytes of what is missing, then breaks.
    fn send(&self, bytes: usize) {
        let tree = self.kept();
        let stream = self.stream(&tree.take_stock(&self.manifest).unwrap());
        let mut parser = tree.keeping_unpacker(self.list());
        parser.feed(&stream[..bytes.min(stream.len())]).unwrap();
    }

    /// Sends what is missing. Returns the number of bytes sent and of entries that are still missing.
    fn finish(&self, tree: &StagedTree) -> (usize, usize) {
        let stream = self.stream(&tree.take_stock(&self.manifest).unwrap());
        let mut parser = tree.keeping_unpacker(self.list());
        parser.feed(&stream).unwrap();
        parser.finish_unpacking().unwrap();
        (stream.len(), tree.missing(&self.manifest).unwrap().len())
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

#[test]
fn a_stream_that_breaks_in_a_file_is_gone_on_with_there() {
    let stage = Stage::new();
    stage.send(200_000);
    let tree = stage.kept();
    let stock = tree.take_stock(&stage.manifest).unwrap();
    assert_eq!(stock.whole.len(), 2, "what came before the large file");
    assert!(stock.parts[0].path == rel("big") && stock.parts[0].len > 190_000);
    let (sent, missing) = stage.finish(&tree);
    assert!(sent < BIG - 190_000 + 1000, "{sent}");
    assert_eq!(missing, 0);
    stage.publish(tree);
}

#[test]
fn a_file_that_was_cut_off_before_its_digest_gets_its_time() {
    let stage = Stage::new();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let source = stage.source.path().join("big");
    fs::File::open(&source).unwrap().set_modified(old).unwrap();
    let manifest = scan(stage.source.path(), &ScanOptions::default())
        .unwrap()
        .manifest()
        .unwrap();
    let stage = Stage { manifest, ..stage };
    let stream = stage.stream(&Stock::default());
    let bytes = fs::read(&source).unwrap();
    let at = stream.windows(BIG).position(|window| window == bytes).unwrap();
    stage.send(at + BIG + 5);
    let part = stage.place().join("big");
    assert_eq!(fs::metadata(&part).unwrap().len(), BIG as u64);
    let tree = stage.kept();
    assert!(tree.take_stock(&stage.manifest).unwrap().parts.is_empty());
    assert_eq!(fs::metadata(&part).unwrap().modified().unwrap(), old);
    assert_eq!(stage.finish(&tree).1, 0);
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
    assert_eq!(stage.finish(&tree).1, 0);
    stage.publish(tree);
}

#[test]
fn whoever_comes_second_does_not_get_what_another_is_at() {
    let stage = Stage::new();
    let first = stage.kept();
    let id = stage.manifest.id();
    for taken in [
        StagedTree::keep(&stage.root, id).map(Some),
        StagedTree::kept(&stage.root, id),
    ] {
        assert!(matches!(taken, Err(RootError::Busy(_))), "{taken:?}");
    }
    drop(first);
    assert!(
        StagedTree::kept(&stage.root, stage.manifest.id())
            .unwrap()
            .is_some()
    );
}

#[test]
fn where_nothing_was_begun_nothing_is_made_by_looking() {
    let stage = Stage::new();
    assert!(
        StagedTree::kept(&stage.root, stage.manifest.id())
            .unwrap()
            .is_none()
    );
    assert_eq!(leftovers(stage.folder.path()), Vec::<String>::new());
}

#[test]
fn a_beginning_that_was_damaged_is_noticed_and_sent_again_once() {
    let stage = Stage::new();
    stage.send(200_000);
    let part = stage.place().join("big");
    let mut bytes = fs::read(&part).unwrap();
    bytes[1000] ^= 1;
    fs::write(&part, bytes).unwrap();
    let tree = stage.kept();
    let (first, missing) = stage.finish(&tree);
    assert!(
        first < BIG && missing == 1,
        "the rest came, and is no use: {first} {missing}"
    );
    assert!(!part.exists(), "nothing of it stays");
    let (second, missing) = stage.finish(&tree);
    assert!(second > BIG && missing == 0, "{second} {missing}");
    stage.publish(tree);
}

#[test]
fn a_beginning_that_is_gone_or_shorter_spoils_its_file_and_no_other() {
    for shorter in [None, Some(5)] {
        let stage = Stage::new();
        stage.send(200_000);
        let tree = stage.kept();
        let stream = stage.stream(&tree.take_stock(&stage.manifest).unwrap());
        match shorter {
            None => fs::remove_file(stage.place().join("big")).unwrap(),
            Some(len) => fs::File::options()
                .write(true)
                .open(stage.place().join("big"))
                .unwrap()
                .set_len(len)
                .unwrap(),
        }
        let mut parser = tree.keeping_unpacker(stage.list());
        parser.feed(&stream).unwrap();
        parser.finish_unpacking().unwrap();
        let missing = tree.missing(&stage.manifest).unwrap();
        assert_eq!(
            missing.iter().map(|entry| entry.path.clone()).collect::<Vec<_>>(),
            [rel("big")]
        );
        assert_eq!(stage.finish(&tree).1, 0);
        stage.publish(tree);
    }
}

#[test]
fn what_a_job_planted_is_gone_before_anything_is_written() {
    let stage = Stage::new();
    stage.send(200_000);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "mine").unwrap();
    let place = stage.place();
    fs::remove_file(place.join("a/one")).unwrap();
    fs::remove_file(place.join("big")).unwrap();
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
    assert_eq!(
        stage.finish(&tree).1,
        1,
        "what is somebody's other file is not gone on with"
    );
    assert_eq!(stage.finish(&tree).1, 0);
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
fn something_else_in_the_place_of_the_tree_gives_way() {
    let stage = Stage::new();
    fs::create_dir(stage.folder.path().join(STAGING)).unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), stage.place()).unwrap();
    let tree = stage.kept();
    assert_eq!(stage.finish(&tree).1, 0);
    stage.publish(tree);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn it_is_kept_by_who_clears_up_and_goes_when_it_is_old() {
    use crate::entry::Mtime;
    use crate::staging::{KEEP_UNFINISHED, clear_abandoned, expire, unfinished, unfinished_packages};
    let stage = Stage::new();
    stage.send(200_000);
    assert!(clear_abandoned(&stage.root).unwrap().gone.is_empty());
    assert_eq!(unfinished(&stage.root).unwrap(), [], "it is no upload of a file");
    let all = unfinished_packages(&stage.root).unwrap();
    assert!(all.len() == 1 && all[0].id == stage.manifest.id());
    assert!(all[0].usage.bytes > 190_000 && all[0].usage.files == 3);
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
fn only_who_asked_for_it_takes_the_rest_of_a_file() {
    let stage = Stage::new();
    stage.send(200_000);
    let stream = stage.stream(&stage.kept().take_stock(&stage.manifest).unwrap());
    let tree = StagedTree::create(&stage.root).unwrap();
    let refused = tree.unpack(stream.as_slice(), PackLimits::default()).unwrap_err();
    assert!(matches!(refused, PackError::Tag(5)), "{refused}");
    tree.discard().unwrap();
}

/// A stream with the entries of one folder.
fn stream_of(folder: &[(&str, &str)]) -> Vec<u8> {
    let source = tempfile::tempdir().unwrap();
    plant(source.path(), folder);
    let found = scan(source.path(), &ScanOptions::default()).unwrap();
    let root = Root::open(source.path()).unwrap();
    write_pack(&root, &found.entries, Vec::new()).unwrap().0
}

#[test]
fn what_the_list_lacks_or_has_otherwise_is_refused_before_anything_of_it_is_written() {
    let stage = Stage::new();
    let large = "x".repeat(BIG + 1);
    for (name, content) in [
        ("foreign", "x"),
        ("folder/", ""),
        ("a", "a folder there"),
        ("l -> a/two", ""),
        ("big", "less"),
        ("big", &large),
    ] {
        let tree = stage.kept();
        let mut parser = tree.keeping_unpacker(stage.list());
        let refused = parser.feed(&stream_of(&[(name, content)])).unwrap_err();
        assert!(matches!(refused, PackError::NotListed(_)), "{name}: {refused}");
        assert!(picture(&stage.place()).is_empty(), "{name}");
    }
}

#[test]
fn a_tree_steps_back_from_a_place_that_is_no_use_and_is_gone_on_with() {
    for old in [&[][..], &[("done/old", "from before")]] {
        let stage = Stage::new();
        plant(stage.folder.path(), old);
        let tree = stage.kept();
        assert_eq!(stage.finish(&tree).1, 0);
        tree.step_back(&rel("done")).unwrap();
        assert!(stage.place().join("z").exists(), "it has no other place yet");
        tree.take_place(&rel("done"), Existing::Replace).unwrap();
        assert!(stage.folder.path().join("done/z").exists());
        tree.step_back(&rel("done")).unwrap();
        assert!(!stage.folder.path().join("done").exists());
        assert_eq!(tree.missing(&stage.manifest).unwrap(), Vec::<&Entry>::new());
        stage.publish(tree);
    }
}

#[test]
fn an_offset_outside_the_file_is_refused() {
    let stage = Stage::new();
    let entry = stage.manifest.get(&rel("z")).unwrap();
    let source = Root::open(stage.source.path()).unwrap();
    let mut writer = PackWriter::new(Vec::new()).unwrap();
    assert!(writer.add_rest(entry, &source, 2).is_err());
    writer.add_rest(entry, &source, 1).unwrap();
    let (stream, totals) = writer.finish().unwrap();
    assert_eq!((totals.entries, totals.bytes), (1, 1));
    for offset in [0_u64, 2, u64::MAX] {
        let mut forged = stream.clone();
        let at = 8 + 20 + 1;
        forged[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        let mut parser = stage.kept().keeping_unpacker(stage.list());
        let refused = parser.feed(&forged).unwrap_err();
        assert!(matches!(refused, PackError::Malformed(_)), "{offset}: {refused}");
    }
}

#[test]
fn a_whole_stream_of_an_old_client_takes_the_place_of_parts() {
    let stage = Stage::new();
    stage.send(200_000);
    let tree = stage.kept();
    let source = Root::open(stage.source.path()).unwrap();
    let (stream, _) = write_pack(&source, stage.manifest.entries(), Vec::new()).unwrap();
    let mut parser = tree.keeping_unpacker(stage.list());
    parser.feed(&stream).unwrap();
    parser.finish_unpacking().unwrap();
    assert!(tree.missing(&stage.manifest).unwrap().is_empty());
    stage.publish(tree);
}
