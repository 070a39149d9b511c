//! Streams arrive intact, and no broken or hostile stream leaves anything behind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, LinkTarget, Mtime, Node};
use crate::package::Manifest;
use crate::testing::{leftovers, make_executable, picture, plant, rel, scratch};
use crate::{Existing, Root};

#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Digests,
    Nothing,
}

fn scanned(folder: &Path, reading: Reading) -> Vec<Entry> {
    let entries = Root::open(folder).unwrap().walk(&rel("")).map(|found| {
        let mut entry = found.unwrap().into_entry().unwrap();
        if let Node::File { digest, .. } = &mut entry.node
            && reading == Reading::Digests
        {
            let content = fs::read(entry.path.in_folder(folder).unwrap()).unwrap();
            *digest = Some(crate::Digest::of(&content));
        }
        entry
    });
    entries.collect()
}

fn packed(folder: &Path, reading: Reading) -> Vec<u8> {
    write_pack(
        &Root::open(folder).unwrap(),
        &scanned(folder, reading),
        Vec::new(),
    )
    .unwrap()
    .0
}

/// Encodes invented entries without the writer's checks.
fn forged(entries: &[(&[u8], Node, &[u8])]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut seal = blake3::Hasher::new();
    seal.update(MAGIC);
    let mut totals = PackTotals::default();
    let mut put = |out: &mut Vec<u8>, bytes: &[u8]| {
        seal.update(bytes);
        out.extend_from_slice(bytes);
    };
    for (path, node, content) in entries {
        let entry = Entry {
            path: rel("x"),
            node: node.clone(),
            mtime: Mtime::default(),
        };
        let mut head = head::encode_entry(&entry);
        head[2..4].copy_from_slice(&(path.len() as u16).to_le_bytes());
        put(&mut out, &head);
        put(&mut out, path);
        totals.entries += 1;
        match node {
            Node::Dir => {}
            Node::Symlink { target } => put(&mut out, target.as_bytes()),
            Node::File { size, .. } => {
                totals.bytes = totals.bytes.saturating_add(*size);
                out.extend_from_slice(content);
                put(&mut out, crate::Digest::of(content).as_bytes());
            }
        }
    }
    put(&mut out, &head::encode_end(totals));
    out.extend_from_slice(seal.finalize().as_bytes());
    out
}

fn file(size: u64) -> Node {
    Node::File {
        size,
        executable: false,
        digest: None,
    }
}

fn link(target: &str) -> Node {
    Node::Symlink {
        target: target.parse::<LinkTarget>().unwrap(),
    }
}

/// Unpacks into a fresh root. On failure the staged tree is discarded, as the server does.
fn received(stream: &[u8]) -> Result<(tempfile::TempDir, PackTotals), PackError> {
    let (folder, root) = scratch();
    let tree = StagedTree::create(&root).unwrap();
    match tree.unpack(stream, PackLimits::default()) {
        Ok(totals) => {
            tree.publish(&rel("job"), Existing::Keep).unwrap();
            Ok((folder, totals))
        }
        Err(error) => {
            tree.discard().unwrap();
            assert_eq!(leftovers(folder.path()), Vec::<String>::new(), "after {error}");
            Err(error)
        }
    }
}

fn sample() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    plant(
        folder.path(),
        &[
            ("train.py", "print(1)"),
            ("data/empty", ""),
            ("data/deep/er/x", "y"),
            ("void/", ""),
        ],
    );
    plant(folder.path(), &[("data/link -> ../train.py", "")]);
    fs::write(folder.path().join("w-big"), vec![7; 700_000]).unwrap();
    fs::write(folder.path().join(OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    make_executable(&folder.path().join("train.py"));
    folder
}

#[test]
fn a_tree_arrives_with_names_contents_bits_links_and_times() {
    let source = sample();
    for reading in [Reading::Digests, Reading::Nothing] {
        let (target, totals) = received(&packed(source.path(), reading)).unwrap();
        assert_eq!(picture(&target.path().join("job")), picture(source.path()));
        assert_eq!(
            totals,
            PackTotals {
                entries: 10,
                bytes: 700_010
            }
        );
        assert_eq!(
            fs::read_dir(target.path()).unwrap().count(),
            1,
            "the staging folder is gone"
        );
    }
}

#[test]
fn a_stream_may_come_in_any_pieces() {
    let stream = packed(sample().path(), Reading::Digests);
    let (_folder, root) = scratch();
    let mut one_by_one = PackParser::new(Unpacker::new(root), PackLimits::default());
    for byte in &stream[..4000] {
        one_by_one.feed(std::slice::from_ref(byte)).unwrap();
    }
    one_by_one.feed(&stream[4000..]).unwrap();
    assert!(one_by_one.is_complete());
    one_by_one.finish_unpacking().unwrap();
}

#[test]
fn the_files_of_a_stream_are_reported_in_order() {
    let (source, (_target, root)) = (tempfile::tempdir().unwrap(), scratch());
    plant(source.path(), &[("a/1", "x"), ("a/2", ""), ("b", "y")]);
    let staged = StagedTree::create(&root).unwrap();
    let mut parser = staged.unpacker(PackLimits::default());
    parser.feed(&packed(source.path(), Reading::Nothing)).unwrap();
    let (totals, files) = parser.finish_unpacking().unwrap();
    let files: Vec<_> = files.into_iter().map(|file| file.path).collect();
    assert_eq!(files, [rel("a/1"), rel("a/2"), rel("b")]);
    assert_eq!((totals.entries, totals.bytes), (4, 2));
}

#[test]
fn an_empty_folder_is_a_stream_too() {
    let source = tempfile::tempdir().unwrap();
    let (target, totals) = received(&packed(source.path(), Reading::Digests)).unwrap();
    assert_eq!(totals, PackTotals::default());
    assert_eq!(leftovers(target.path()), ["job"]);
}

#[test]
fn a_cut_stream_is_refused_wherever_it_is_cut() {
    let source = tempfile::tempdir().unwrap();
    plant(source.path(), &[("a/b", "content"), ("c -> a", ""), ("d", "")]);
    let stream = packed(source.path(), Reading::Digests);
    for end in 0..stream.len() {
        let error = received(&stream[..end]).unwrap_err();
        assert!(
            matches!(error, PackError::Cut(at) if at == end as u64),
            "{end}: {error}"
        );
    }
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let source = tempfile::tempdir().unwrap();
    plant(source.path(), &[("a/b", "content"), ("c -> a", ""), ("d", "")]);
    let stream = packed(source.path(), Reading::Digests);
    for bit in 0..stream.len() * 8 {
        let mut broken = stream.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert!(received(&broken).is_err(), "bit {bit}");
    }
}

#[test]
fn damaged_content_is_named() {
    let source = tempfile::tempdir().unwrap();
    plant(source.path(), &[("a/b", "content")]);
    let mut stream = packed(source.path(), Reading::Digests);
    let at = stream.windows(7).position(|window| window == b"content").unwrap();
    stream[at] ^= 0x20;
    let error = received(&stream).unwrap_err();
    assert_eq!(error.to_string(), "the content of `a/b` was damaged in transit");
}

#[test]
fn hostile_names_are_refused() {
    for path in [
        b"../x".as_slice(),
        b"/etc/x",
        b"a/../x",
        b".",
        b"..",
        b"a//b",
        b"a\0b",
        b"a/",
    ] {
        let error = received(&forged(&[(path, file(0), b"")])).unwrap_err();
        assert!(matches!(error, PackError::Path(_)), "{path:?}: {error}");
    }
}

#[test]
fn duplicates_and_detours_are_refused() {
    let twice = forged(&[(b"a", file(0), b""), (b"a", file(0), b"")]);
    assert!(matches!(received(&twice).unwrap_err(), PackError::Order(_)));
    let through_link = forged(&[(b"a", link("b"), b""), (b"a/x", file(0), b"")]);
    assert!(matches!(
        received(&through_link).unwrap_err(),
        PackError::Order(_)
    ));
    let link_twice = forged(&[
        (b"a", link("b"), b""),
        (b"a", Node::Dir, b""),
        (b"a/x", file(0), b""),
    ]);
    assert!(matches!(received(&link_twice).unwrap_err(), PackError::Order(_)));
}

#[test]
fn the_hidden_folder_of_unfinished_uploads_takes_no_file() {
    let hidden = forged(&[(b".pfs-staging", file(1), b"!")]);
    let error = received(&hidden).unwrap_err();
    assert!(
        matches!(error, PackError::Storage(crate::RootError::Denied(_))),
        "{error}"
    );
}

#[test]
fn links_to_the_outside_are_refused() {
    for target in ["..", "/etc", "x/../../y"] {
        let error = received(&forged(&[(b"a", link(target), b"")])).unwrap_err();
        assert!(matches!(error, PackError::LinkOutside(_)), "{target}: {error}");
    }
}

#[test]
fn a_link_planted_by_an_earlier_stream_is_not_followed_by_a_later_one() {
    let (folder, root) = scratch();
    fs::create_dir(folder.path().join("outside")).unwrap();
    let tree = StagedTree::create(&root).unwrap();
    tree.unpack(
        forged(&[(b"a", link("b"), b"")]).as_slice(),
        PackLimits::default(),
    )
    .unwrap();
    fs::create_dir(folder.path().join(format!(".pfs-staging/{}/b", tree.id()))).unwrap();
    let second = forged(&[(b"a", Node::Dir, b""), (b"a/x", file(1), b"!")]);
    let error = tree.unpack(second.as_slice(), PackLimits::default()).unwrap_err();
    assert!(
        matches!(error, PackError::Storage(crate::RootError::ThroughLink(_))),
        "{error}"
    );
}

#[test]
fn huge_lengths_cost_nothing_and_are_refused() {
    let huge = forged(&[(b"a", file(u64::MAX), b"")]);
    assert!(matches!(
        received(&huge).unwrap_err(),
        PackError::Limit { what: "bytes", .. }
    ));
    let sum = forged(&[(b"a", file(1 << 49), b""), (b"b", file(u64::MAX - 5), b"")]);
    assert!(received(&sum).is_err());
}

#[test]
fn limits_hold_for_entries_bytes_and_links() {
    let limits = |entries, bytes, links| PackLimits {
        entries,
        bytes,
        links,
        ..PackLimits::default()
    };
    let stream = forged(&[(b"a", file(3), b"123"), (b"b", link("a"), b"")]);
    let refused = |limits| {
        let (_folder, root) = scratch();
        let tree = StagedTree::create(&root).unwrap();
        let error = tree.unpack(&stream, limits).unwrap_err();
        let PackError::Limit { what, .. } = error else {
            panic!("{error}")
        };
        what
    };
    assert_eq!(refused(limits(1, 3, 1)), "entries");
    assert_eq!(refused(limits(2, 2, 1)), "bytes");
    assert_eq!(refused(limits(2, 3, 0)), "links");
    let long = PackLimits {
        link_bytes: 1,
        ..PackLimits::default()
    };
    assert_eq!(refused(long), "bytes of links");
    let (_folder, root) = scratch();
    let tree = StagedTree::create(&root).unwrap();
    tree.unpack(&stream, limits(2, 3, 1)).unwrap();
}

#[test]
fn bytes_after_the_end_are_refused() {
    let mut stream = forged(&[]);
    stream.push(0);
    assert!(matches!(received(&stream).unwrap_err(), PackError::Trailing));
}

#[test]
fn a_refused_stream_stays_refused() {
    let (_folder, root) = scratch();
    let mut parser = PackParser::new(Unpacker::new(root), PackLimits::default());
    assert!(matches!(parser.feed(b"not a pack"), Err(PackError::Magic)));
    assert!(matches!(parser.feed(&forged(&[])), Err(PackError::Refused)));
    assert!(!parser.is_complete() && parser.finish_unpacking().is_err());
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_breaks_the_stream() {
    let entry = Entry {
        path: rel("a"),
        node: file(10),
        mtime: Mtime::default(),
    };
    let mut writer = PackWriter::new(Vec::new()).unwrap();
    let error = writer.add_file(&entry, b"short".as_slice()).unwrap_err();
    assert!(matches!(error, PackError::Changed(_)));
}

#[test]
fn files_of_a_broken_stream_are_not_sent_again() {
    let source = sample();
    let manifest = Manifest::new(scanned(source.path(), Reading::Digests)).unwrap();
    let stream = packed(source.path(), Reading::Digests);
    let (target, root) = scratch();

    let tree = StagedTree::create(&root).unwrap();
    let id = tree.id().to_string();
    tree.unpack(&stream[..stream.len() / 2], PackLimits::default())
        .unwrap_err();
    fs::write(target.path().join(format!(".pfs-staging/{id}/w-big")), "half").unwrap();

    let missing: Vec<String> = tree
        .missing(&manifest, &Default::default())
        .unwrap()
        .iter()
        .map(|e| e.path.to_string())
        .collect();
    assert!(
        missing.contains(&"w-big".to_owned()) && missing.len() < manifest.entries().len(),
        "{missing:?}"
    );
    let is_missing = |entry: &&Entry| entry.is_dir() || missing.contains(&entry.path.to_string());
    let source_root = Root::open(source.path()).unwrap();
    let rest = write_pack(
        &source_root,
        manifest.entries().iter().filter(is_missing),
        Vec::new(),
    )
    .unwrap()
    .0;
    tree.unpack(rest.as_slice(), PackLimits::default()).unwrap();
    assert!(tree.missing(&manifest, &Default::default()).unwrap().is_empty());
    tree.publish(&rel("job"), Existing::Keep).unwrap();
    assert_eq!(picture(&target.path().join("job")), picture(source.path()));
}

#[test]
fn digest_and_stamp_of_every_file_are_recorded() {
    let source = sample();
    let entries = scanned(source.path(), Reading::Digests);
    let (_target, root) = scratch();
    let tree = StagedTree::create(&root).unwrap();
    let mut parser = tree.unpacker(PackLimits::default());
    parser.feed(&packed(source.path(), Reading::Digests)).unwrap();
    let (_, noted) = parser.finish_unpacking().unwrap();
    let files = entries.iter().filter(|entry| entry.is_file());
    let expected: Vec<_> = files.map(|entry| (entry.path.clone(), entry.digest())).collect();
    let found: Vec<_> = noted
        .iter()
        .map(|file| (file.path.clone(), Some(file.digest)))
        .collect();
    assert_eq!(found, expected);
    for file in noted {
        assert_eq!(
            file.stamp,
            tree.tree().stat(&file.path).unwrap().stamp,
            "{}",
            file.path
        );
    }
}

#[test]
fn publishing_keeps_or_replaces_as_asked() {
    let (folder, root) = scratch();
    let publish = |content: &str, existing| {
        let tree = StagedTree::create(&root).unwrap();
        let node = file(content.len() as u64);
        let stream = forged(&[(b"a", node, content.as_bytes())]);
        tree.unpack(stream.as_slice(), PackLimits::default()).unwrap();
        tree.publish(&rel("job"), existing)
    };
    publish("one", Existing::Keep).unwrap();
    assert!(matches!(
        publish("two", Existing::Keep),
        Err(crate::RootError::Exists(_))
    ));
    assert_eq!(fs::read_to_string(folder.path().join("job/a")).unwrap(), "one");
    publish("three", Existing::Replace).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("job/a")).unwrap(), "three");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_never_publish_anything(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut stream = MAGIC.to_vec();
        stream.extend_from_slice(&bytes);
        prop_assert!(received(&stream).is_err());
    }

    #[test]
    fn any_tree_arrives_unchanged(
        files in proptest::collection::btree_map("[a-c]{1,2}(/[a-c]{1,2}){0,3}", proptest::collection::vec(any::<u8>(), 0..2000), 0..12),
        cut in 1_usize..3000,
    ) {
        let source = tempfile::tempdir().unwrap();
        for (path, content) in &files {
            let path = source.path().join(path);
            // A name may be used for a file and a folder; the first one wins.
            let made = path.parent().map(fs::create_dir_all).transpose().and_then(|_| fs::write(&path, content));
            let _ = made;
        }
        let stream = packed(source.path(), Reading::Nothing);
        let (target, root) = scratch();
        let tree = StagedTree::create(&root).unwrap();
        let mut parser = tree.unpacker(PackLimits::default());
        for piece in stream.chunks(cut) {
            parser.feed(piece).unwrap();
        }
        parser.finish_unpacking().unwrap();
        tree.publish(&rel("job"), Existing::Keep).unwrap();
        prop_assert_eq!(picture(&target.path().join("job")), picture(source.path()));
    }
}
