//! Small trees for tests, and snapshots of folders to compare them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::content::{FileIndex, IndexedFile, Moved};
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{Durability, Root, Stamp};
use crate::staging::{StagedId, expire};

/// A temporary folder with an open root that does not sync.
pub(crate) fn scratch() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path())
        .unwrap()
        .with_durability(Durability::Relaxed);
    (folder, root)
}

/// The id of an unprivileged user.
pub(crate) const NOBODY: u32 = 65534;

/// Runs `work` in its own folder as a user to whom permissions apply, even if the tests run as root.
pub(crate) fn as_ordinary_user(work: impl FnOnce(&Path, &Root) + Send) {
    let (folder, root) = scratch();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(folder.path(), Some(NOBODY), None).unwrap();
                let nobody = rustix::process::Uid::from_raw(NOBODY);
                // Affects only this thread, as the system call does.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            work(folder.path(), &root);
        });
    });
}

/// Creates files (`name`, content), folders (`name/`) and links (`name -> target`) below a folder.
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

/// Everything below a folder that a transfer must preserve: names, kinds, contents, modes and times.
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

/// All names below a folder, including staging; to check that nothing stays behind.
pub(crate) fn leftovers(folder: &Path) -> Vec<String> {
    picture(folder).into_keys().collect()
}

/// Expires staged files until `count` are gone: a child process forked by another test briefly holds our descriptors.
pub(crate) fn wait_until_expired(root: &Root, age: Duration, now: Mtime, count: usize) -> Vec<StagedId> {
    let (until, mut gone) = (Instant::now() + Duration::from_secs(60), Vec::new());
    while gone.len() < count {
        gone.extend(expire(root, age, now).expect("it can be looked at").gone);
        assert!(Instant::now() < until, "{gone:?}");
        std::thread::yield_now();
    }
    gone
}

/// A file index in memory.
#[derive(Default)]
pub(crate) struct MemoryIndex(Mutex<MemoryRows>);

#[derive(Default)]
struct MemoryRows {
    files: BTreeMap<Place, (Stamp, Digest)>,
    uploads: BTreeMap<[u8; Digest::LEN], StagedId>,
}

fn row((place, (stamp, digest)): (&Place, &(Stamp, Digest))) -> IndexedFile {
    IndexedFile {
        place: place.clone(),
        stamp: *stamp,
        digest: *digest,
    }
}

fn is_at_or_below(place: &Place, folder: &Place) -> bool {
    place.space == folder.space && place.path.is_within(&folder.path)
}

impl FileIndex for MemoryIndex {
    fn record(&self, files: &[IndexedFile]) -> io::Result<()> {
        let files = files
            .iter()
            .map(|file| (file.place.clone(), (file.stamp, file.digest)));
        self.0.lock().unwrap().files.extend(files);
        Ok(())
    }

    fn find(&self, space: &Space, paths: &[RelPath]) -> io::Result<Vec<Option<(Stamp, Digest)>>> {
        let rows = self.0.lock().unwrap();
        let find = |path: &RelPath| {
            let (space, path) = (space.clone(), path.clone());
            rows.files.get(&Place { space, path }).copied()
        };
        Ok(paths.iter().map(find).collect())
    }

    fn forget(&self, place: &Place) -> io::Result<()> {
        self.0
            .lock()
            .unwrap()
            .files
            .retain(|other, _| !is_at_or_below(other, place));
        Ok(())
    }

    fn replace(&self, row: &IndexedFile, found: Option<(Stamp, Digest)>) -> io::Result<()> {
        let files = &mut self.0.lock().unwrap().files;
        if files.get(&row.place) == Some(&(row.stamp, row.digest)) {
            files.remove(&row.place);
            files.extend(found.map(|found| (row.place.clone(), found)));
        }
        Ok(())
    }

    fn moved(&self, moved: &Moved) -> io::Result<()> {
        let all = self.all()?.into_iter();
        let rows: Vec<IndexedFile> = all
            .filter(|file| is_at_or_below(&file.place, &moved.from))
            .collect();
        self.forget(&moved.from)?;
        self.forget(&moved.to)?;
        let rows = rows.into_iter().filter_map(|file| {
            let below = file.place.path.strip_prefix(&moved.from.path).unwrap();
            let stamp = match moved.file {
                Some((before, after)) => (file.stamp == before).then_some(after)?,
                None => file.stamp,
            };
            let place = Place {
                space: moved.to.space.clone(),
                path: moved.to.path.join(&below).unwrap(),
            };
            Some(IndexedFile { place, stamp, ..file })
        });
        self.record(&rows.collect::<Vec<_>>())
    }

    fn all(&self) -> io::Result<Vec<IndexedFile>> {
        Ok(self.0.lock().unwrap().files.iter().map(row).collect())
    }

    fn upload(&self, key: &Digest) -> io::Result<Option<StagedId>> {
        Ok(self.0.lock().unwrap().uploads.get(key.as_bytes()).cloned())
    }

    fn record_upload(&self, key: &Digest, id: &StagedId) -> io::Result<()> {
        self.0.lock().unwrap().uploads.insert(*key.as_bytes(), id.clone());
        Ok(())
    }

    fn uploads(&self) -> io::Result<Vec<StagedId>> {
        Ok(self.0.lock().unwrap().uploads.values().cloned().collect())
    }

    fn forget_uploads(&self, gone: &[StagedId]) -> io::Result<()> {
        self.0.lock().unwrap().uploads.retain(|_, id| !gone.contains(id));
        Ok(())
    }
}

#[test]
fn the_index_in_memory_conforms() {
    crate::content::index::conformance::check(&MemoryIndex::default());
}
