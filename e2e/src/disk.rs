//! A small disk that a test can fill or make read-only. Needs root to mount.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

/// A file system in memory, unmounted when dropped. Stop its users first.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts an empty disk of this size.
    pub fn mount(at: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(at).expect("a folder to mount on");
        let options = CString::new(format!("size={bytes},mode=700")).expect("no zero byte inside");
        mount(
            "paddlecloud-e2e",
            at,
            "tmpfs",
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .expect("the test needs permission to mount");
        Self { at: at.to_owned() }
    }

    /// The same with a disk file system in a file, without space reserved for root.
    pub fn ext4(at: &Path, image: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(at).expect("a folder to mount on");
        let file = std::fs::File::create(image).expect("a file in the test's own folder");
        file.set_len(bytes).expect("it may be sparse");
        let run = |command: &mut Command| {
            let status = command.status().expect("the test needs `mkfs.ext4` and `mount`");
            assert!(status.success(), "{command:?}: {status}");
        };
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(image));
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at));
        Self { at: at.to_owned() }
    }

    pub fn make_read_only(&self) {
        mount_remount(&self.at, MountFlags::RDONLY, c"").expect("an idle disk can become read-only");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.at, UnmountFlags::DETACH) {
            eprintln!("cannot unmount {}: {error}", self.at.display());
        }
    }
}
