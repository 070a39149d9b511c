//! A folder with every kind of entry that users have, and the comparison of two such folders, including times and modes.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::noise;

/// What is compared of a node. Folders' own times are those of the last change in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Folder,
    Link(PathBuf),
    File {
        size: u64,
        content: u64,
        executable: bool,
        modified: SystemTime,
    },
}

/// One large file, many small ones, links, programs, and empty things of both kinds.
pub fn plant_mixed(folder: &Path, small: usize) {
    fs::create_dir_all(folder.join("empty folder")).expect("a folder can be made");
    write(folder, "large.bin", &noise(71, 24 << 20), false);
    write(folder, "empty file", b"", false);
    for number in 0..small {
        let name = format!("images/{}/{number}.jpg", number % 37);
        let bytes = noise(number as u64, 1000 + (number * 797) % 12_000);
        write(folder, &name, &bytes, number % 50 == 0);
    }
    symlink("large.bin", folder.join("link to a file")).expect("a link can be made");
    symlink("images/7", folder.join("link to a folder")).expect("a link can be made");
    symlink("nowhere", folder.join("images/broken link")).expect("a link can be made");
}

fn write(folder: &Path, name: &str, bytes: &[u8], executable: bool) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("folders can be made");
    fs::write(&path, bytes).expect("a file can be written");
    let mode = if executable { 0o755 } else { 0o644 };
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
    let long_ago = UNIX_EPOCH + Duration::new(1_400_000_000 + bytes.len() as u64, 123_456_789);
    let file = fs::File::options().write(true).open(&path).expect("it is there");
    file.set_modified(long_ago).expect("it is ours");
}

/// Every node below a folder.
pub fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Node> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current).expect("a folder can be listed") {
            let path = entry.expect("an entry can be read").path();
            let node = node(&path);
            if node == Node::Folder {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(folder).expect("it lies below").to_owned();
            found.insert(name, node);
        }
    }
    found
}

fn node(path: &Path) -> Node {
    let meta = fs::symlink_metadata(path).expect("what is listed is there");
    if meta.is_dir() {
        return Node::Folder;
    }
    if meta.is_symlink() {
        return Node::Link(fs::read_link(path).expect("a link can be read"));
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(path).expect("a file can be read"));
    Node::File {
        size: meta.len(),
        content: hasher.finish(),
        executable: meta.permissions().mode() & 0o100 != 0,
        modified: meta.modified().expect("files have times"),
    }
}

/// The same names, bytes, links, times and executable bits; the first few differences are reported.
#[track_caller]
pub fn assert_identical(left: &Path, right: &Path) {
    let (left, right) = (snapshot(left), snapshot(right));
    let names = left
        .keys()
        .chain(right.keys().filter(|name| !left.contains_key(*name)));
    let different: Vec<String> = names
        .filter(|name| left.get(*name) != right.get(*name))
        .map(|name| {
            format!(
                "{}: {:?} and {:?}",
                name.display(),
                left.get(name),
                right.get(name)
            )
        })
        .collect();
    assert!(
        different.is_empty(),
        "{} differences, among them\n{}",
        different.len(),
        different[..different.len().min(5)].join("\n")
    );
}
