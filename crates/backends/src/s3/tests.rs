//! Tests that need a real service; `cargo xtask test --with s3` starts one and passes its address.

use std::ops::ControlFlow;

use paddlecloud_pfs::root::FileAttributes;
use paddlecloud_pfs::store::{FileStore, NewFile};
use paddlecloud_pfs::{Existing, Place, RelPath, RootError, Space};

use super::listing::Reach;
use super::writing::NewObject;
use super::{Inner, S3Store};
use crate::{S3Settings, SecretText};

/// A home on the service; emptied at the end.
struct Stage {
    store: S3Store,
    space: Space,
    _notes: tempfile::TempDir,
}

impl Stage {
    /// On the service that the variable names.
    fn of(owner: &str) -> Stage {
        let endpoint = std::env::var("PADDLECLOUD_TEST_S3").expect("run `cargo xtask test --with s3`");
        let mut settings = S3Settings::from_url("s3://bucket/unit").unwrap();
        settings.endpoint = Some(endpoint);
        settings.longest_key = 120;
        settings.access_key = Some("paddlecloud".to_owned());
        settings.secret_key = Some(SecretText::new("secret"));
        let notes = tempfile::tempdir().unwrap();
        let stage = Stage {
            store: S3Store::open(&settings, notes.path()).unwrap(),
            space: Space::Home(owner.parse().unwrap()),
            _notes: notes,
        };
        let _ = stage.store.remove_all(&stage.at(""));
        stage.store.make_folder(&stage.at("")).unwrap();
        stage
    }

    fn at(&self, path: &str) -> Place {
        Place {
            space: self.space.clone(),
            path: path.parse().unwrap(),
        }
    }

    fn put(&self, path: &str, text: &str) {
        let place = self.at(path);
        self.store.make_folder(&place.parent().unwrap()).unwrap();
        let mut file = self.store.begin(&place, FileAttributes::default()).unwrap();
        file.append(text.as_bytes()).unwrap();
        file.publish(Existing::Replace).unwrap();
    }

    fn get(&self, path: &str) -> String {
        let file = self.store.open(&self.at(path)).unwrap();
        let mut bytes = vec![0; 100];
        let read = file.read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    }

    fn files_below(&self, path: &str) -> Vec<String> {
        let below = self.store.below(&self.at(path)).unwrap();
        let files = below.iter().filter(|one| !one.is_marker);
        let mut files: Vec<String> = files.map(|one| one.path.to_string()).collect();
        files.sort();
        files
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.store.remove_all(&self.at(""));
    }
}

fn is_changing<T>(moved: Result<T, RootError>) -> bool {
    matches!(moved, Err(RootError::Changing(_)))
}

/// The steps of a move, with a concurrent write between copying and removing.
#[test]
#[ignore = "needs S3"]
fn objects_replaced_during_a_move_are_kept_and_reported() {
    let stage = Stage::of("replacing");
    for name in ["from/a", "from/replaced", "from/d/b"] {
        stage.put(name, "old");
    }
    let (store, from, to) = (&stage.store, stage.at("from"), stage.at("to"));
    let copied = store.below(&from).unwrap();
    store.copy_below(&from, &copied, &to, Existing::Keep).unwrap();
    stage.put("from/replaced", "newer");
    stage.put("from/d/arrived", "new");
    assert!(is_changing(store.remove_copied(&from, &copied)));
    assert_eq!(stage.files_below("from"), ["from/d/arrived", "from/replaced"]);
    assert_eq!(stage.get("from/replaced"), "newer");
    assert_eq!(stage.files_below("to"), ["to/a", "to/d/b", "to/replaced"]);

    // An object that is replaced after the second listing, while others are being removed, is kept too.
    let listed = store.below(&from).unwrap();
    stage.put("from/replaced", "the newest");
    assert!(is_changing(store.remove_found(&from, &listed, &listed)));
    assert_eq!(stage.files_below("from"), ["from/replaced"]);
    stage.put("from/replaced", "newer");

    stage.put("f", "old");
    let found = store.head(&stage.at("f")).unwrap().unwrap().meta;
    stage.put("f", "newer");
    assert!(is_changing(store.remove_copied_object(&stage.at("f"), &found)));
    assert_eq!(stage.get("f"), "newer");

    store.rename(&from, &stage.at("moved"), Existing::Keep).unwrap();
    assert_eq!(stage.files_below("from"), Vec::<String>::new());
    assert_eq!(stage.get("moved/replaced"), "newer");
    store
        .rename(&stage.at("f"), &stage.at("g"), Existing::Keep)
        .unwrap();
    assert_eq!(stage.get("g"), "newer");
}

#[test]
#[ignore = "needs S3"]
fn removing_an_empty_folder_removes_nothing_else() {
    let stage = Stage::of("emptying");
    let store = &stage.store;
    store.make_folder(&stage.at("d/e")).unwrap();
    stage.put("d/f", "x");
    let refused = store.remove(&stage.at("d"));
    assert!(matches!(refused, Err(RootError::NotEmpty(_))), "{refused:?}");
    store.remove(&stage.at("d/f")).unwrap();
    store.remove(&stage.at("d/e")).unwrap();
    assert!(
        store.stat(&stage.at("d")).unwrap().is_dir(),
        "the folder above stays"
    );
    store.remove(&stage.at("d")).unwrap();
    assert_eq!(store.list(&stage.at("")).unwrap(), []);
}

#[test]
#[ignore = "needs S3"]
fn the_name_of_folder_markers_is_reserved() {
    let stage = Stage::of("marking");
    let store = &stage.store;
    stage.put("d/f", "x");
    for path in [".pfs-folder", "d/.pfs-folder", "d/.pfs-folder/x"] {
        let place = stage.at(path);
        let file = store.begin(&place, FileAttributes::default()).err().unwrap();
        assert!(
            file.to_string()
                .ends_with("the storage itself uses the name `.pfs-folder`"),
            "{file}"
        );
        let others = [
            store.make_folder(&place),
            store.rename(&stage.at("d/f"), &place, Existing::Replace),
            store.copy(&stage.at("d/f"), &place, Existing::Replace).map(drop),
        ];
        for refused in others {
            assert!(
                matches!(refused, Err(RootError::Unsupported { .. })),
                "{refused:?}"
            );
        }
        assert!(
            store.stat(&place).is_err_and(|error| error.is_not_found()),
            "{path}"
        );
    }
    assert_eq!(stage.get("d/f"), "x");
}

#[test]
#[ignore = "needs S3"]
fn a_listing_of_many_pages_is_one_listing() {
    let mut stage = Stage::of("paging");
    let names: Vec<String> = (0..7).map(|index| format!("d/{index}")).collect();
    names.iter().for_each(|name| stage.put(name, ""));
    stage.put("d/sub/deep", "");
    let store = std::sync::Arc::get_mut(&mut stage.store.0);
    let Inner { page, .. } = store.expect("nobody else uses it");
    *page = Some(2);
    let mut pages = 0;
    let count = |_| {
        pages += 1;
        ControlFlow::Continue(())
    };
    stage
        .store
        .pages(&stage.at("d"), Reach::All, None, count)
        .unwrap();
    assert!(pages > 3, "nine keys, two on a page: {pages}");
    let listed = stage.store.list(&stage.at("d")).unwrap();
    let listed: Vec<RelPath> = listed.into_iter().map(|entry| entry.path).collect();
    let mut expected: Vec<RelPath> = names.iter().map(|name| name.parse().unwrap()).collect();
    expected.push("d/sub".parse().unwrap());
    assert_eq!(listed, expected);
    assert_eq!(stage.files_below("d").len(), 8);
    assert_eq!(stage.store.usage(&stage.at("d")).unwrap().files, 8);
}

/// The steps of publishing, with a concurrent write before the last one.
#[test]
#[ignore = "needs S3"]
fn concurrent_writers_get_their_own_metadata() {
    let stage = Stage::of("writing");
    let place = stage.at("f");
    // One is sent as a whole, the other in parts.
    for size in [3, (8 << 20) + 1] {
        let begin = || {
            let key = stage.store.new_key(&place).unwrap();
            let mut file = NewObject::new(&stage.store, &place, key, FileAttributes::default());
            file.append(&vec![7; 8 << 20][..size.min(8 << 20)]).unwrap();
            file.append(&vec![7; size.saturating_sub(8 << 20)]).unwrap();
            file
        };
        let mut alone = begin();
        let tag = alone.send(Existing::Replace).unwrap();
        let meta = alone.published(tag.as_deref()).unwrap();
        assert_eq!(meta, stage.store.stat(&place).unwrap(), "{size} bytes");

        let mut first = begin();
        let tag = first.send(Existing::Replace).unwrap();
        stage.put("f", "another");
        let meta = first.published(tag.as_deref()).unwrap();
        assert_eq!(meta.size, size as u64);
        assert_ne!(meta.stamp, stage.store.stat(&place).unwrap().stamp);
        stage.store.remove(&place).unwrap();
        assert_eq!(first.published(tag.as_deref()).unwrap().size, size as u64);
    }
}

/// The last steps, after a concurrent writer took the path that was free before.
#[test]
#[ignore = "needs S3"]
fn keeping_rechecks_the_path_just_before_the_write() {
    let stage = Stage::of("keeping");
    let (store, place) = (&stage.store, stage.at("f"));
    let key = store.new_key(&place).unwrap();
    let mut large = NewObject::new(store, &place, key, FileAttributes::default());
    large.append(&vec![7; 9 << 20]).unwrap();
    stage.put("from", "new");
    stage.put("f", "to stay");
    let exists = |refused: Option<RootError>| matches!(refused, Some(RootError::Exists(_)));
    assert!(exists(large.send(Existing::Keep).err()));
    assert!(exists(
        store
            .copy_object(&stage.at("from"), &place, 3, Existing::Keep)
            .err()
    ));
    assert_eq!(stage.get("f"), "to stay");
    store
        .copy_object(&stage.at("from"), &place, 3, Existing::Replace)
        .unwrap();
    assert_eq!(stage.get("f"), "new");
}
