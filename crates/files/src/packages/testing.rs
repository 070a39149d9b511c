//! A folder to send, and a user's storage without a server.

use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::pack::{PackLimits, StagedTree, write_pack};
use paddlecloud_pfs::package::{Manifest, PackageId, ScanOptions, scan};
use paddlecloud_pfs::{Digest, Entry, Root};

use super::{Completed, tree_path};
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

    /// Announces the package.
    pub fn announce(&self) -> Completed {
        let manifest = self.manifest();
        let announced = self.storage.announce(&self.me, &manifest).unwrap();
        announced.complete().unwrap()
    }

    /// Uploads the files with these contents.
    pub fn fill(&self, missing: &[Digest]) {
        let (root, manifest) = (Root::open(self.source()).unwrap(), self.manifest());
        let is_sent = |entry: &&Entry| match entry.digest() {
            Some(digest) => missing.contains(&digest),
            None => entry.is_dir(),
        };
        let entries = manifest.entries().iter().filter(is_sent);
        let (pack, _) = write_pack(&root, entries, Vec::new()).unwrap();
        let home = self.storage.home(&self.me).unwrap();
        let tree = StagedTree::share(&home, manifest.id()).unwrap();
        tree.unpack(pack.as_slice(), PackLimits::default()).unwrap();
    }

    pub fn is_stored(&self) -> bool {
        self.storage.has_package(&self.me, self.manifest().id()).unwrap()
    }

    pub fn staging(&self) -> PathBuf {
        self.storage.home_path(&self.me).join(".pfs-staging")
    }

    /// The path of a published package.
    pub fn stored(&self, id: PackageId) -> PathBuf {
        self.storage.home_path(&self.me).join(tree_path(id).as_path())
    }
}
