//! Content is reused only if it is intact and the caller may read it.

use std::fs;

use super::*;
use crate::content::{IndexedFile, index::LARGE};
use crate::path::Place;
use crate::root::{Root, Stamp};
use crate::testing::{MemoryIndex, leftovers, rel, scratch};

fn home(user: &str) -> Space {
    Space::Home(user.parse().unwrap())
}

/// Content that is large enough to be found by its digest.
fn large(text: &str) -> Vec<u8> {
    let mut content = text.as_bytes().to_vec();
    content.resize(LARGE as usize + 1, b'.');
    content
}

fn announced(text: &str) -> AnnouncedFile {
    AnnouncedFile {
        digest: Digest::of(&large(text)),
        size: LARGE + 1,
        attributes: FileAttributes::default(),
    }
}

/// The home of ann, with a file `f` that is recorded in the index.
struct Fixture {
    folder: tempfile::TempDir,
    root: Root,
    index: MemoryIndex,
}

impl Fixture {
    fn knowing(text: &str) -> Fixture {
        let (folder, root) = scratch();
        let fixture = Fixture {
            folder,
            root,
            index: MemoryIndex::default(),
        };
        fs::write(fixture.folder.path().join("f"), large(text)).unwrap();
        fixture.record(text);
        fixture
    }

    fn record(&self, text: &str) -> Stamp {
        let stamp = self.root.stat(&rel("f")).unwrap().stamp;
        let place = Place {
            space: home("ann"),
            path: rel("f"),
        };
        let digest = announced(text).digest;
        let file = IndexedFile { place, stamp, digest };
        self.index.record(&[file]).unwrap();
        stamp
    }

    fn is_stored(&self, text: &str, reader: &str) -> bool {
        let AnnouncedFile { digest, size, .. } = announced(text);
        is_stored(
            &self.index,
            digest,
            size,
            &[(home(reader), self.root.clone().into())],
        )
    }

    fn reuse(
        &self,
        file: AnnouncedFile,
        reader: &str,
        existing: Existing,
    ) -> Result<Option<Meta>, RootError> {
        let readable = [(home(reader), self.root.clone().into())];
        let target = (&self.root.clone().into(), &rel("copy"));
        reuse(&self.index, &file, &readable, target, existing)
    }

    #[track_caller]
    fn is_not_reused(&self, file: AnnouncedFile, reader: &str) {
        let made = self.reuse(file, reader, Existing::Replace).unwrap();
        assert_eq!(made, None);
        assert_eq!(self.index.all().unwrap().len(), 1, "the row stays for a check");
    }
}

#[test]
fn known_content_is_copied_instead_of_sent() {
    let fixture = Fixture::knowing("data");
    assert!(fixture.is_stored("data", "ann"));
    let made = fixture
        .reuse(announced("data"), "ann", Existing::Replace)
        .unwrap();
    assert!(made.is_some());
    let copy = fixture.folder.path().join("copy");
    assert_eq!(fs::read(&copy).unwrap(), large("data"));
    assert_eq!(leftovers(fixture.folder.path()), ["copy", "f"]);
    fixture.is_not_reused(announced("other"), "ann");
    let kept = fixture.reuse(announced("data"), "ann", Existing::Keep);
    assert!(matches!(kept, Err(RootError::Exists(_))), "{kept:?}");
}

#[test]
fn content_of_another_size_than_was_announced_is_not_copied() {
    let fixture = Fixture::knowing("data");
    for size in [0, LARGE, LARGE + 2] {
        let digest = announced("data").digest;
        let attributes = FileAttributes::default();
        fixture.is_not_reused(
            AnnouncedFile {
                digest,
                size,
                attributes,
            },
            "ann",
        );
    }
    assert_eq!(leftovers(fixture.folder.path()), ["f"]);
}

#[test]
fn a_digest_is_no_key_to_another_users_file() {
    let fixture = Fixture::knowing("secret");
    assert!(!fixture.is_stored("secret", "bob"));
    fixture.is_not_reused(announced("secret"), "bob");
}

#[test]
fn a_file_that_a_job_changed_or_removed_is_not_believed() {
    let fixture = Fixture::knowing("before");
    fs::write(fixture.folder.path().join("f"), large("after!")).unwrap();
    assert!(!fixture.is_stored("before", "ann"));
    fixture.is_not_reused(announced("before"), "ann");
    fs::remove_file(fixture.folder.path().join("f")).unwrap();
    fixture.is_not_reused(announced("before"), "ann");
}

/// The stamp is unchanged but the bytes differ: a flipped bit on the disk.
#[test]
fn content_is_checked_even_when_the_stamp_fits() {
    let fixture = Fixture::knowing("good");
    fs::write(fixture.folder.path().join("f"), large("bad!")).unwrap();
    let stamp = fixture.record("good");
    fixture.is_not_reused(announced("good"), "ann");
    assert_eq!(leftovers(fixture.folder.path()), ["f"]);
    assert_eq!(fixture.index.all().unwrap()[0].stamp, stamp);
}
