//! A small disk that a test can fill, for tests of the crates that store something.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A disk of 8 MiB, unmounted when dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts it on an empty folder. Needs permission to mount.
    pub fn mount(folder: &Path) -> Disk {
        mount(
            "paddlecloud-test",
            folder,
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=8m"),
        )
        .expect("this needs permission to mount");
        Disk(folder.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fills the disk.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("the disk has room for a file");
        while file.write_all(&[0; 1024]).is_ok() {}
    }

    /// Removes the file that fills the disk.
    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("the disk was filled");
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
