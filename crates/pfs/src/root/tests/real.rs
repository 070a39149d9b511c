//! Resolves paths through links, and refuses protected paths however they are reached.

use std::fs;
use std::os::unix::fs::symlink;

use super::super::*;
use crate::pack::StagedTree;
use crate::store::OpenSpace;
use crate::testing::{picture, plant, rel, scratch};

/// A home as the server creates it: a package's name is a chain of links.
fn home() -> (tempfile::TempDir, Root) {
    let (folder, root) = scratch();
    let nodes = [
        (".kept/runs/one/pkg/train.py", "one"),
        (".kept/runs/two/pkg/train.py", "two"),
        (".kept/latest/pkg -> ../runs/one/pkg", ""),
        ("pkg -> .kept/latest/pkg", ""),
        ("own/file", "own"),
        ("all -> .", ""),
        ("own/up -> ../all/.kept", ""),
        ("nowhere -> gone/for/good", ""),
        ("out -> ../elsewhere", ""),
        ("root -> /etc", ""),
        ("ring -> ring", ""),
    ];
    plant(folder.path(), &nodes);
    (folder, root)
}

#[test]
fn a_path_is_resolved_without_links() {
    let (_folder, root) = home();
    let real = |path: &str| root.real_place(&rel(path)).map(|path| path.to_string());
    for (path, place) in [
        ("own/file", "own/file"),
        ("own/new/deep", "own/new/deep"),
        ("pkg", "pkg"),
        ("pkg/train.py", ".kept/runs/one/pkg/train.py"),
        ("all/own/new", "own/new"),
        ("all/all/.kept", ".kept"),
        ("own/up/runs/one", ".kept/runs/one"),
        ("all/.kept/latest/pkg/output/new", ".kept/runs/one/pkg/output/new"),
    ] {
        assert_eq!(real(path).unwrap(), place, "{path}");
    }
    for path in ["nowhere/x", "out/x", "root/passwd", "ring/x"] {
        assert!(real(path).is_err(), "{path}");
    }
    let walking = root.clone().walking();
    assert!(
        walking.real_place(&rel("pkg/train.py")).is_err(),
        "it follows none"
    );
}

#[test]
fn protected_paths_cannot_be_changed_through_any_path() {
    let (folder, root) = home();
    let guarded = root.protecting(vec![rel(".kept")]);
    let before = picture(folder.path());
    for path in [
        "pkg/new",
        "pkg/train.py",
        "all/.kept",
        "own/up/new",
        ".kept/new",
        "all/.kept/runs/new",
    ] {
        let path = rel(path);
        let tries = [
            guarded.write_file(&path, b"x", Existing::Replace),
            guarded.make_link(&path, &"x".parse().unwrap()),
            guarded.publish_link(&"x".parse().unwrap(), &path, Existing::Replace),
            guarded.rename(&rel("own/file"), &path, Existing::Replace),
            guarded
                .copy_all(&rel("own/file"), &guarded, &path, Existing::Replace)
                .map(drop),
        ];
        for tried in tries {
            assert!(matches!(tried, Err(RootError::Protected(_))), "{path}: {tried:?}");
        }
    }
    for path in ["pkg/train.py", "all/.kept", "all/.kept/runs/one", "own/up/latest"] {
        let path = rel(path);
        for tried in [
            guarded.remove_all(&path),
            guarded.rename(&path, &rel("taken"), Existing::Keep),
        ] {
            assert!(matches!(tried, Err(RootError::Protected(_))), "{path}: {tried:?}");
        }
    }
    for path in ["pkg", "pkg/new", "own/up/runs"] {
        let copied = guarded.copy_all(&rel("own"), &guarded, &rel(path), Existing::Replace);
        assert!(
            matches!(copied, Err(RootError::Protected(_))),
            "{path}: {copied:?}"
        );
    }
    let made = guarded.make_dirs(&rel("pkg/output"));
    assert!(matches!(made, Err(RootError::Protected(_))), "{made:?}");
    assert_eq!(picture(folder.path()), before);
}

#[test]
fn reading_protected_paths_and_writing_own_files_still_works() {
    let (folder, root) = home();
    let guarded = root.protecting(vec![rel(".kept")]);
    guarded
        .copy_all(&rel("pkg"), &guarded, &rel("copy"), Existing::Keep)
        .unwrap();
    assert_eq!(fs::read(folder.path().join("copy/train.py")).unwrap(), b"one");
    guarded.make_dirs(&rel("pkg")).unwrap();
    guarded
        .write_file(&rel("all/own/new"), b"x", Existing::Keep)
        .unwrap();
    guarded.make_dirs(&rel("all/own/deep/er")).unwrap();
    guarded
        .rename(&rel("pkg"), &rel("other"), Existing::Keep)
        .unwrap();
    guarded.remove_all(&rel("other")).unwrap();
    assert!(folder.path().join(".kept/runs/one/pkg/train.py").exists());
    let ended = guarded.protecting_all_but(rel(".kept/runs/one"));
    ended.remove_all(&rel("all/.kept/runs/one/pkg")).unwrap();
    let other = ended.remove_all(&rel("own/up/runs/two"));
    assert!(matches!(other, Err(RootError::Protected(_))), "{other:?}");
}

#[test]
fn a_merge_does_not_follow_a_link_into_protected_paths() {
    let (folder, root) = home();
    let guarded = root.protecting(vec![rel(".kept")]);
    let staged = StagedTree::create(&guarded).unwrap();
    let tree = staged.tree().clone().with_durability(Durability::Relaxed);
    for path in ["pkg/train.py", "all/.kept/new", "all/own/new"] {
        tree.make_dirs(&rel(path).parent().unwrap()).unwrap();
        tree.write_file(&rel(path), b"new", Existing::Keep).unwrap();
    }
    let space = OpenSpace::Folder(guarded);
    let merged = space.merge(staged, &RelPath::root(), Existing::Replace).unwrap();
    let mut failed: Vec<String> = merged.failed.iter().map(|(path, _)| path.to_string()).collect();
    failed.sort();
    assert_eq!(failed, ["all/.kept", "pkg/train.py"]);
    assert_eq!(fs::read(folder.path().join("own/new")).unwrap(), b"new");
    let script = folder.path().join(".kept/runs/one/pkg/train.py");
    assert_eq!(fs::read(script).unwrap(), b"one");
}

#[test]
fn a_link_changed_concurrently_does_not_reach_protected_paths() {
    let (folder, root) = home();
    let guarded = root.protecting(vec![rel(".kept")]);
    let (link, fresh) = (folder.path().join("d"), folder.path().join("fresh"));
    symlink("own", &link).unwrap();
    std::thread::scope(|scope| {
        let flipping = scope.spawn(|| {
            for target in [".kept/runs/one/pkg", "own"].iter().cycle().take(2000) {
                symlink(target, &fresh).unwrap();
                fs::rename(&fresh, &link).unwrap();
            }
        });
        while !flipping.is_finished() {
            // The write may fail; it only must not reach the target.
            let _ = guarded.write_file(&rel("d/planted"), b"x", Existing::Replace);
        }
    });
    assert!(!folder.path().join(".kept/runs/one/pkg/planted").exists());
}

#[test]
fn a_folder_is_not_put_into_itself_behind_a_link() {
    let (folder, root) = home();
    symlink("own", folder.path().join("l")).unwrap();
    plant(folder.path(), &[("own/sub/deep/", "")]);
    let before = picture(folder.path());
    for (from, to) in [
        ("all", "copy"),
        ("own", "l/copy"),
        ("l", "own/sub/copy"),
        ("own", "l"),
        ("own", "all/own/sub"),
    ] {
        let copied = root.copy_all(&rel(from), &root, &rel(to), Existing::Replace);
        assert!(
            matches!(copied, Err(RootError::IntoItself { .. })),
            "{from} {to}: {copied:?}"
        );
    }
    for (from, to) in [
        ("own", "l/new"),
        ("own", "all/own/sub/new"),
        ("own", "l/sub/deep/new"),
    ] {
        for existing in [Existing::Keep, Existing::Replace] {
            let moved = root.rename(&rel(from), &rel(to), existing);
            assert!(
                matches!(moved, Err(RootError::IntoItself { .. })),
                "{from} {to}: {moved:?}"
            );
        }
    }
    assert_eq!(picture(folder.path()), before);
    root.copy_all(&rel("own"), &root, &rel("all/other"), Existing::Keep)
        .unwrap();
    root.rename(&rel("all/own"), &rel("other/own"), Existing::Keep)
        .unwrap();
    assert!(folder.path().join("other/own/file").exists());
}

#[test]
fn the_staging_folder_is_hidden_behind_a_link_too() {
    let (_folder, root) = home();
    let _staged = StagedTree::create(&root).unwrap();
    let names = |folder: &str| {
        let walked = root.walk(&rel(folder)).flatten();
        let listed = root.list(&rel(folder)).unwrap().into_iter();
        let both: Vec<DirEntry> = listed.chain(walked).collect();
        both.iter()
            .filter(|entry| entry.path.name() == Some(STAGING.as_bytes()))
            .count()
    };
    assert_eq!((names("all"), names("all/all")), (0, 0));
}
