//! Trees as jobs leave them (locked, changing, too deep) can still be counted, copied and removed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::process::Uid;

use super::super::*;
use crate::testing::{NOBODY, as_ordinary_user, leftovers, plant, rel, scratch};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn folders_that_their_owner_locked_are_removed_with_the_rest() {
    as_ordinary_user(|folder, root| {
        plant(
            folder,
            &[
                ("t/read-only/a", "1"),
                ("t/read-only/deep/b", "2"),
                ("t/closed/c/d", "3"),
                ("t/open/e", "4"),
            ],
        );
        set_mode(&folder.join("t/read-only/deep"), 0o555);
        set_mode(&folder.join("t/read-only"), 0o555);
        set_mode(&folder.join("t/closed"), 0o000);
        set_mode(&folder.join("t"), 0o555);
        root.remove_all(&rel("t")).unwrap();
        assert_eq!(leftovers(folder), Vec::<String>::new());
    });
}

#[test]
fn unreadable_folders_are_not_counted() {
    as_ordinary_user(|folder, root| {
        plant(
            folder,
            &[
                ("t/a", "12"),
                ("t/closed/b", "345"),
                ("t/d/e/f", "6"),
                ("t/l -> a", ""),
            ],
        );
        set_mode(&folder.join("t/closed"), 0o000);
        let usage = root.usage(&rel("t")).unwrap();
        assert_eq!((usage.bytes, usage.files, usage.folders), (3, 3, 3));
        let (found, lost): (Vec<_>, Vec<_>) = root.walk(&rel("t")).partition(Result::is_ok);
        assert_eq!(found.len(), 5);
        assert!(matches!(&lost[..], [Err(RootError::Denied(path))] if *path == rel("t/closed")));
        set_mode(&folder.join("t/closed"), 0o700);
    });
}

#[test]
#[ignore = "needs root"]
fn an_unremovable_entry_does_not_stop_the_removal_of_others() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("t/a", ""), ("t/theirs/x", ""), ("t/b/c", "")]);
    for path in ["", "t", "t/a", "t/b", "t/b/c"] {
        chown(folder.path().join(path), Some(NOBODY), None).unwrap();
    }
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| {
            let nobody = Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            root.remove_all(&rel("t"))
        });
        let removed = removed.join().unwrap();
        assert!(matches!(removed, Err(RootError::Denied(_))), "{removed:?}");
    });
    let left = leftovers(folder.path());
    assert!(left.iter().any(|name| name.ends_with("/x")), "{left:?}");
    assert!(
        !left
            .iter()
            .any(|name| name.ends_with("/a") || name.ends_with("/c")),
        "{left:?}"
    );
}

#[test]
fn staged_bytes_are_counted_separately() {
    let (folder, root) = scratch();
    assert_eq!(root.staged_usage().unwrap(), Usage::default());
    plant(
        folder.path(),
        &[
            ("a", "1"),
            (".pfs-staging/x", "22"),
            (".pfs-staging/stash/deep/y", "4444"),
            ("d/b", "333"),
        ],
    );
    let usage = root.usage(&RelPath::root()).unwrap();
    assert_eq!((usage.bytes, usage.files, usage.folders), (4, 2, 1));
    let staged = root.staged_usage().unwrap();
    assert_eq!((staged.bytes, staged.files, staged.folders), (6, 2, 2));
}

#[test]
fn usage_counts_a_link_or_its_target() {
    let (folder, root) = scratch();
    plant(
        folder.path(),
        &[("f", "12345"), ("d/a", "1"), ("to-f -> f", ""), ("to-d -> d", "")],
    );
    assert_eq!(root.usage(&rel("to-f")).unwrap().bytes, 0);
    assert_eq!(root.usage_behind(&rel("to-f")).unwrap().bytes, 5);
    assert_eq!(root.usage_behind(&rel("to-d")).unwrap().bytes, 1);
}

#[test]
fn a_folder_is_copied_whole_or_not_at_all() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("t/a", "1"), ("t/d/b", "2"), ("t/l -> a", "")]);
    let copied = root
        .copy_all(&rel("t"), &root, &rel("u/v"), Existing::Replace)
        .unwrap();
    assert_eq!((copied.bytes, copied.files), (2, 3));
    assert_eq!(
        fs::read_link(folder.path().join("u/v/l")).unwrap(),
        Path::new("a")
    );
    assert_eq!(fs::read(folder.path().join("u/v/d/b")).unwrap(), b"2");
    assert!(!folder.path().join(".pfs-staging").exists());
}

#[test]
fn half_a_copy_is_not_seen() {
    as_ordinary_user(|folder, root| {
        plant(folder, &[("t/a", "1"), ("t/z", "2")]);
        set_mode(&folder.join("t/z"), 0o000);
        let copied = root.copy_all(&rel("t"), root, &rel("u"), Existing::Replace);
        assert!(matches!(copied, Err(RootError::Denied(_))), "{copied:?}");
        assert!(!folder.join("u").exists());
        assert!(!folder.join(".pfs-staging").exists());
    });
}

#[test]
fn publishing_a_link_is_atomic_or_keeps_the_existing_file() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("f", "stays")]);
    let target: LinkTarget = "elsewhere".parse().unwrap();
    let kept = root.publish_link(&target, &rel("f"), Existing::Keep);
    assert!(matches!(kept, Err(RootError::Exists(_))), "{kept:?}");
    assert_eq!(leftovers(folder.path()), ["f"]);
    root.publish_link(&target, &rel("f"), Existing::Replace).unwrap();
    assert_eq!(
        fs::read_link(folder.path().join("f")).unwrap(),
        Path::new("elsewhere")
    );
}

#[test]
fn a_pattern_enters_only_folders_that_match_so_far_and_a_locked_one_hides_only_itself() {
    as_ordinary_user(|folder, root| {
        plant(
            folder,
            &[
                ("t/d1/x", "1"),
                ("t/d2/x", "2"),
                ("t/d2/.hidden/x", ""),
                ("t/other/x", "3"),
                ("t/other/deep/x", "4"),
            ],
        );
        let entered = |pattern: &str| {
            let pattern = GlobPattern::parse(pattern).unwrap();
            let entered = std::cell::RefCell::new(Vec::new());
            let found = pattern.expand(
                |path| root.stat_link(path),
                |path| {
                    entered.borrow_mut().push(path.to_string());
                    root.list(path)
                },
            );
            let found: Vec<String> = found
                .unwrap()
                .iter()
                .map(|entry| entry.path.to_string())
                .collect();
            let mut entered = entered.into_inner();
            entered.sort();
            (found, entered)
        };
        let strings = |paths: &[&str]| paths.iter().map(|path| path.to_string()).collect::<Vec<_>>();
        let both = strings(&["t/d1/x", "t/d2/x"]);
        assert_eq!(entered("t/d*/x"), (both.clone(), strings(&["t", "t/d1", "t/d2"])));
        assert_eq!(
            entered("t/d[12]/*"),
            (both.clone(), strings(&["t", "t/d1", "t/d2"]))
        );
        assert_eq!(entered("t/{d1,other/deep}/x").0, ["t/d1/x", "t/other/deep/x"]);
        assert_eq!(entered("t/o*/**/x").1, ["t", "t/other", "t/other/deep"]);
        assert_eq!(entered("t/d*/.*/x").0, ["t/d2/.hidden/x"]);

        set_mode(&folder.join("t/d1"), 0o000);
        set_mode(&folder.join("t/other"), 0o000);
        assert_eq!(entered("t/d*/x").0, ["t/d2/x"]);
        assert_eq!(entered("t/**/x").0, ["t/d2/x"]);
        let asked_for = root.glob(&GlobPattern::parse("t/other/*").unwrap());
        assert!(matches!(asked_for, Err(RootError::Denied(_))), "{asked_for:?}");
        for locked in ["t/d1", "t/other"] {
            set_mode(&folder.join(locked), 0o700);
        }
    });
}
