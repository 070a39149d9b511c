//! Nothing leaves a root: neither by text, nor by links, nor by links swapped concurrently.

mod mounted;
mod real;
mod unix;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::quota::Amount;
use crate::relpath::RelPathError;
use crate::testing::{leftovers, picture, plant, rel, scratch};

const SECRET: &str = "another user's secret";

/// `inside/` is the root; `outside/` must never be read or changed.
fn confined() -> (TempDir, [Root; 2]) {
    let folder = tempfile::tempdir().unwrap();
    plant(
        folder.path(),
        &[
            ("inside/own", "own"),
            ("inside/dir/file", "own"),
            ("outside/secret", SECRET),
        ],
    );
    let root = Root::open(folder.path().join("inside"))
        .unwrap()
        .with_durability(Durability::Relaxed);
    (folder, [root.clone(), root.walking()])
}

fn read(root: &Root, path: &RelPath) -> Result<String, RootError> {
    let (mut file, _) = root.open_file(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| RootError::io("read", path, error))?;
    Ok(text)
}

#[test]
fn only_who_creates_a_folder_is_told_that_it_is_new() {
    let (_folder, roots) = confined();
    for (root, name) in roots.iter().zip(["one", "other"]) {
        let made = |path: &str| root.make_folder(&rel(path)).unwrap();
        assert_eq!(made(&format!("{name}/a/b")), Made::New);
        assert_eq!(made(&format!("{name}/a/b")), Made::Existed);
        assert_eq!(made(&format!("{name}/a")), Made::Existed);
        assert_eq!(made(&format!("{name}/a/c")), Made::New);
        assert_eq!(made("dir"), Made::Existed);
    }
}

#[test]
fn stat_many_reports_paths_in_present_and_missing_folders() {
    let (folder, roots) = confined();
    plant(folder.path(), &[("inside/lost2/file", "beside an absent folder")]);
    let paths = [
        "dir/file",
        "dir/none",
        "lost/a",
        "lost/b/c",
        "lost2/file",
        "own",
        "own/below",
    ];
    let paths: Vec<RelPath> = paths.iter().map(|path| rel(path)).collect();
    for root in roots {
        let found = root.stat_many(&paths).unwrap();
        let there: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(there, [true, false, false, false, true, true, false]);
    }
}

#[test]
fn links_to_the_outside_are_not_followed() {
    let (folder, roots) = confined();
    let inside = folder.path().join("inside");
    symlink("../outside", inside.join("up")).unwrap();
    symlink(folder.path().join("outside"), inside.join("absolute")).unwrap();
    symlink("/proc/self/root", inside.join("magic")).unwrap();
    symlink("../outside/secret", inside.join("file")).unwrap();
    let before = picture(&folder.path().join("outside"));
    for root in &roots {
        for path in ["up/secret", "absolute/secret", "file", "magic/etc/passwd"] {
            let path = rel(path);
            assert!(read(root, &path).is_err(), "{path}");
            assert!(root.stat(&path).is_err(), "{path}");
            assert!(
                root.copy_file(&path, root, &rel("copy"), Existing::Replace)
                    .is_err(),
                "{path}"
            );
        }
        for path in ["up/new", "absolute/new", "magic/tmp/new"] {
            let path = rel(path);
            assert!(root.write_file(&path, b"x", Existing::Replace).is_err(), "{path}");
            assert!(root.make_dirs(&path).is_err(), "{path}");
            assert!(
                root.remove(&path).is_err() && root.remove_all(&path).is_err(),
                "{path}"
            );
            assert!(
                root.rename(&rel("own"), &path, Existing::Replace).is_err(),
                "{path}"
            );
            assert!(root.make_link(&path, &"x".parse().unwrap()).is_err(), "{path}");
        }
        assert!(root.list(&rel("up")).is_err());
        assert!(root.descend(&rel("up")).is_err());
    }
    assert_eq!(picture(&folder.path().join("outside")), before);
}

#[test]
fn links_that_stay_inside_are_followed_for_reading() {
    let (folder, [root, _]) = confined();
    plant(
        &folder.path().join("inside"),
        &[("near -> dir/file", ""), ("dir/back -> ../own", "")],
    );
    assert_eq!(read(&root, &rel("near")).unwrap(), "own");
    assert_eq!(read(&root, &rel("dir/back")).unwrap(), "own");
    assert!(root.stat(&rel("near")).unwrap().is_file());
    assert!(matches!(
        root.stat_link(&rel("near")).unwrap().kind,
        Kind::Symlink(_)
    ));
    assert!(matches!(
        root.open_file_no_links(&rel("near")),
        Err(RootError::ThroughLink(_))
    ));
}

#[test]
fn removing_or_replacing_a_link_keeps_its_target() {
    let (folder, roots) = confined();
    for root in &roots {
        plant(
            &folder.path().join("inside"),
            &[("l -> dir", ""), ("m -> own", "")],
        );
        root.remove_all(&rel("l")).unwrap();
        root.write_file(&rel("m"), b"new", Existing::Replace).unwrap();
        assert_eq!(read(root, &rel("m")).unwrap(), "new");
        assert_eq!(read(root, &rel("own")).unwrap(), "own");
        assert_eq!(read(root, &rel("dir/file")).unwrap(), "own");
        root.remove(&rel("m")).unwrap();
    }
}

#[test]
fn pipes_do_not_block_a_reader() {
    let (folder, roots) = confined();
    let pipe = folder.path().join("inside/pipe");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for root in &roots {
        assert!(matches!(
            root.open_file(&rel("pipe")),
            Err(RootError::NotAFile(_))
        ));
    }
}

/// Stops the other thread even if this one fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another thread swaps a folder for a link to the outside as fast as it can; no operation follows the link.
#[test]
fn a_link_swapped_in_concurrently_is_not_followed() {
    const ROUNDS: usize = 1500;
    let (folder, roots) = confined();
    let inside = folder.path().join("inside");
    symlink("../outside", inside.join("trap")).unwrap();
    let before = picture(&folder.path().join("outside"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            let cwd = rustix::fs::CWD;
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                // Fails while the other thread has moved the folder; then the loop retries.
                let _ = rustix::fs::renameat_with(cwd, inside.join("dir"), cwd, inside.join("trap"), flags);
                std::thread::yield_now();
            }
        });
        for round in 0..ROUNDS {
            let root = &roots[round % 2];
            if let Ok(text) = read(root, &rel("dir/secret")) {
                panic!("read {text}");
            }
            let _ = root.write_file(&rel("dir/new"), b"x", Existing::Replace);
            let _ = root.make_dirs(&rel("dir/sub/deeper"));
            let _ = root.rename(&rel("dir/new"), &rel("dir/newer"), Existing::Keep);
            let _ = root.remove(&rel("dir/newer"));
            let _ = root.copy_all(&rel("dir"), root, &rel("copy"), Existing::Replace);
            let _ = root.remove_all(&rel("dir/sub"));
            for entry in root.walk(&rel("dir")).flatten() {
                assert_ne!(entry.path, rel("dir/secret"));
            }
            assert!(read(root, &rel("copy/secret")).is_err());
        }
    });
    assert_eq!(picture(&folder.path().join("outside")), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Random paths in a tree full of traps only read the root's own files.
    #[test]
    fn random_paths_never_reach_the_outside(
        parts in proptest::collection::vec("(dir|own|up|abs|loop|here|deep|secret|outside|inside|%2e%2e|\u{2025})", 1..7),
    ) {
        let (folder, roots) = confined();
        let inside = folder.path().join("inside");
        let traps = [("up -> ..", ""), ("loop -> loop", ""), ("here -> .", ""), ("dir/up -> ../..", ""), ("deep/up -> ../here/../..", "")];
        plant(&inside, &traps);
        symlink(folder.path(), inside.join("abs")).unwrap();
        let path = rel(&parts.join("/"));
        for root in &roots {
            prop_assert!(read(root, &path).map_or(true, |text| text != SECRET));
            let _ = root.write_file(&path, b"overwritten", Existing::Replace);
            let _ = root.remove_all(&path);
        }
        prop_assert_eq!(fs::read_to_string(folder.path().join("outside/secret")).unwrap(), SECRET);
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_staged_file_is_seen_whole_or_not_at_all() {
    let (folder, root) = scratch();
    let mut staged = root.stage_file(FileAttributes::default()).unwrap();
    staged.write_all(b"half").unwrap();
    assert!(
        root.list(&RelPath::root()).unwrap().is_empty(),
        "staging is hidden"
    );
    assert!(!root.exists(&rel("a")).unwrap());
    staged.publish(&rel("a"), Existing::Keep).unwrap();
    assert_eq!(leftovers(folder.path()), ["a"]);

    let mut dropped = root.stage_file(FileAttributes::default()).unwrap();
    dropped.write_all(b"never").unwrap();
    drop(dropped);
    assert_eq!(leftovers(folder.path()), ["a"]);
}

/// A reader that keeps reopening the file sees one complete version or the other.
#[test]
fn readers_see_the_old_file_or_the_new_one() {
    let (_folder, root) = scratch();
    let versions = ["a".repeat(100_000), "b".repeat(50_000)];
    root.write_file(&rel("f"), versions[0].as_bytes(), Existing::Replace)
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopOnDrop(&stop);
            for round in 0..300 {
                root.write_file(&rel("f"), versions[round % 2].as_bytes(), Existing::Replace)
                    .unwrap();
            }
        });
        while !stop.load(Ordering::Relaxed) {
            let text = read(&root, &rel("f")).unwrap();
            assert!(versions.contains(&text), "{} bytes", text.len());
        }
    });
}

#[test]
fn one_of_several_concurrent_creators_wins() {
    let (folder, root) = scratch();
    let won = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| root.write_file(&rel("f"), b"x", Existing::Keep).is_ok()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|won| *won)
            .count()
    });
    assert_eq!(won, 1);
    assert_eq!(leftovers(folder.path()), ["f"]);
}

#[test]
fn attributes_are_kept() {
    let (_folder, root) = scratch();
    let mtime = Mtime::new(1_234_567, 890);
    let staged = root
        .stage_file(FileAttributes {
            executable: true,
            mtime: Some(mtime),
        })
        .unwrap();
    staged.publish(&rel("f"), Existing::Keep).unwrap();
    root.copy_file(&rel("f"), &root, &rel("g"), Existing::Keep)
        .unwrap();
    for name in ["f", "g"] {
        let meta = root.stat(&rel(name)).unwrap();
        assert!(meta.executable && meta.mtime == mtime, "{name}: {meta:?}");
    }
}

/// Copies `f` to `copy` in two halves and calls `between` with the number of the attempt. Returns the number of attempts.
fn copy_in_halves(root: &Root, between: impl Fn(usize)) -> (Result<Amount, RootError>, usize) {
    let tries = std::cell::Cell::new(0);
    let in_halves = |source: &File, target: &File, size: u64| {
        tries.set(tries.get() + 1);
        let half = copy::copy_range(source, 0, target, 0, size / 2)?;
        between(tries.get());
        Ok(half + copy::copy_range(source, half, target, half, size - half)?)
    };
    let copied = root.copy_file_by(in_halves, &rel("f"), root, &rel("copy"), Existing::Replace);
    (copied, tries.get())
}

#[test]
fn copying_a_changing_file_is_retried_and_then_fails() {
    for (changes, is_copied) in [(0, true), (2, true), (3, false)] {
        let (folder, root) = scratch();
        plant(folder.path(), &[("f", "one one"), ("copy", "earlier")]);
        let rewrite = |number: usize| {
            if number <= changes {
                let mut file = File::options().write(true).open(folder.path().join("f")).unwrap();
                file.write_all(b"two two").unwrap();
                // File system clocks are coarse; this simulates a tick.
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
                file.set_modified(time).unwrap();
            }
        };
        let (copied, tries) = copy_in_halves(&root, rewrite);
        assert_eq!(tries, 3.min(changes + 1));
        let there = match (is_copied, changes) {
            (false, _) => "earlier",
            (true, 0) => "one one",
            (true, _) => "two two",
        };
        assert_eq!(fs::read_to_string(folder.path().join("copy")).unwrap(), there);
        assert_eq!(copied.is_ok(), is_copied);
        assert!(is_copied || matches!(copied, Err(RootError::Changing(_))));
        assert_eq!(leftovers(folder.path()), ["copy", "f"]);
    }
}

#[test]
fn a_file_replaced_or_removed_during_a_copy_is_copied_as_opened() {
    let (folder, root) = scratch();
    let at = |name: &str| folder.path().join(name);
    plant(folder.path(), &[("f", "one one")]);
    let before = root.stat(&rel("f")).unwrap().stamp.ctime;
    wait_until_the_clock_ticked(&root, before);
    let replace = |_| fs::rename(at("new"), at("f")).unwrap();
    let (copied, tries) = copy_in_halves(&root, replace);
    assert_eq!((copied.unwrap().files, tries), (1, 1));
    let (copied, tries) = copy_in_halves(&root, |_| fs::remove_file(at("f")).unwrap());
    assert_eq!((copied.unwrap().files, tries), (1, 1));
    assert_eq!(fs::read_to_string(at("copy")).unwrap(), "new");
}

/// Writes the file `new` until it has a later ctime than `since`.
fn wait_until_the_clock_ticked(root: &Root, since: Mtime) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        root.write_file(&rel("new"), b"new", Existing::Replace).unwrap();
        if root.stat(&rel("new")).unwrap().stamp.ctime > since {
            return;
        }
        assert!(
            std::time::Instant::now() < until,
            "the clock of the files stands still"
        );
        std::thread::yield_now();
    }
}

#[test]
fn errors_name_the_cause() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("d/f", "x"), ("f", "")]);
    assert!(matches!(root.stat(&rel("no")), Err(RootError::NotFound(_))));
    assert!(matches!(root.list(&rel("f")), Err(RootError::NotAFolder(_))));
    assert!(matches!(root.stat(&rel("f/x")), Err(RootError::NotAFolder(_))));
    assert!(matches!(root.open_file(&rel("d")), Err(RootError::IsAFolder(_))));
    assert!(matches!(root.remove(&rel("d")), Err(RootError::NotEmpty(_))));
    assert!(matches!(
        root.write_file(&rel("d"), b"", Existing::Replace),
        Err(RootError::IsAFolder(_))
    ));
    assert!(matches!(
        root.write_file(&rel("no/f"), b"", Existing::Replace),
        Err(RootError::NotFound(_))
    ));
    assert!(matches!(
        root.rename(&rel("d"), &rel("d/e"), Existing::Keep),
        Err(RootError::IntoItself { .. })
    ));
    assert!(matches!(
        root.rename(&rel("d"), &rel("f"), Existing::Keep),
        Err(RootError::Exists(_))
    ));
    assert!(matches!(
        root.copy_all(&rel("d"), &root, &rel("d/e"), Existing::Keep),
        Err(RootError::IntoItself { .. })
    ));
    assert!(matches!(
        root.remove_all(&RelPath::root()),
        Err(RootError::IsAFolder(_))
    ));
}

#[test]
fn trees_are_listed_measured_copied_moved_and_removed() {
    let (folder, root) = scratch();
    plant(
        folder.path(),
        &[
            ("t/a/x", "123"),
            ("t/a.b", "45"),
            ("t/z -> a/x", ""),
            ("t/empty/", ""),
        ],
    );
    let listed: Vec<String> = root
        .walk(&rel("t"))
        .map(|entry| entry.unwrap().path.to_string())
        .collect();
    assert_eq!(listed, ["t/a", "t/a/x", "t/a.b", "t/empty", "t/z"]);
    assert_eq!(
        root.usage(&rel("t")).unwrap(),
        Usage {
            bytes: 5,
            files: 3,
            folders: 2,
            unread: 0
        }
    );

    let copied = root
        .copy_all(&rel("t"), &root, &rel("u/v"), Existing::Keep)
        .unwrap();
    assert_eq!(copied, Amount { bytes: 5, files: 3 });
    assert_eq!(
        picture(&folder.path().join("u/v/a")),
        picture(&folder.path().join("t/a"))
    );

    root.rename(&rel("u/v"), &rel("w"), Existing::Keep).unwrap();
    assert_eq!(root.usage(&rel("w")).unwrap().files, 3);
    root.remove_all(&rel("w")).unwrap();
    root.remove_all(&rel("u")).unwrap();
    root.remove_all(&rel("t")).unwrap();
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}

#[test]
fn a_walk_follows_only_the_link_it_starts_at() {
    let (folder, root) = scratch();
    plant(
        folder.path(),
        &[
            ("real/a/b/f", "x"),
            ("real/a/other -> ../../elsewhere", ""),
            ("elsewhere/g", "y"),
            ("runs/latest -> ../real", ""),
        ],
    );
    let found: Vec<RelPath> = root
        .walk(&rel("runs/latest"))
        .map(|entry| entry.unwrap().path)
        .collect();
    let expected = ["a", "a/b", "a/b/f", "a/other"].map(|name| rel(&format!("runs/latest/{name}")));
    assert_eq!(found, expected);
}

/// A folder too deep to be named counts as unreadable, even for root.
#[test]
fn a_walk_continues_after_an_unreadable_folder() {
    let (folder, root) = scratch();
    plant(folder.path(), &[("z", "")]);
    let long = "n".repeat(250);
    let mut here = root.open_dir(&RelPath::root()).unwrap();
    for _ in 0..20 {
        rustix::fs::mkdirat(&here, long.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        here = rustix::fs::openat(&here, long.as_str(), FOLDER | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    let (found, failed): (Vec<_>, Vec<_>) = root.walk(&RelPath::root()).partition(Result::is_ok);
    assert!(failed.len() == 1 && matches!(failed[0], Err(RootError::TooLong(_))));
    assert_eq!(found.last().unwrap().as_ref().unwrap().path, rel("z"));
    root.remove_all(&rel(&long)).unwrap();
}

#[test]
fn patterns_are_expanded_inside() {
    let (folder, root) = scratch();
    plant(
        folder.path(),
        &[
            ("d/a.rio", ""),
            ("d/b.rio", ""),
            ("d/c.txt", ""),
            ("d/.hid.rio", ""),
            ("d/s/e.rio", ""),
        ],
    );
    plant(folder.path(), &[("out -> /etc", ""), ("[x]", "")]);
    let found = |pattern: &str| -> Vec<String> {
        let pattern = GlobPattern::parse(pattern).unwrap();
        root.glob(&pattern)
            .unwrap()
            .into_iter()
            .map(|entry| entry.path.to_string())
            .collect()
    };
    assert_eq!(found("d/*.rio"), ["d/a.rio", "d/b.rio"]);
    assert_eq!(found("d/.*.rio"), ["d/.hid.rio"]);
    assert_eq!(found("d/**/*.rio"), ["d/a.rio", "d/b.rio", "d/s/e.rio"]);
    assert_eq!(found("d/{a,c}.*"), ["d/a.rio", "d/c.txt"]);
    assert_eq!(found("*/[ab].rio"), ["d/a.rio", "d/b.rio"]);
    assert_eq!(found("d/c.txt"), ["d/c.txt"]);
    assert_eq!(found("out/*"), Vec::<String>::new());
    assert_eq!(found("no/*"), Vec::<String>::new());
    for bad in ["../*", "d/../*", "*/../x", "/etc/*"] {
        assert!(GlobPattern::parse(bad).is_err(), "{bad}");
    }
    assert!(GlobPattern::parse("a[").is_err());
}

#[test]
fn the_deepest_tree_works_and_a_deeper_one_is_refused() {
    let (folder, root) = scratch();
    let deepest = rel(&["d"; 2048].join("/"));
    assert_eq!(deepest.as_bytes().len(), RelPath::MAX_LEN);
    root.make_dirs(&deepest).unwrap();
    let walked: Vec<DirEntry> = root.walk(&RelPath::root()).collect::<Result<_, _>>().unwrap();
    assert_eq!(walked.len(), 2048);
    assert!(matches!(deepest.child(b"x"), Err(RelPathError::TooLong(_))));
    root.remove_all(&rel("d")).unwrap();
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}

/// A job can create a tree deeper than any path; it must be possible to remove it.
#[test]
fn a_tree_deeper_than_any_path_can_be_removed() {
    let (folder, root) = scratch();
    root.make_dirs(&rel("top")).unwrap();
    let mut here = root.open_dir(&rel("top")).unwrap();
    for _ in 0..5000 {
        rustix::fs::mkdirat(&here, "d", Mode::from_raw_mode(0o755)).unwrap();
        here = rustix::fs::openat(&here, "d", FOLDER | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    drop(here);
    assert_eq!(root.usage(&rel("top")).unwrap().folders, 5000);
    let (mut named, mut unnamed) = (0, 0);
    for entry in root.walk(&rel("top")) {
        match entry {
            Ok(_) => named += 1,
            Err(error) => {
                assert!(matches!(error, RootError::TooLong(_)), "{error}");
                unnamed += 1;
            }
        }
    }
    assert!(named > 2000, "what can be named is listed");
    assert_eq!(unnamed, 1, "the rest is reported once");
    root.remove_all(&rel("top")).unwrap();
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}
