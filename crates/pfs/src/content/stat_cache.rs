//! Caches digests of files by their stamp, so that unchanged files are not read again.
//!
//! Only a hint: losing it costs time, and a wrong digest is detected when the bytes arrive.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use crate::digest::Digest;
use crate::entry::Mtime;
use crate::root::Stamp;

/// Digests by (device, inode), valid while size and both times are the same.
#[derive(Debug, Default)]
pub struct StatCache(Mutex<HashMap<(u64, u64), (Stamp, Digest)>>);

/// `1` had private keys among its files.
const MAGIC: &[u8; 8] = b"PFSSTAT2";
const RECORD: usize = 5 * 8 + Digest::LEN;

impl StatCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loads a saved cache. A file that is missing, damaged or from another version gives an empty cache.
    pub fn load(path: &Path) -> Self {
        let body = read_sealed(path).unwrap_or_default();
        let records = body.chunks_exact(RECORD).map(decode_record);
        let known = records.map(|(stamp, digest)| ((stamp.device, stamp.inode), (stamp, digest)));
        Self(Mutex::new(known.collect()))
    }

    /// Saves the cache atomically; a concurrent reader sees the old file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        write_sealed(path, &self.encode())
    }

    /// The digest of the file that has exactly this stamp.
    pub fn get(&self, stamp: &Stamp) -> Option<Digest> {
        let known = self.lock();
        known
            .get(&(stamp.device, stamp.inode))
            .filter(|(seen, _)| seen == stamp)
            .map(|(_, digest)| *digest)
    }

    /// Records a digest, unless the file changed so shortly before `read_at` (when reading began) that a later change could have
    /// the same stamp.
    pub fn insert(&self, stamp: Stamp, digest: Digest, read_at: Mtime) {
        if stamp.is_settled(read_at) {
            self.lock().insert((stamp.device, stamp.inode), (stamp, digest));
        }
    }

    /// The number of files in the cache.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(u64, u64), (Stamp, Digest)>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn encode(&self) -> Vec<u8> {
        let known = self.lock();
        let mut out = Vec::with_capacity(known.len() * RECORD);
        for (stamp, digest) in known.values() {
            for number in [stamp.device, stamp.inode, stamp.size] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            for time in [stamp.mtime, stamp.ctime] {
                out.extend_from_slice(&time.as_nanos().to_le_bytes());
            }
            out.extend_from_slice(digest.as_bytes());
        }
        out
    }
}

fn decode_record(record: &[u8]) -> (Stamp, Digest) {
    let number = |index: usize| {
        u64::from_le_bytes(
            record[index * 8..][..8]
                .try_into()
                .expect("eight bytes of a whole record"),
        )
    };
    let time = |index| Mtime::from_nanos(number(index) as i64);
    let stamp = Stamp {
        device: number(0),
        inode: number(1),
        size: number(2),
        mtime: time(3),
        ctime: time(4),
    };
    let digest = record[40..].try_into().expect("the rest of a whole record");
    (stamp, Digest::from_bytes(digest))
}

/// The body of the file, between a magic number and a digest; `None` if the file is missing or damaged.
fn read_sealed(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let (sealed, seal) = bytes.split_last_chunk::<{ Digest::LEN }>()?;
    if Digest::of(sealed).as_bytes() != seal || !sealed.starts_with(MAGIC) {
        return None;
    }
    bytes.truncate(sealed.len());
    bytes.drain(..MAGIC.len());
    Some(bytes)
}

fn write_sealed(path: &Path, body: &[u8]) -> io::Result<()> {
    let mut bytes = [MAGIC.as_slice(), body].concat();
    let seal = Digest::of(&bytes);
    bytes.extend_from_slice(seal.as_bytes());
    let temporary = path.with_extension(format!("{}.tmp", crate::root::fresh_name()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(&bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn stamp(inode: u64, changed: i64) -> Stamp {
        let time = Mtime::from_nanos(changed);
        Stamp {
            device: 1,
            inode,
            size: 10,
            mtime: time,
            ctime: time,
        }
    }

    #[test]
    fn a_file_that_changed_a_moment_ago_is_not_remembered() {
        let cache = StatCache::new();
        let digest = Digest::of(b"x");
        cache.insert(stamp(1, 10 * SECOND), digest, Mtime::from_nanos(11 * SECOND));
        assert_eq!(cache.get(&stamp(1, 10 * SECOND)), None);
        cache.insert(stamp(1, 10 * SECOND), digest, Mtime::from_nanos(13 * SECOND));
        assert_eq!(cache.get(&stamp(1, 10 * SECOND)), Some(digest));
    }

    #[test]
    fn any_difference_in_the_stamp_forgets() {
        let cache = StatCache::new();
        let seen = stamp(1, 0);
        cache.insert(seen, Digest::of(b"x"), Mtime::from_nanos(9 * SECOND));
        assert_eq!(cache.get(&Stamp { size: 11, ..seen }), None);
        assert_eq!(
            cache.get(&Stamp {
                ctime: Mtime::from_nanos(1),
                ..seen
            }),
            None
        );
        assert_eq!(cache.get(&Stamp { inode: 2, ..seen }), None);
    }

    #[test]
    fn a_saved_cache_comes_back_and_a_damaged_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digests");
        let cache = StatCache::new();
        cache.insert(stamp(7, -5), Digest::of(b"y"), Mtime::from_nanos(9 * SECOND));
        cache.save(&path).unwrap();
        assert_eq!(StatCache::load(&path).get(&stamp(7, -5)), Some(Digest::of(b"y")));

        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(StatCache::load(&path).is_empty());
        assert!(StatCache::load(&folder.path().join("absent")).is_empty());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no temporary file stays"
        );
    }
}
