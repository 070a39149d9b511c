//! A suite for implementations of [`FileIndex`]. Expects an empty index and panics with the broken promise.

use super::{FileIndex, IndexedFile};
use crate::content::Moved;
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::Stamp;

/// Runs the whole suite.
pub fn check(index: &dyn FileIndex) {
    let parts: [fn(&dyn FileIndex); 6] = [
        the_last_record_of_a_file_is_found,
        many_files_are_recorded_and_found_at_once,
        a_row_is_replaced_alone_and_only_if_it_is_unchanged,
        rows_follow_a_move_and_replace_what_was_there,
        a_home_is_forgotten_and_similar_ones_stay,
        a_key_names_one_upload_until_that_is_gone,
    ];
    for part in parts {
        part(index);
        for space in [ann(), bob(), Space::Public] {
            let path = RelPath::root();
            index
                .forget(&Place { space, path })
                .expect("rows can be forgotten");
        }
        assert_eq!(index.all().expect("rows can be read"), []);
    }
}

fn ann() -> Space {
    Space::Home("ann".parse().expect("a name"))
}

fn bob() -> Space {
    Space::Home("bob".parse().expect("a name"))
}

fn at(space: &Space, path: &[u8]) -> Place {
    Place {
        space: space.clone(),
        path: RelPath::from_bytes(path).expect("a path"),
    }
}

/// A small file with this name and version; the version is part of its stamp and content.
fn file(path: &str, version: u64) -> IndexedFile {
    IndexedFile {
        place: at(&ann(), path.as_bytes()),
        stamp: Stamp {
            device: u64::MAX,
            inode: version,
            size: version,
            mtime: Mtime::from_nanos(-5),
            ctime: Mtime::from_nanos(i64::MAX),
        },
        digest: Digest::of(&version.to_le_bytes()),
    }
}

fn rows(index: &dyn FileIndex) -> Vec<IndexedFile> {
    let mut rows = index.all().expect("rows can be read");
    rows.sort_by(|one, other| one.place.cmp(&other.place));
    rows
}

fn record(index: &dyn FileIndex, files: &[IndexedFile]) {
    index.record(files).expect("files can be recorded");
}

fn the_last_record_of_a_file_is_found(index: &dyn FileIndex) {
    let strange = IndexedFile {
        place: at(&bob(), b"\xff\xfe/new\nline%_'"),
        ..file("x", 4)
    };
    record(index, &[file("a", 1), file("d/b", 2), strange.clone()]);
    record(index, &[file("a", 3)]);
    let paths = ["d/b", "absent", "a"].map(|path| path.parse().expect("a path"));
    let found = index.find(&ann(), &paths).expect("files can be looked up");
    let known = |file: IndexedFile| Some((file.stamp, file.digest));
    assert_eq!(found, [known(file("d/b", 2)), None, known(file("a", 3))]);
    assert_eq!(rows(index), [file("a", 3), file("d/b", 2), strange]);
    index.forget(&at(&ann(), b"d")).expect("rows can be forgotten");
    index.forget(&at(&bob(), b"a")).expect("rows can be forgotten");
    assert_eq!(rows(index).len(), 2);
}

fn many_files_are_recorded_and_found_at_once(index: &dyn FileIndex) {
    let files: Vec<IndexedFile> = (0..2500).map(|n| file(&format!("d/{n:04}"), n)).collect();
    record(index, &files);
    assert!(rows(index) == files);
    let paths: Vec<RelPath> = files.iter().map(|file| file.place.path.clone()).collect();
    let found = index.find(&ann(), &paths).expect("files can be looked up");
    assert!(found.iter().all(Option::is_some));
    record(index, &[]);
    assert_eq!(index.find(&ann(), &[]).expect("an answer"), []);
}

fn a_row_is_replaced_alone_and_only_if_it_is_unchanged(index: &dyn FileIndex) {
    let replace = |row: &IndexedFile, found: Option<&IndexedFile>| {
        let found = found.map(|found| (found.stamp, found.digest));
        index.replace(row, found).expect("a row can be replaced");
    };
    let (row, new, below) = (file("x", 1), file("x", 2), file("x/y", 1));
    record(index, &[row.clone(), below.clone()]);
    let other_digest = IndexedFile {
        digest: new.digest,
        ..row.clone()
    };
    for changed in [&new, &other_digest, &file("absent", 1)] {
        replace(changed, None);
        replace(changed, Some(&new));
        assert_eq!(rows(index), [row.clone(), below.clone()]);
    }
    replace(&row, Some(&new));
    assert_eq!(rows(index), [new.clone(), below.clone()]);
    replace(&new, None);
    assert_eq!(rows(index), [below]);
}

fn rows_follow_a_move_and_replace_what_was_there(index: &dyn FileIndex) {
    let before = ["d/a", "d/sub/b", "d.c", "d0", "e", "e/old"];
    let files: Vec<IndexedFile> = (1..).zip(before).map(|(n, path)| file(path, n)).collect();
    record(index, &files);
    let public = |path: &str, version| IndexedFile {
        place: at(&Space::Public, path.as_bytes()),
        ..file("x", version)
    };
    let folder = Moved {
        from: at(&ann(), b"d"),
        to: at(&ann(), b"e"),
        file: None,
    };
    index.moved(&folder).expect("rows can be moved");
    let moved = [("d.c", 3), ("d0", 4), ("e/a", 1), ("e/sub/b", 2)];
    let mut moved = moved.map(|(path, n)| file(path, n));
    moved.sort_by(|one, other| one.place.cmp(&other.place));
    assert_eq!(rows(index), moved);
    let moved_file = |from: &str, seen: Stamp| Moved {
        from: at(&ann(), from.as_bytes()),
        to: at(&Space::Public, b"f"),
        file: Some((seen, file("x", 9).stamp)),
    };
    // A rename changes a file's stamp. A file with another stamp before the rename is not the recorded one.
    index
        .moved(&moved_file("e/a", file("x", 1).stamp))
        .expect("moved");
    index.moved(&moved_file("d0", file("x", 8).stamp)).expect("moved");
    let replaced = rows(index);
    assert!(
        replaced.iter().all(|row| row.place.space == ann()),
        "{replaced:?}"
    );
    index
        .moved(&moved_file("d.c", file("x", 3).stamp))
        .expect("moved");
    let mut expected = public("f", 9);
    expected.digest = file("x", 3).digest;
    assert_eq!(rows(index), [file("e/sub/b", 2), expected]);
}

fn a_home_is_forgotten_and_similar_ones_stay(index: &dyn FileIndex) {
    let owned = |space: Space| IndexedFile {
        place: at(&space, b"a"),
        ..file("a", 1)
    };
    let home = |owner: &str| Space::Home(owner.parse().expect("a name"));
    let mut others = ["an", "ann-x", "ann.x", "ann0", "annx"]
        .map(|owner| owned(home(owner)))
        .to_vec();
    others.push(owned(Space::Public));
    record(index, &others);
    record(index, &[owned(ann()), file("d/b", 2)]);
    let whole = Place {
        space: ann(),
        path: RelPath::root(),
    };
    index.forget(&whole).expect("rows can be forgotten");
    others.sort_by(|one, other| one.place.cmp(&other.place));
    assert_eq!(rows(index), others);
    for other in others {
        index.replace(&other, None).expect("a row can be removed");
    }
}

fn a_key_names_one_upload_until_that_is_gone(index: &dyn FileIndex) {
    let [key, other] = [b"key", b"or2"].map(|text| Digest::of(text));
    let [first, second] = ["a", "b"].map(|digit| digit.repeat(32).parse().expect("an id"));
    assert_eq!(index.upload(&key).expect("an answer"), None);
    index.record_upload(&key, &first).expect("recorded");
    index.record_upload(&key, &second).expect("recorded");
    index.record_upload(&other, &first).expect("recorded");
    assert_eq!(index.upload(&key).expect("an answer").as_ref(), Some(&second));
    let mut uploads = index.uploads().expect("an answer");
    uploads.sort();
    assert_eq!(uploads, [first.clone(), second.clone()]);
    index.forget_uploads(&[first]).expect("forgotten");
    assert_eq!(index.upload(&other).expect("an answer"), None);
    assert_eq!(index.uploads().expect("an answer"), std::slice::from_ref(&second));
    index.forget_uploads(&[second]).expect("forgotten");
}
