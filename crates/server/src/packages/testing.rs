//! A folder to send, and a user's storage without a server.

use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::Root;
use paddlecloud_pfs::pack::PackWriter;
use paddlecloud_pfs::package::{Manifest, PackageId, ScanOptions, scan};

use super::{MissingContents, Receiver, tree_path};
use crate::homes::Storage;

pub(super) struct Fixture {
    folder: tempfile::TempDir,
    pub storage: Storage,
    pub me: UserName,
}

impl Fixture {
    pub fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let storage = folder.path().join("storage");
        Fixture::of(folder, &storage)
    }

    /// The same with its storage elsewhere.
    pub fn on(storage: &Path) -> Fixture {
        Fixture::of(tempfile::tempdir().unwrap(), storage)
    }

    fn of(folder: tempfile::TempDir, storage: &Path) -> Fixture {
        fs::create_dir(folder.path().join("src")).unwrap();
        Fixture {
            folder,
            storage: Storage::open(storage, "local".parse().unwrap()).unwrap(),
            me: "me".parse().unwrap(),
        }
    }

    /// The folder to send.
    pub fn source(&self) -> PathBuf {
        self.folder.path().join("src")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let file = self.source().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    pub fn manifest(&self) -> Manifest {
        let scanned = scan(self.source(), &ScanOptions::default()).unwrap();
        scanned.manifest().unwrap()
    }

    pub fn announce(&self) -> MissingContents {
        self.storage.announce(&self.me, &self.manifest()).unwrap()
    }

    pub fn receive(&self) -> Receiver {
        self.storage.receive(&self.me, self.manifest().id()).unwrap()
    }

    pub fn has_it(&self) -> bool {
        self.storage.has_package(&self.me, self.manifest().id()).unwrap()
    }

    /// The stream that a client sends for this reply.
    pub fn stream(&self, wanted: &MissingContents) -> Vec<u8> {
        let root = Root::open(self.source()).unwrap();
        let mut writer = PackWriter::new(Vec::new()).unwrap();
        for entry in self.manifest().entries() {
            let part = wanted.parts.iter().find(|part| part.path == entry.path);
            match (entry.digest(), part) {
                (Some(digest), _) if !wanted.missing.contains(&digest) => {}
                (_, Some(part)) => writer.add_rest(entry, &root, part.len).unwrap(),
                _ => writer.add(entry, &root).unwrap(),
            }
        }
        writer.finish().unwrap().0
    }

    pub fn staging(&self) -> PathBuf {
        self.storage.home_path(&self.me).join(".pfs-staging")
    }

    /// The path of a published package.
    pub fn stored(&self, id: PackageId) -> PathBuf {
        self.storage.home_path(&self.me).join(tree_path(id).as_path())
    }
}
