//! Tests that need their own file system: no space for another name, mount points, shared extents.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::tree::raw_names;
use super::super::*;
use crate::testing::{leftovers, plant, rel, scratch};

/// A file system that is unmounted on drop, wherever below its folder it is by then.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn tmpfs(below: &'a Path, at: &Path, options: &str) -> Self {
        Self::with(below, &["-t", "tmpfs", "-o", options, "tmpfs"], at)
    }

    /// xfs supports shared extents.
    fn xfs(below: &'a Path, at: &Path) -> Self {
        let image = below.join("image");
        fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        let made = Command::new("mkfs.xfs").arg("-q").arg(&image).output();
        assert!(made.is_ok_and(|output| output.status.success()));
        let image = image.to_str().expect("a temporary folder has a plain name");
        Self::with(below, &["-o", "loop", image], at)
    }

    fn with(below: &'a Path, words: &[&str], at: &Path) -> Self {
        let mounted = Command::new("mount").args(words).arg(at).output();
        assert!(mounted.is_ok_and(|output| output.status.success()));
        Self(below)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| Path::new(point).starts_with(self.0)) {
            let _ = Command::new("umount").arg("-l").arg(point).status();
        }
    }
}

/// Subfolders, some nested and some side by side.
fn plant_tree(folder: &Path) {
    plant(
        folder,
        &[
            ("a/b/c/d/e/f", "deep"),
            ("a/b/beside/g", ""),
            ("a/file", "x"),
            ("empty/", ""),
            ("z -> a/file", ""),
        ],
    );
}

#[test]
#[ignore = "needs permission to mount"]
fn a_tree_can_be_removed_when_no_inode_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let _mount = Mount::tmpfs(folder.path(), folder.path(), "size=1m,nr_inodes=60");
    plant_tree(&folder.path().join("d/t"));
    plant(folder.path(), &[("d/stays", "")]);
    let root = Root::open(folder.path()).unwrap();
    let full = (0..).find(|number| fs::write(folder.path().join(format!("full-{number}")), "").is_err());
    assert!(full.is_some_and(|number| number > 10));
    let staged = root.stage_file(FileAttributes::default());
    assert!(matches!(staged, Err(RootError::NoSpace(_))), "{staged:?}");
    root.remove_all(&rel("d/t")).unwrap();
    assert_eq!(leftovers(&folder.path().join("d")), ["stays"]);
    root.stage_file(FileAttributes::default()).unwrap();
}

#[test]
#[ignore = "needs permission to mount"]
fn removing_a_mount_point_removes_its_contents_only() {
    let (folder, root) = scratch();
    fs::create_dir_all(folder.path().join("home/mounted")).unwrap();
    let at = folder.path().join("home/mounted");
    let _mount = Mount::tmpfs(folder.path(), &at, "size=1m");
    plant_tree(&at);
    let removed = root.remove_all(&rel("home/mounted"));
    assert!(matches!(removed, Err(RootError::Io { .. })), "{removed:?}");
    assert_eq!(leftovers(folder.path()), ["home", "home/mounted"]);
}

#[test]
#[ignore = "needs permission to mount"]
fn removing_a_tree_leaves_only_its_mount_point() {
    let (folder, root) = scratch();
    plant_tree(&folder.path().join("t"));
    let at = folder.path().join("t/a/b/mounted");
    fs::create_dir(&at).unwrap();
    let _mount = Mount::tmpfs(folder.path(), &at, "size=1m");
    plant_tree(&at);
    let mounted = fs::File::open(&at).unwrap();
    assert!(root.remove_all(&rel("t")).is_err());
    assert!(
        !folder.path().join("t").exists(),
        "nobody sees what is left of it"
    );
    let left = raw_names(&mounted.into()).unwrap();
    assert_eq!(left, [], "what was mounted is empty");
}

#[test]
#[ignore = "needs permission to mount"]
fn a_tree_deeper_than_any_path_is_removed_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let _mount = Mount::tmpfs(folder.path(), folder.path(), "size=64m,nr_inodes=3010");
    let root = Root::open(folder.path()).unwrap();
    root.make_dirs(&rel("top")).unwrap();
    let mut here = root.open_dir(&rel("top")).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&here, "d", Mode::from_raw_mode(0o755)).unwrap();
        here = rustix::fs::openat(&here, "d", FOLDER | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    drop(here);
    while let Ok(()) = fs::write(folder.path().join(fresh_name()), "") {}
    root.remove_all(&rel("top")).unwrap();
    assert!(!folder.path().join("top").exists());
}

/// Sharing extents copies the whole current source; only the requested size is kept.
#[test]
#[ignore = "needs xfs"]
fn only_the_requested_size_of_a_grown_file_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mounted");
    fs::create_dir(&at).unwrap();
    let _mount = Mount::xfs(folder.path(), &at);
    let root = Root::open(&at).unwrap();
    fs::write(at.join("log"), "12345").unwrap();
    let (source, meta) = root.open_file(&rel("log")).unwrap();
    fs::write(at.join("log"), "12345 and more").unwrap();
    let stage = || root.stage_file(FileAttributes::default()).unwrap();
    crate::sys::share_content(stage().file(), &source).expect("xfs shares extents");
    for size in [meta.size, 100] {
        let staged = stage();
        let copied = super::super::copy::copy_content(&source, staged.file(), size).unwrap();
        assert_eq!(copied, size.min(14));
        assert_eq!(staged.file().metadata().unwrap().len(), copied);
    }
    root.copy_file(&rel("log"), &root, &rel("copy"), Existing::Keep)
        .expect("sharing its extents is no change of a file");
}
