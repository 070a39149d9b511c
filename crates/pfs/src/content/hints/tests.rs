//! What is remembered is told only while it is true, only to those who may read it, and not for ever.

use std::fs;

use super::*;
use crate::root::Root;
use crate::testing::{leftovers, plant, rel, scratch};

fn home(user: &str) -> Space {
    Space::Home(user.parse().unwrap())
}

fn wanted(content: &[u8]) -> Wanted {
    Wanted {
        digest: Digest::of(content),
        size: content.len() as u64,
        attributes: FileAttributes::default(),
    }
}

fn recorded(hints: &HintStore, root: &Root, space: Space, content: &[u8]) -> Place {
    root.write_file(&rel("f"), content, Existing::Replace).unwrap();
    let place = Place {
        space,
        path: rel("f"),
    };
    let stamp = root.stat(&rel("f")).unwrap().stamp;
    hints.record(Hint {
        place: place.clone(),
        stamp,
        digest: Digest::of(content),
    });
    place
}

#[test]
fn known_content_is_copied_instead_of_sent() {
    let (folder, root) = scratch();
    let hints = HintStore::new();
    recorded(&hints, &root, home("ann"), b"data");
    let spaces = [(home("ann"), root.clone().into())];
    assert!(hints.has(Digest::of(b"data"), &spaces));
    assert!(
        hints
            .reuse(
                &wanted(b"data"),
                &spaces,
                &root.clone().into(),
                &rel("copy"),
                Existing::Replace
            )
            .unwrap()
            .is_some()
    );
    assert_eq!(fs::read(folder.path().join("copy")).unwrap(), b"data");
    assert!(
        hints
            .reuse(
                &wanted(b"else"),
                &spaces,
                &root.clone().into(),
                &rel("no"),
                Existing::Replace
            )
            .unwrap()
            .is_none()
    );
    assert_eq!(leftovers(folder.path()), ["copy", "f"]);
}

#[test]
fn known_content_does_not_take_the_place_of_what_is_to_stay() {
    let (folder, root) = scratch();
    let hints = HintStore::new();
    recorded(&hints, &root, home("ann"), b"data");
    fs::write(folder.path().join("there"), "stays").unwrap();
    let spaces = [(home("ann"), root.clone().into())];
    let reused = hints.reuse(
        &wanted(b"data"),
        &spaces,
        &root.clone().into(),
        &rel("there"),
        Existing::Keep,
    );
    assert!(matches!(reused, Err(RootError::Exists(_))), "{reused:?}");
    assert_eq!(fs::read(folder.path().join("there")).unwrap(), b"stays");
}

#[test]
fn content_of_another_size_than_was_asked_for_is_not_copied() {
    let (folder, root) = scratch();
    let hints = HintStore::new();
    recorded(&hints, &root, home("ann"), b"data");
    let spaces = [(home("ann"), root.clone().into())];
    for size in [0, 3, 5] {
        let lied = Wanted {
            size,
            ..wanted(b"data")
        };
        let target = root.clone().into();
        let made = hints.reuse(&lied, &spaces, &target, &rel("copy"), Existing::Replace);
        assert!(made.unwrap().is_none(), "{size}");
    }
    assert_eq!(leftovers(folder.path()), ["f"]);
    assert_eq!(hints.len(), 1, "what is known stays known");
}

#[test]
fn a_digest_is_no_key_to_another_users_file() {
    let ((_a, ann), (_b, bob)) = (scratch(), scratch());
    let hints = HintStore::new();
    recorded(&hints, &ann, home("ann"), b"secret");
    let spaces = [(home("bob"), bob.clone().into())];
    assert!(!hints.has(Digest::of(b"secret"), &spaces));
    assert!(
        hints
            .reuse(
                &wanted(b"secret"),
                &spaces,
                &bob.clone().into(),
                &rel("stolen"),
                Existing::Replace
            )
            .unwrap()
            .is_none()
    );
    assert_eq!(hints.len(), 1, "and asking does not harm the owner's hint");
}

#[test]
fn a_file_changed_behind_our_back_is_not_believed() {
    let (folder, root) = scratch();
    let hints = HintStore::new();
    recorded(&hints, &root, home("ann"), b"before");
    fs::write(folder.path().join("f"), "after!").unwrap();
    let spaces = [(home("ann"), root.clone().into())];
    assert!(!hints.has(Digest::of(b"before"), &spaces));
    assert!(
        hints
            .reuse(
                &wanted(b"before"),
                &spaces,
                &root.clone().into(),
                &rel("copy"),
                Existing::Replace
            )
            .unwrap()
            .is_none()
    );
    assert_eq!(hints.len(), 1, "a check will tell that it changed");
    fs::remove_file(folder.path().join("f")).unwrap();
    let target = root.clone().into();
    let made = hints.reuse(
        &wanted(b"before"),
        &spaces,
        &target,
        &rel("copy"),
        Existing::Replace,
    );
    assert!(made.unwrap().is_none());
    assert_eq!(hints.len(), 1, "a check will tell that it is gone");
}

/// The stamp says unchanged, the bytes say otherwise: a flipped bit on the disk.
#[test]
fn content_is_checked_even_when_the_stamp_fits() {
    let (folder, root) = scratch();
    let hints = HintStore::new();
    let place = recorded(&hints, &root, home("ann"), b"good");
    fs::write(folder.path().join("f"), "bad!").unwrap();
    let stamp = root.stat(&rel("f")).unwrap().stamp;
    hints.record(Hint {
        place: place.clone(),
        stamp,
        digest: Digest::of(b"good"),
    });
    let spaces = [(home("ann"), root.clone().into())];
    assert!(
        hints
            .reuse(
                &wanted(b"good"),
                &spaces,
                &root.clone().into(),
                &rel("copy"),
                Existing::Replace
            )
            .unwrap()
            .is_none()
    );
    assert_eq!(leftovers(folder.path()), ["f"]);
    let good = Some(Digest::of(b"good"));
    assert_eq!(hints.digest_of(&place, &stamp), good, "a check will find it");
}

#[test]
fn a_removed_folder_takes_its_hints_along() {
    let hints = HintStore::new();
    let (_folder, root) = scratch();
    let place = recorded(&hints, &root, home("ann"), b"x");
    hints.forget_below(&Place {
        space: Space::Public,
        path: RelPath::root(),
    });
    assert_eq!(hints.len(), 1);
    hints.forget_below(&Place {
        path: RelPath::root(),
        ..place
    });
    assert!(hints.is_empty());
}

fn all(hints: &HintStore) -> Vec<Hint> {
    hints.all().0.into_iter().map(|(hint, _)| hint).collect()
}

fn unpacked(path: &str, root: &Root) -> Unpacked {
    let content = root.stat(&rel(path)).map(|meta| meta.stamp);
    Unpacked {
        path: rel(path),
        digest: Digest::of(path.as_bytes()),
        stamp: content.unwrap(),
    }
}

#[test]
fn small_files_are_known_to_checks_until_they_are_known_anew_or_go() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("d/a", "1"), ("d/sub/b", "2"), ("f", "3")]);
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("hints");
    let hints = HintStore::load(&path);
    let top = Place {
        space: home("ann"),
        path: RelPath::root(),
    };
    let place = |path: &str| Place {
        path: rel(path),
        ..top.clone()
    };
    // A large file that a small one replaces.
    let large = recorded(&hints, &root, home("ann"), b"large");
    let files = ["d/a", "d/sub/b", "f"].map(|path| unpacked(path, &root));
    hints.note(&top, &files).unwrap();
    assert_eq!(hints.digest_of(&large, &files[2].stamp), None);
    let known = |hints: &HintStore| {
        let mut paths: Vec<String> = all(hints)
            .iter()
            .map(|hint| hint.place.path.to_string())
            .collect();
        paths.sort();
        paths
    };
    assert_eq!(known(&hints), ["d/a", "d/sub/b", "f"]);
    let (mut told, mut since) = hints.all();
    told.retain(|(hint, _)| hint.place == large);
    let (hint, remembered) = told.remove(0);
    assert_eq!(remembered, Remembered::Log);
    assert_eq!((hint.digest, hint.stamp), (files[2].digest, files[2].stamp));
    // What was found by a check, or came as a large file, is newer.
    let newer = Hint {
        digest: Digest::of(b"newer"),
        ..hint.clone()
    };
    hints.record(newer.clone());
    hints.renew(&hint, remembered, None, &mut since);
    assert!(all(&hints).contains(&newer) && !all(&hints).contains(&hint));
    hints.forget_below(&place("d"));
    hints.save(&path).unwrap();
    let hints = HintStore::load(&path);
    assert_eq!(known(&hints), ["f"]);
    hints.forget(&large);
    assert_eq!(all(&hints), [], "the older word does not come back");
}

#[test]
fn with_no_room_for_more_hints_none_tells_what_a_file_was_before() {
    let (folder, root) = scratch();
    let data = tempfile::tempdir().unwrap();
    let hints = HintStore::load(&data.path().join("hints"));
    plant(folder.path(), &[("small", "1")]);
    let place = recorded(&hints, &root, home("ann"), b"first");
    let top = Place {
        path: RelPath::root(),
        ..place.clone()
    };
    let small = unpacked("small", &root);
    hints.note(&top, std::slice::from_ref(&small)).unwrap();
    let hint = |path: &str, content: &[u8]| Hint {
        place: Place {
            path: rel(path),
            ..top.clone()
        },
        stamp: small.stamp,
        digest: Digest::of(content),
    };
    hints.record_within(hint("f", b"second"), 1);
    hints.record_within(hint("small", b"large now"), 1);
    assert_eq!(all(&hints), [hint("f", b"second")]);
    hints.record_within(hint("small", b"large now"), 2);
    assert_eq!(hints.len(), 2);
}

#[test]
fn what_moved_is_known_where_it_lies_and_what_it_replaced_is_not() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("d/small", "1"), ("e", "2")]);
    let data = tempfile::tempdir().unwrap();
    let hints = HintStore::load(&data.path().join("hints"));
    let place = |path: &str| Place {
        space: home("ann"),
        path: rel(path),
    };
    let renamed = |from: &str, to: &str| {
        let before = root.stat(&rel(from)).unwrap();
        root.rename(&rel(from), &rel(to), Existing::Replace).unwrap();
        let after = root.stat(&rel(to)).unwrap();
        hints.moved(&Moved::new(&place(from), &place(to), &before, &after).unwrap());
    };
    let files = ["d/small", "e"].map(|path| unpacked(path, &root));
    hints.note(&place(""), &files).unwrap();
    let large = recorded(&hints, &root, home("ann"), b"large");
    assert_eq!(large, place("f"));
    renamed("f", "d/f");
    renamed("d", "moved");
    renamed("e", "moved/small");
    let mut known: Vec<(Place, Digest)> = all(&hints)
        .into_iter()
        .map(|hint| (hint.place, hint.digest))
        .collect();
    known.sort();
    let expected = [
        ("moved/f", Digest::of(b"large")),
        ("moved/small", files[1].digest),
    ];
    assert_eq!(known, expected.map(|(path, digest)| (place(path), digest)));
    for hint in all(&hints) {
        assert_eq!(
            hint.stamp,
            root.stat(&hint.place.path).unwrap().stamp,
            "{}",
            hint.place.path
        );
    }
    // What was there before and is there now must be one.
    let [f, small] = ["moved/f", "moved/small"].map(|path| root.stat(&rel(path)).unwrap());
    assert_eq!(Moved::new(&place("a"), &place("b"), &f, &small), None);
    fs::write(folder.path().join("moved/f"), "longer than before").unwrap();
    let written = root.stat(&rel("moved/f")).unwrap();
    assert_eq!(Moved::new(&place("a"), &place("b"), &f, &written), None);
    let itself = root.stat(&rel("moved")).unwrap();
    assert_eq!(Moved::new(&place("a"), &place("a/b"), &itself, &itself), None);
}

#[test]
fn saved_hints_come_back_and_damaged_ones_do_not() {
    let (folder, root) = scratch();
    let hints = HintStore::new();
    recorded(&hints, &root, home("ann"), b"data");
    let path = folder.path().join("hints");
    hints.save(&path).unwrap();
    assert_eq!(all(&HintStore::load(&path)), all(&hints));
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(HintStore::load(&path).is_empty());
}

/// What a server knows that was killed after the last of these steps, and not saved since the first.
fn after_a_kill(path: &Path, steps: impl FnOnce(&HintStore)) -> Vec<(String, Digest)> {
    let hints = HintStore::load(path);
    steps(&hints);
    // Nothing of it is saved.
    drop(hints);
    let known = all(&HintStore::load(path));
    let told = known
        .into_iter()
        .map(|hint| (hint.place.path.to_string(), hint.digest));
    told.collect()
}

#[test]
fn what_became_of_large_files_since_they_were_saved_is_known_after_a_kill() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("d/small", "1")]);
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("hints");
    let stamp = root.stat(&rel("d/small")).unwrap().stamp;
    let place = |path: &str| Place {
        space: home("ann"),
        path: rel(path),
    };
    let hint = |path: &str, content: &str| Hint {
        place: place(path),
        stamp,
        digest: Digest::of(content.as_bytes()),
    };
    let known = |paths: &[(&str, &str)]| -> Vec<(String, Digest)> {
        let one = |(path, content): &(&str, &str)| ((*path).to_owned(), Digest::of(content.as_bytes()));
        paths.iter().map(one).collect()
    };
    let hints = HintStore::load(&path);
    for name in ["d/a", "d/b", "d/c", "e", "f"] {
        hints.record(hint(name, "saved"));
    }
    hints.save(&path).unwrap();
    drop(hints);
    let found = after_a_kill(&path, |hints| {
        hints.record(hint("d/a", "replaced"));
        hints.forget(&place("d/b"));
        hints.note(&place(""), &[unpacked("d/small", &root)]).unwrap();
        let renamed = Moved {
            from: place("d"),
            to: place("e"),
            file: None,
        };
        hints.moved(&renamed);
        hints.record(hint("d/new", "new"));
        hints.forget_below(&place("f"));
    });
    let expected = known(&[
        ("d/new", "new"),
        ("e/a", "replaced"),
        ("e/c", "saved"),
        ("e/small", "d/small"),
    ]);
    assert_eq!(found, expected);
    // A large file that a small one replaces, and what is known once more.
    let found = after_a_kill(&path, |hints| {
        hints.record(hint("d/small", "large"));
        hints.note(&place(""), &[unpacked("d/small", &root)]).unwrap();
        hints.forget_below(&place("e"));
        hints.record(hint("e", "file"));
    });
    assert_eq!(
        found,
        known(&[("d/new", "new"), ("e", "file"), ("d/small", "d/small")])
    );
}

#[test]
fn a_log_that_was_written_anew_has_what_came_after_the_mark() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("hints");
    let (folder, root) = scratch();
    plant(folder.path(), &[("f", "1")]);
    let stamp = root.stat(&rel("f")).unwrap().stamp;
    let hint = |name: &str, content: u64| Hint {
        place: Place {
            space: home("ann"),
            path: rel(name),
        },
        stamp,
        digest: Digest::of(&content.to_le_bytes()),
    };
    let hints = HintStore::load(&path);
    let log = path.with_extension("small");
    hints.record(hint("kept", 0));
    let long = "n".repeat(200);
    for content in 0.. {
        hints.record(hint(&long, content));
        if fs::metadata(&log).unwrap().len() > 5 << 20 {
            break;
        }
    }
    // As in a save during which others go on.
    let (saved, mark) = hints.marked().unwrap();
    let mark = mark.unwrap();
    let body = serde_json::to_vec(&Saved {
        mark: Some(mark.name.clone()),
        hints: saved,
    });
    hints.forget(&hint(&long, 0).place);
    hints.record(hint("new", 7));
    sealed::write(&path, MAGIC, &body.unwrap()).unwrap();
    hints.notes.as_ref().unwrap().compact(&mark).unwrap();
    assert!(fs::metadata(&log).unwrap().len() < 1000);
    hints.record(hint("newer", 8));
    drop(hints);
    let expected = [hint("kept", 0), hint("new", 7), hint("newer", 8)];
    assert_eq!(all(&HintStore::load(&path)), expected);
    // What is lost with the saved ones is what was saved.
    fs::remove_file(&path).unwrap();
    assert_eq!(all(&HintStore::load(&path)), expected[1..]);
}
