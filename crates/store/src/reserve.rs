//! Disk space reserved for the database, so that jobs can be killed and removed on a full disk.
//!
//! The reserve is a file next to the database. It is deleted when a commit finds the disk full, and created again when twice its
//! size is free. Any process may take the freed space, so the commit is retried immediately.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, StatVfs, fallocate, statvfs};

/// Enough for some thousand changes of jobs.
const MOST: u64 = 8 << 20;
/// Enough for a few changes.
const LEAST: u64 = 256 << 10;
/// Enough for the folders of a job.
const LEAST_FILES: u64 = 256;
/// At most one part in this many of the free space is reserved: small disks have other uses.
const PART: u64 = 8;

/// The reserve of one database file.
pub(super) struct Reserve {
    file: PathBuf,
    size: u64,
    is_held: Mutex<bool>,
}

impl Reserve {
    /// Creates the reserve of a database. The server starts even if there is no room for it.
    pub fn take(database: &Path) -> Reserve {
        let mut file = database.as_os_str().to_owned();
        file.push("-reserve");
        let free = free(database).unwrap_or(u64::MAX);
        let reserve = Reserve {
            file: file.into(),
            size: (free / PART).clamp(LEAST, MOST),
            is_held: Mutex::new(false),
        };
        if !reserve.is_held() {
            tracing::warn!("there is no room to keep a reserve for the database");
        }
        reserve
    }

    /// Whether the reserve exists. Tries to create it again if it was given up.
    pub fn is_held(&self) -> bool {
        let mut is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_held {
            *is_held = self.make().is_ok_and(|made| made);
            if *is_held {
                tracing::info!("room is kept for the database");
            }
        }
        *is_held
    }

    /// Whether the disk has room for more than killing and removing jobs.
    pub fn has_room(&self) -> bool {
        self.is_held() && disk_of(&self.file).is_ok_and(|disk| suffices(&disk))
    }

    /// Whether the disk was full and, as far as known, still is.
    pub fn is_given_up(&self) -> bool {
        !*self.is_held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes the reserve; returns false if it was already gone.
    pub fn give_up(&self) -> bool {
        let mut is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_held || std::fs::remove_file(&self.file).is_err() {
            return false;
        }
        *is_held = false;
        tracing::error!(
            "the disk is full: the room kept for the database is used up now, new jobs are refused until there is space"
        );
        true
    }

    fn make(&self) -> io::Result<bool> {
        // An earlier server's reserve may still exist.
        if std::fs::metadata(&self.file).is_ok_and(|meta| meta.len() >= LEAST) {
            return Ok(true);
        }
        if free(&self.file)? < 2 * self.size {
            return Ok(false);
        }
        let made = fill(&self.file, self.size);
        if made.is_err() {
            let _ = std::fs::remove_file(&self.file);
        }
        made.map(|()| true)
    }
}

/// Free bytes on the disk of a file.
fn free(file: &Path) -> io::Result<u64> {
    let disk = disk_of(file)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

fn disk_of(file: &Path) -> io::Result<StatVfs> {
    Ok(statvfs(file.parent().unwrap_or(Path::new("/")))?)
}

/// A disk without free inodes is as full as one without free bytes. Some file systems do not count inodes.
fn suffices(disk: &StatVfs) -> bool {
    disk.f_bavail * disk.f_frsize >= LEAST && (disk.f_files == 0 || disk.f_favail >= LEAST_FILES)
}

/// Creates a file with allocated blocks.
fn fill(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeros = vec![0; 1 << 16];
            let mut left = size;
            while left > 0 {
                let count = left.min(zeros.len() as u64);
                file.write_all(&zeros[..count as usize])?;
                left -= count;
            }
            file.sync_data()
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_free_inodes_is_full() {
        let mut disk = disk_of(Path::new("/file")).unwrap();
        (disk.f_bavail, disk.f_frsize) = (LEAST, 1);
        for (files, free, enough) in [(0, 0, true), (1000, LEAST_FILES, true), (1000, 3, false)] {
            (disk.f_files, disk.f_favail) = (files, free);
            assert_eq!(suffices(&disk), enough, "{files} {free}");
        }
    }

    #[test]
    fn the_reserve_is_allocated_and_taken_again_after_its_release() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("server.db");
        let file = folder.path().join("server.db-reserve");
        let reserve = Reserve::take(&database);
        let size = file.metadata().unwrap().len();
        assert!(size > 0 && size <= MOST, "{size}");
        assert!(file.metadata().unwrap().blocks() * 512 >= size);
        assert!(reserve.give_up());
        assert!(!file.exists());
        assert!(!reserve.give_up(), "there is only one");
        assert!(reserve.is_held(), "there is room for it");
        assert!(file.exists());
    }
}
