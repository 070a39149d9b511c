//! A small disk that a test can fill.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A disk of 8 MiB, unmounted when dropped.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    /// Returns `None` and prints a message if mounting is not permitted.
    pub fn mount() -> Option<Disk> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can mount a disk");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        mount(
            "paddlecloud-test",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=8m"),
        )
        .unwrap();
        Some(Disk(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
    }

    /// Removes the file that fills the disk.
    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}
