//! The working folder of the benchmark, and the files to transfer.

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The kind of disk that the files are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// tmpfs: shows the programs, nothing is ever synced.
    Memory,
    /// Below the build's folder: shows what syncing costs.
    Disk,
}

impl Place {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "tmpfs" => Some(Self::Memory),
            "disk" => Some(Self::Disk),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "tmpfs",
            Self::Disk => "disk",
        }
    }

    fn folder(self) -> PathBuf {
        match self {
            Self::Memory => PathBuf::from("/dev/shm"),
            Self::Disk => {
                let this = env::current_exe().expect("a running program has a path");
                // target/<profile>/examples/<bench>
                this.ancestors()
                    .nth(3)
                    .expect("cargo builds below its target folder")
                    .to_owned()
            }
        }
    }
}

/// How much is transferred.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub big: u64,
    pub small_files: usize,
    pub package_files: usize,
}

impl Sizes {
    pub const FULL: Sizes = Sizes {
        big: 2_000 << 20,
        small_files: 10_000,
        package_files: 5_000,
    };
    pub const QUICK: Sizes = Sizes {
        big: 64 << 20,
        small_files: 1_000,
        package_files: 500,
    };

    pub const SMALL: usize = 10_240;
    /// 5,000 of them are 200 MB.
    pub const PACKAGE: usize = 40_000;
    const IN_A_FOLDER: usize = 100;
}

/// Something to transfer: a file, or a folder of files.
#[derive(Debug, Clone)]
pub struct Load {
    pub path: PathBuf,
    pub files: usize,
    pub bytes: u64,
}

impl Load {
    pub fn is_tree(&self) -> bool {
        self.files > 1
    }

    /// Its name at the destination.
    pub fn name(&self) -> &str {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("loads have plain names")
    }
}

/// A folder of its own; gone when dropped.
#[derive(Debug)]
pub struct Stage {
    folder: TempDir,
    pub place: Place,
    pub sizes: Sizes,
}

impl Stage {
    pub fn set(place: &Place, sizes: Sizes) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("paddlecloud-bench-")
            .tempdir_in(place.folder())
            .expect("a folder to work in");
        fs::create_dir(folder.path().join("source")).expect("a fresh folder");
        Self {
            folder,
            place: *place,
            sizes,
        }
    }

    /// An empty folder of this name.
    pub fn empty(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        remove(&path);
        fs::create_dir_all(&path).expect("a folder in our own");
        path
    }

    /// Waits until what was written is on the disk: it would slow the next one down.
    pub fn sync(&self) {
        if self.place == Place::Disk {
            let synced = Command::new("sync").arg("-f").arg(self.folder.path()).status();
            assert!(synced.is_ok_and(|status| status.success()), "sync works");
        }
    }

    /// Touches as much memory as the next contender will fill. A virtual machine returns memory that is free for some
    /// seconds to its host, and the first writer then pays several times the price.
    pub fn warm(&self, bytes: u64) {
        if self.place == Place::Memory {
            let path = self.folder.path().join("warm");
            let nothing = vec![0; 1 << 20];
            let mut file = File::create(&path).expect("a file in our own folder");
            for _ in 0..bytes.div_ceil(nothing.len() as u64) {
                file.write_all(&nothing).expect("room in memory");
            }
            remove(&path);
        }
    }

    /// One large file of noise.
    pub fn big(&self) -> Load {
        let path = self.folder.path().join("source/big");
        write_noise(&path, 1, self.sizes.big);
        Load {
            path,
            files: 1,
            bytes: self.sizes.big,
        }
    }

    /// Many small files.
    pub fn small(&self) -> Load {
        self.tree("small", self.sizes.small_files, Sizes::SMALL)
    }

    pub fn tree(&self, name: &str, files: usize, size: usize) -> Load {
        let path = self.folder.path().join("source").join(name);
        for index in 0..files {
            let folder = path.join(format!("d{:03}", index / Sizes::IN_A_FOLDER));
            fs::create_dir_all(&folder).expect("a folder in our own");
            let file = folder.join(format!("f{index:05}"));
            write_noise(&file, index as u64 + 2, size as u64);
        }
        Load {
            path,
            files,
            bytes: (files * size) as u64,
        }
    }
}

/// Removes a file or folder, if it exists.
pub fn remove(path: &Path) {
    let _ = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
}

/// Writes incompressible bytes.
fn write_noise(path: &Path, seed: u64, size: u64) {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file in our own folder"));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut left = size;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = state.to_le_bytes();
        let take = usize::try_from(left).unwrap_or(8).min(8);
        out.write_all(&bytes[..take]).expect("room on the disk");
        left -= take as u64;
    }
    out.flush().expect("room on the disk");
}

/// Whether two files or folders hold the same bytes.
///
/// # Panics
/// When they do not: then no figure means anything.
pub fn assert_same(left: &Path, right: &Path) {
    let same = Command::new("diff")
        .args(["-r", "-q", "--no-dereference"])
        .args([left, right])
        .status()
        .expect("there is a diff");
    assert!(
        same.success(),
        "{} and {} differ",
        left.display(),
        right.display()
    );
}
