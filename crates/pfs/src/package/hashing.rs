//! Reads the files of a scan in parallel, fills in their digests and finds private keys.
//!
//! A file that changes during the read is read again; one that keeps changing is an error.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use super::ScanError;
use super::credentials::is_private_key;
use crate::content::{StatCache, hash_file};
use crate::digest::Digest;
use crate::entry::{Entry, Mtime, Node};
use crate::relpath::RelPath;
use crate::root::{Meta, Root, RootError, Stamp};
use crate::sys;

const ATTEMPTS: usize = 3;

/// What the listing says about an entry.
pub(super) struct Listed {
    pub stamp: Stamp,
    /// A private key that is included by name is a file like any other.
    pub is_included: bool,
}

/// What reading the files showed.
#[derive(Default)]
pub(super) struct Filled {
    /// Number of files that were read, without private keys.
    pub read: usize,
    /// Their entries have no digests.
    pub private_keys: BTreeSet<RelPath>,
}

/// Fills in digest, size, time and executable bit of every file as read.
///
/// A file whose stamp is in the cache is not opened. The cache never has private keys: whether one is included may change.
pub(super) fn fill_digests(
    root: &Root,
    entries: &mut [Entry],
    listed: &[Listed],
    known: Option<&StatCache>,
) -> Result<Filled, ScanError> {
    let mut slots = Vec::new();
    for (entry, listed) in entries.iter_mut().zip(listed) {
        if let Node::File { digest, .. } = &mut entry.node {
            *digest = known.and_then(|known| known.get(&listed.stamp));
            if digest.is_none() {
                slots.push(Mutex::new((entry, listed.is_included)));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let work = || -> Result<Filled, ScanError> {
        let mut filled = Filled::default();
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut slot = slot.try_lock().expect("each slot is taken by one thread only");
            let (entry, is_included) = &mut *slot;
            match read_stable(root, &entry.path, *is_included, known)? {
                Some((meta, digest)) => {
                    fill_in(entry, &meta, digest);
                    filled.read += 1;
                }
                None => drop(filled.private_keys.insert(entry.path.clone())),
            }
        }
        Ok(filled)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count(slots.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let parts = threads
            .into_iter()
            .map(|thread| thread.join().expect("hashing does not panic"));
        parts.collect()
    })
}

impl FromIterator<Filled> for Filled {
    fn from_iter<I: IntoIterator<Item = Filled>>(parts: I) -> Filled {
        parts.into_iter().fold(Filled::default(), |mut all, part| {
            all.read += part.read;
            all.private_keys.extend(part.private_keys);
            all
        })
    }
}

fn thread_count(files: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    cores.min(files.div_ceil(8)).max(1)
}

fn fill_in(entry: &mut Entry, meta: &Meta, digest: Digest) {
    entry.node = Node::File {
        size: meta.size,
        executable: meta.executable,
        digest: Some(digest),
    };
    entry.mtime = meta.mtime;
}

/// Metadata and digest of a file that did not change while it was read; `None` if it is a private key to be left out.
fn read_stable(
    root: &Root,
    path: &RelPath,
    is_included: bool,
    known: Option<&StatCache>,
) -> Result<Option<(Meta, Digest)>, ScanError> {
    for _ in 0..ATTEMPTS {
        let (file, before) = root.open_file_no_links(path)?;
        let now = Mtime::from(SystemTime::now());
        let is_key = is_private_key(&file).map_err(|error| RootError::io("read", path, error))?;
        if is_key && !is_included {
            return Ok(None);
        }
        let digest = hash_file(&file).map_err(|error| RootError::io("read", path, error))?;
        let after = sys::fstat(&file).map_err(|errno| RootError::errno("stat", path, errno))?;
        if before.stamp == Stamp::from(&after) {
            if let Some(known) = known.filter(|_| !is_key) {
                known.insert(before.stamp, digest, now);
            }
            return Ok(Some((before, digest)));
        }
    }
    Err(ScanError::Changing(path.clone()))
}
