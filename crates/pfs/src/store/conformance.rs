//! A suite for implementations of [`FileStore`].
//!
//! Works in the home of a user called `suite` and leaves it empty. Panics with the broken promise.

use super::{FileStore, ReadAt};
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{Existing, FileAttributes, Kind, RootError};

type Part = (&'static str, fn(&Suite<'_>));

/// Runs the whole suite.
pub fn check(store: &dyn FileStore) {
    let suite = Suite { store };
    store.make_folder(&suite.at("")).expect("the home can be made");
    let parts: [Part; 17] = [
        ("a written file is read back", a_written_file_is_read_back),
        ("an empty file is a file", an_empty_file_is_a_file),
        (
            "nothing is seen before it is published",
            nothing_is_seen_before_it_is_published,
        ),
        ("keeping and replacing", keeping_and_replacing),
        (
            "an open file survives its replacement",
            an_open_file_survives_its_replacement,
        ),
        (
            "folders are made, listed and measured",
            folders_are_made_listed_and_measured,
        ),
        ("removing", removing),
        ("renaming", renaming),
        ("copying", copying),
        ("missing things are not found", missing_things_are_not_found),
        (
            "files and folders are not mixed up",
            files_and_folders_are_not_mixed_up,
        ),
        ("strange names", strange_names),
        ("values at a limit are kept", values_at_a_limit_are_kept),
        (
            "values beyond a limit are refused",
            values_beyond_a_limit_are_refused,
        ),
        ("many writers at once", many_writers_at_once),
        (
            "concurrent writers of one file get their own metadata",
            concurrent_writers_of_one_file_get_their_own_metadata,
        ),
        ("open uploads are not swept", open_uploads_are_not_swept),
    ];
    for (name, part) in parts {
        part(&suite);
        let left = store.list(&suite.at("")).expect("the home can be listed");
        assert!(left.is_empty(), "`{name}` leaves {left:?}");
    }
}

struct Suite<'a> {
    store: &'a dyn FileStore,
}

impl Suite<'_> {
    fn at(&self, path: &str) -> Place {
        let space = Space::Home("suite".parse().expect("a plain name"));
        Place {
            space,
            path: path.parse().expect("a path of the suite"),
        }
    }

    fn write(&self, path: &str, content: &[u8], existing: Existing) -> Result<(), RootError> {
        let mut file = self.store.begin(&self.at(path), FileAttributes::default())?;
        for piece in content.chunks(70_000) {
            file.append(piece)?;
        }
        file.publish(existing).map(drop)
    }

    fn put(&self, path: &str, content: &[u8]) {
        self.write(path, content, Existing::Replace)
            .expect("a file can be written");
    }

    fn get(&self, path: &str) -> Vec<u8> {
        read_all(&*self.store.open(&self.at(path)).expect("a file can be opened"))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = self.store.list(&self.at(path)).expect("a folder can be listed");
        entries.into_iter().map(|entry| entry.path.to_string()).collect()
    }

    /// A place beyond a limit is refused with the limit, for files and for folders.
    fn refuses(&self, place: &Place) {
        let refused =
            |error: RootError| matches!(error, RootError::Unsupported { .. } | RootError::TooLong(_));
        let file = self.store.begin(place, FileAttributes::default());
        assert!(
            file.err().is_some_and(refused),
            "a file at `{}` is refused",
            place.path
        );
        let folder = self.store.make_folder(place);
        assert!(
            folder.err().is_some_and(refused),
            "a folder at `{}` is refused",
            place.path
        );
    }

    fn clear(&self, path: &str) {
        self.store
            .remove_all(&self.at(path))
            .expect("what was made can be removed");
    }
}

fn read_all(file: &dyn ReadAt) -> Vec<u8> {
    try_read_all(file).expect("a file can be read")
}

fn try_read_all(file: &dyn ReadAt) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut buffer = vec![0; 10_000];
    loop {
        match file.read_at(&mut buffer, out.len() as u64).ok()? {
            0 => return Some(out),
            read => out.extend_from_slice(&buffer[..read]),
        }
    }
}

fn a_written_file_is_read_back(suite: &Suite<'_>) {
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|i| (i.wrapping_mul(97) >> 7) as u8)
        .collect();
    let mtime = Mtime::new(1_500_000_000, 0);
    let attributes = FileAttributes {
        executable: true,
        mtime: Some(mtime),
    };
    let mut file = suite
        .store
        .begin(&suite.at("big"), attributes)
        .expect("a file can be begun");
    content
        .chunks(100_001)
        .for_each(|piece| file.append(piece).expect("a file can be appended to"));
    file.publish(Existing::Keep).expect("a file can be published");
    assert_eq!(Digest::of(&suite.get("big")), Digest::of(&content));
    let meta = suite
        .store
        .stat(&suite.at("big"))
        .expect("a file can be looked at");
    assert_eq!((meta.kind.clone(), meta.size), (Kind::File, 3_000_000));
    assert_eq!((meta.executable, meta.mtime), (true, mtime));
    let mut middle = [0; 5];
    let file = suite.store.open(&suite.at("big")).expect("a file can be opened");
    assert_eq!(
        file.read_at(&mut middle, 2_000_000).expect("a range can be read"),
        5
    );
    assert_eq!(middle, content[2_000_000..2_000_005]);
    assert_eq!(
        file.read_at(&mut middle, 3_000_000).expect("the end can be read"),
        0
    );
    suite.clear("big");
}

fn an_empty_file_is_a_file(suite: &Suite<'_>) {
    suite.put("empty", b"");
    assert_eq!(suite.get("empty"), b"");
    assert_eq!(suite.store.stat(&suite.at("empty")).expect("it is there").size, 0);
    suite.clear("empty");
}

fn nothing_is_seen_before_it_is_published(suite: &Suite<'_>) {
    let mut file = suite
        .store
        .begin(&suite.at("later"), FileAttributes::default())
        .expect("begun");
    file.append(b"half").expect("appended");
    assert_eq!(suite.names(""), Vec::<String>::new());
    assert!(matches!(
        suite.store.open(&suite.at("later")),
        Err(RootError::NotFound(_))
    ));
    drop(file);
    assert_eq!(suite.names(""), Vec::<String>::new());
}

fn keeping_and_replacing(suite: &Suite<'_>) {
    suite
        .write("f", b"one", Existing::Keep)
        .expect("the place is free");
    assert!(matches!(
        suite.write("f", b"two", Existing::Keep),
        Err(RootError::Exists(_))
    ));
    assert_eq!(suite.get("f"), b"one");
    suite
        .write("f", b"three", Existing::Replace)
        .expect("a file can be replaced");
    assert_eq!(suite.get("f"), b"three");
    suite.clear("f");
}

fn an_open_file_survives_its_replacement(suite: &Suite<'_>) {
    suite.put("f", b"the old content");
    let open = suite.store.open(&suite.at("f")).expect("a file can be opened");
    suite.put("f", b"the new content");
    if suite.store.limits().stays_open {
        assert_eq!(read_all(&*open), b"the old content");
    } else if let Some(content) = try_read_all(&*open) {
        assert_eq!(
            content, b"the old content",
            "the old content or none, never another"
        );
    }
    assert_eq!(suite.get("f"), b"the new content");
    suite.clear("f");
}

fn folders_are_made_listed_and_measured(suite: &Suite<'_>) {
    suite
        .store
        .make_folder(&suite.at("d/e"))
        .expect("folders are made on the way");
    suite.store.make_folder(&suite.at("d/e")).expect("again is fine");
    for (name, content) in [("d/e/one", &b"1"[..]), ("d/two", b"22"), ("d/a.txt", b"333")] {
        suite.put(name, content);
    }
    assert_eq!(suite.names("d"), ["d/a.txt", "d/e", "d/two"]);
    assert!(suite.store.stat(&suite.at("d/e")).expect("it is there").is_dir());
    let usage = suite
        .store
        .usage(&suite.at("d"))
        .expect("a folder can be measured");
    assert_eq!((usage.bytes, usage.files), (6, 3));
    suite.clear("d");
}

fn removing(suite: &Suite<'_>) {
    suite.store.make_folder(&suite.at("d/e")).expect("made");
    suite.put("d/e/f", b"x");
    assert!(matches!(
        suite.store.remove(&suite.at("d")),
        Err(RootError::NotEmpty(_))
    ));
    suite
        .store
        .remove(&suite.at("d/e/f"))
        .expect("a file can be removed");
    suite
        .store
        .remove(&suite.at("d/e"))
        .expect("an empty folder can be removed");
    assert!(matches!(
        suite.store.remove(&suite.at("d/e")),
        Err(RootError::NotFound(_))
    ));
    suite.put("d/g", b"x");
    suite
        .store
        .remove_all(&suite.at("d"))
        .expect("a full folder can be removed on request");
}

fn renaming(suite: &Suite<'_>) {
    let rename =
        |from: &str, to: &str, existing| suite.store.rename(&suite.at(from), &suite.at(to), existing);
    suite.store.make_folder(&suite.at("d")).expect("made");
    suite.put("a", b"a");
    suite.put("d/b", b"b");
    rename("a", "d/c", Existing::Keep).expect("a file can be moved");
    assert!(matches!(
        rename("d/c", "d/b", Existing::Keep),
        Err(RootError::Exists(_))
    ));
    rename("d/c", "d/b", Existing::Replace).expect("and replace another");
    assert_eq!(suite.get("d/b"), b"a");
    rename("d", "z", Existing::Keep).expect("a folder can be moved");
    assert_eq!(suite.get("z/b"), b"a");
    assert!(matches!(
        rename("z", "z/y", Existing::Keep),
        Err(RootError::IntoItself { .. })
    ));
    assert!(matches!(
        rename("no", "x", Existing::Keep),
        Err(RootError::NotFound(_))
    ));
    suite.clear("z");
}

fn copying(suite: &Suite<'_>) {
    suite.store.make_folder(&suite.at("d/e")).expect("made");
    suite.put("d/e/f", b"content");
    let copied = suite
        .store
        .copy(&suite.at("d"), &suite.at("c"), Existing::Keep)
        .expect("copied");
    assert_eq!((copied.bytes, copied.files), (7, 1));
    assert_eq!(suite.get("c/e/f"), b"content");
    suite.put("d/e/f", b"changed");
    assert_eq!(suite.get("c/e/f"), b"content", "a copy is its own");
    suite.clear("c");
    suite.clear("d");
}

fn missing_things_are_not_found(suite: &Suite<'_>) {
    let (store, no) = (suite.store, suite.at("no"));
    assert!(matches!(store.stat(&no), Err(RootError::NotFound(_))));
    assert!(matches!(store.list(&no), Err(RootError::NotFound(_))));
    assert!(matches!(store.open(&no), Err(RootError::NotFound(_))));
    assert!(matches!(store.remove(&no), Err(RootError::NotFound(_))));
    assert!(matches!(store.remove_all(&no), Err(RootError::NotFound(_))));
    assert!(matches!(
        suite.write("no/f", b"", Existing::Keep),
        Err(RootError::NotFound(_))
    ));
}

fn files_and_folders_are_not_mixed_up(suite: &Suite<'_>) {
    suite.store.make_folder(&suite.at("d")).expect("made");
    suite.put("f", b"x");
    assert!(matches!(
        suite.store.open(&suite.at("d")),
        Err(RootError::IsAFolder(_))
    ));
    assert!(matches!(
        suite.store.list(&suite.at("f")),
        Err(RootError::NotAFolder(_))
    ));
    assert!(
        suite.write("d", b"x", Existing::Replace).is_err(),
        "a file does not replace a folder"
    );
    assert!(
        suite.write("f/x", b"x", Existing::Replace).is_err(),
        "a file holds no files"
    );
    assert!(
        suite.store.make_folder(&suite.at("f")).is_err(),
        "a folder does not replace a file"
    );
    suite.clear("d");
    suite.clear("f");
}

fn strange_names(suite: &Suite<'_>) {
    let limits = suite.store.limits();
    let longest = "n".repeat(limits.name);
    let names = vec![
        "%2e%2e".to_owned(),
        "été 数据".to_owned(),
        "a b\tc".to_owned(),
        "-rf".to_owned(),
        "a:b".to_owned(),
        r"caf\xe9".to_owned(),
        longest,
    ];
    for name in names {
        let name: RelPath = name.replace('\t', r"\x09").parse().expect("a name");
        let place = Place {
            path: name.clone(),
            ..suite.at("")
        };
        if limits.check(&name).is_err() {
            suite.refuses(&place);
            continue;
        }
        let file = suite
            .store
            .begin(&place, FileAttributes::default())
            .expect("begun");
        file.publish(Existing::Keep)
            .unwrap_or_else(|error| panic!("`{name}` is a fine name: {error}"));
        let listed = suite.store.list(&suite.at("")).expect("listed");
        assert_eq!(
            listed.into_iter().map(|entry| entry.path).collect::<Vec<_>>(),
            [name]
        );
        suite.store.remove(&place).expect("removed");
    }
}

/// A path that is exactly as deep or long as the store allows works like any other.
fn values_at_a_limit_are_kept(suite: &Suite<'_>) {
    let limits = suite.store.limits();
    let deepest = vec!["d"; limits.depth].join("/");
    for path in [
        deepest,
        "n".repeat(limits.name),
        as_long_as(limits.path, limits.name),
    ] {
        let place = suite.at(&path);
        limits.check(&place.path).expect("it breaks no limit");
        let above = place.path.parent().unwrap_or_default();
        let folder = Place {
            path: above,
            ..suite.at("")
        };
        suite
            .store
            .make_folder(&folder)
            .expect("the folders above it can be made");
        suite.put(&path, path.as_bytes());
        assert_eq!(suite.get(&path), path.as_bytes());
        let size = suite.store.stat(&place).expect("it is there").size;
        assert_eq!(size, path.len() as u64);
        let listed = suite.store.list(&folder).expect("its folder can be listed");
        let listed: Vec<RelPath> = listed.into_iter().map(|entry| entry.path).collect();
        assert_eq!(listed, std::slice::from_ref(&place.path));
        let top = place.path.parts().next().expect("it has a name");
        let top = Place {
            path: RelPath::from_bytes(top).expect("a name is a path"),
            ..suite.at("")
        };
        suite.store.remove_all(&top).expect("it can be removed");
    }
}

/// A path of exactly this many bytes, with as few names as possible.
fn as_long_as(bytes: usize, longest_name: usize) -> String {
    let names = (bytes + 1).div_ceil(longest_name + 1);
    let letters = bytes + 1 - names;
    let name = |index: usize| "n".repeat(letters * (index + 1) / names - letters * index / names);
    (0..names).map(name).collect::<Vec<_>>().join("/")
}

/// A path one beyond a limit is refused, and the error names the limit.
fn values_beyond_a_limit_are_refused(suite: &Suite<'_>) {
    let limits = suite.store.limits();
    let deep = vec!["d"; limits.depth + 1].join("/");
    let name = "n".repeat(limits.name + 1);
    let long = as_long_as(limits.path + 1, limits.name);
    for (path, limit) in [(deep, limits.depth), (name, limits.name), (long, limits.path)] {
        let message = match path.parse::<RelPath>() {
            Ok(path) => {
                let place = Place { path, ..suite.at("") };
                suite.refuses(&place);
                limits
                    .check(&place.path)
                    .expect_err("it breaks a limit")
                    .to_string()
            }
            // No store can be asked for this path.
            Err(error) => error.to_string(),
        };
        // If a path this deep is also too long, the error may name that limit.
        let known = [limit, limits.path].map(|limit| format!("{limit} "));
        assert!(known.iter().any(|limit| message.contains(limit)), "{message}");
    }
}

fn many_writers_at_once(suite: &Suite<'_>) {
    const FILES: usize = 40;
    suite.store.make_folder(&suite.at("many")).expect("made");
    let write = |index: usize| suite.put(&format!("many/{index:03}"), index.to_string().as_bytes());
    std::thread::scope(|scope| {
        for start in 0..8 {
            scope.spawn(move || (start..FILES).step_by(8).for_each(write));
        }
    });
    assert_eq!(suite.names("many").len(), FILES);
    assert_eq!(suite.get("many/017"), b"17");
    suite.clear("many");
}

fn concurrent_writers_of_one_file_get_their_own_metadata(suite: &Suite<'_>) {
    const ROUNDS: usize = 8;
    let publish = |size: usize| {
        let created = suite.store.begin(&suite.at("one"), FileAttributes::default());
        let mut file = created.expect("begun");
        file.append(&vec![7; size]).expect("appended");
        let published = file.publish(Existing::Replace).expect("published");
        assert_eq!(published.size, size as u64, "another writer's file is reported");
        published
    };
    std::thread::scope(|scope| {
        for writer in 1..=4 {
            scope.spawn(move || (0..ROUNDS).for_each(|_| drop(publish(writer))));
        }
    });
    let published = publish(5);
    assert_eq!(
        suite.store.stat(&suite.at("one")).expect("it is there"),
        published
    );
    suite.clear("one");
}

/// Abandoned files need a process that has exited; each store has its own tests for that.
fn open_uploads_are_not_swept(suite: &Suite<'_>) {
    let home = suite.at("");
    let sweep = || {
        let swept = suite.store.sweep(&home.space, std::time::Duration::ZERO);
        swept.expect("swept")
    };
    let begin = || {
        let created = suite.store.begin(&suite.at("f"), FileAttributes::default());
        let mut file = created.expect("begun");
        file.append(b"on its way").expect("appended");
        file
    };
    let file = begin();
    assert_eq!(sweep(), 0, "somebody is at it");
    file.publish(Existing::Keep).expect("it is still there");
    assert_eq!(suite.get("f"), b"on its way");
    suite.clear("f");
    drop(begin());
    assert_eq!(sweep(), 0, "what is given up leaves nothing");
    assert_eq!(suite.store.usage(&home).expect("measured").bytes, 0);
}
