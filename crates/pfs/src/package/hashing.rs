//! Reads the files of a scan in parallel and fills in their digests.
//!
//! A file that changes during the read is read again; one that keeps changing is an error.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use super::ScanError;
use crate::content::{StatCache, hash_file};
use crate::digest::Digest;
use crate::entry::{Entry, Mtime, Node};
use crate::relpath::RelPath;
use crate::root::{Meta, Root, RootError, Stamp};
use crate::sys;

const ATTEMPTS: usize = 3;

/// Fills in digest, size, time and executable bit of every file as read. Returns the number of files read.
///
/// `stamps` has the stamps of the listing: a file whose stamp is in the cache is not opened.
pub(super) fn fill_digests(
    root: &Root,
    entries: &mut [Entry],
    stamps: &[Stamp],
    known: Option<&StatCache>,
) -> Result<usize, ScanError> {
    let mut slots = Vec::new();
    for (entry, stamp) in entries.iter_mut().zip(stamps) {
        if let Node::File { digest, .. } = &mut entry.node {
            *digest = known.and_then(|known| known.get(stamp));
            if digest.is_none() {
                slots.push(Mutex::new(entry));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), ScanError> {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut entry = slot.try_lock().expect("each slot is taken by one thread only");
            read_entry(root, &mut entry, known)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count(slots.len()))
            .map(|_| scope.spawn(work))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("hashing does not panic"))
    })?;
    Ok(slots.len())
}

fn thread_count(files: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    cores.min(files.div_ceil(8)).max(1)
}

fn read_entry(root: &Root, entry: &mut Entry, known: Option<&StatCache>) -> Result<(), ScanError> {
    let (meta, digest) = read_stable(root, &entry.path, known)?;
    entry.node = Node::File {
        size: meta.size,
        executable: meta.executable,
        digest: Some(digest),
    };
    entry.mtime = meta.mtime;
    Ok(())
}

fn read_stable(root: &Root, path: &RelPath, known: Option<&StatCache>) -> Result<(Meta, Digest), ScanError> {
    for _ in 0..ATTEMPTS {
        let (file, before) = root.open_file_no_links(path)?;
        let now = Mtime::from(SystemTime::now());
        let digest = hash_file(&file).map_err(|error| RootError::io("read", path, error))?;
        let after = sys::fstat(&file).map_err(|errno| RootError::errno("stat", path, errno))?;
        if before.stamp == Stamp::from(&after) {
            if let Some(known) = known {
                known.insert(before.stamp, digest, now);
            }
            return Ok((before, digest));
        }
    }
    Err(ScanError::Changing(path.clone()))
}
