//! Small trees for tests, and a picture of a folder to compare them by.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{Durability, Root};
use crate::staging::{StagedId, expire};

/// A temporary folder with a root opened on it that does not wait for the disk.
pub(crate) fn scratch() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path())
        .unwrap()
        .with_durability(Durability::Relaxed);
    (folder, root)
}

/// Somebody who may not do everything.
pub(crate) const NOBODY: u32 = 65534;

/// Works in a folder of their own as somebody whom modes concern, whoever runs the tests.
pub(crate) fn as_ordinary_user(work: impl FnOnce(&Path, &Root) + Send) {
    let (folder, root) = scratch();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(folder.path(), Some(NOBODY), None).unwrap();
                let nobody = rustix::process::Uid::from_raw(NOBODY);
                // Of this thread only: the kernel knows no other way.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            work(folder.path(), &root);
        });
    });
}

/// Makes files (`name`, content), folders (`name/`) and links (`name -> target`) below a folder.
pub(crate) fn plant(folder: &Path, nodes: &[(&str, &str)]) {
    for (name, content) in nodes {
        if let Some((link, target)) = name.split_once(" -> ") {
            let link = folder.join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        } else if name.ends_with('/') {
            fs::create_dir_all(folder.join(name)).unwrap();
        } else {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
    }
}

pub(crate) fn make_executable(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Everything below a folder that a transfer must keep: names, kinds, contents, bits and times.
pub(crate) fn picture(folder: &Path) -> BTreeMap<String, String> {
    let mut nodes = BTreeMap::new();
    add_to_picture(folder, folder, &mut nodes);
    nodes
}

fn add_to_picture(top: &Path, folder: &Path, nodes: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path
            .strip_prefix(top)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .escape_ascii()
            .to_string();
        let time = (meta.mtime(), meta.mtime_nsec());
        let kind = if meta.is_symlink() {
            format!("link {:?}", fs::read_link(&path).unwrap())
        } else if meta.is_dir() {
            add_to_picture(top, &path, nodes);
            "folder".to_owned()
        } else {
            let content = fs::read(&path).unwrap();
            format!(
                "file {} {}",
                crate::Digest::of(&content),
                meta.mode() & 0o111 != 0
            )
        };
        nodes.insert(name, format!("{kind} {time:?}"));
    }
}

pub(crate) fn rel(text: &str) -> RelPath {
    text.parse().unwrap()
}

/// The names left below a folder, staging included; for "nothing stays behind".
pub(crate) fn leftovers(folder: &Path) -> Vec<String> {
    picture(folder).into_keys().collect()
}

/// What expires, until so much has: a process that another test just forked off holds what was open here for a moment.
pub(crate) fn wait_until_expired(root: &Root, age: Duration, now: Mtime, count: usize) -> Vec<StagedId> {
    let (until, mut gone) = (Instant::now() + Duration::from_secs(60), Vec::new());
    while gone.len() < count {
        gone.extend(expire(root, age, now).expect("it can be looked at").gone);
        assert!(Instant::now() < until, "{gone:?}");
        std::thread::yield_now();
    }
    gone
}
