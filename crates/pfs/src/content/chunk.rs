//! Fixed chunks of a file and their names.
//!
//! A chunk's name is its BLAKE3 chaining value at its offset: the node of the file's hash tree that covers it. So one pass over
//! the bytes names every chunk *and* the file, chunks can be hashed in any order and in parallel, and checking all chunks checks
//! the file.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Serialize};

use super::hash::hash_range;
use crate::digest::Digest;

/// Size of every chunk but the last. The hash tree requires a power of two.
pub const CHUNK: u64 = 4 << 20;

/// The name of one chunk of a file of a given size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunkName(Digest);

/// How a file of a given size is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    size: u64,
}

impl Layout {
    /// The layout of a file of `size` bytes.
    pub const fn of(size: u64) -> Self {
        Self { size }
    }

    /// The file's size.
    pub const fn size(self) -> u64 {
        self.size
    }

    /// The number of chunks; zero for an empty file.
    pub const fn count(self) -> u64 {
        self.size.div_ceil(CHUNK)
    }

    /// Offset and length of a chunk; `None` past the end.
    pub fn range(self, index: u64) -> Option<(u64, u64)> {
        let offset = index.checked_mul(CHUNK).filter(|offset| *offset < self.size)?;
        Some((offset, CHUNK.min(self.size - offset)))
    }

    /// A hasher for the bytes of one chunk.
    pub fn hasher(self, index: u64) -> ChunkHasher {
        let mut hasher = blake3::Hasher::new();
        let only = self.count() <= 1;
        if !only {
            hasher.set_input_offset(index * CHUNK);
        }
        ChunkHasher { hasher, only }
    }

    /// The digest of the file whose chunks have these names; `None` when their number is wrong.
    pub fn combine(self, names: &[ChunkName]) -> Option<Digest> {
        if names.len() as u64 != self.count() {
            return None;
        }
        Some(match names {
            [] => Digest::of(b""),
            [only] => only.0,
            names => {
                let (left, right) = names.split_at(left_len(names.len()));
                merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).into()
            }
        })
    }
}

fn subtree(names: &[ChunkName]) -> ChainingValue {
    match names {
        [one] => *one.0.as_bytes(),
        names => {
            let (left, right) = names.split_at(left_len(names.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// The left subtree is the largest complete one that leaves at least one chunk to the right.
fn left_len(count: usize) -> usize {
    count.next_power_of_two() / 2
}

/// Hashes the bytes of one chunk incrementally.
#[derive(Debug, Clone)]
pub struct ChunkHasher {
    hasher: blake3::Hasher,
    only: bool,
}

impl ChunkHasher {
    /// Adds bytes; never more than the chunk has.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The chunk's name.
    pub fn finish(&self) -> ChunkName {
        let name = if self.only {
            *self.hasher.finalize().as_bytes()
        } else {
            self.hasher.finalize_non_root()
        };
        ChunkName(Digest::from_bytes(name))
    }
}

impl ChunkName {
    /// Creates a name from raw bytes, for example from a journal.
    pub const fn from_bytes(bytes: [u8; Digest::LEN]) -> Self {
        Self(Digest::from_bytes(bytes))
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; Digest::LEN] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkName({self})")
    }
}

impl std::str::FromStr for ChunkName {
    type Err = crate::digest::DigestSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Names one chunk of an open file; `None` if the file has become shorter.
pub fn name_chunk(file: &File, layout: Layout, index: u64) -> io::Result<Option<ChunkName>> {
    let Some((offset, len)) = layout.range(index) else {
        return Ok(None);
    };
    let mut hasher = layout.hasher(index);
    let read = hash_range(file, offset, len, &mut hasher.hasher)?;
    Ok((read == len).then(|| hasher.finish()))
}

/// Names some chunks of an open file with several threads, in the order of `indices`; `None` if the file has become shorter.
pub(crate) fn name_chunks(
    file: &File,
    layout: Layout,
    indices: &[u64],
    threads: usize,
) -> io::Result<Option<Vec<ChunkName>>> {
    let slots: Vec<Mutex<Option<ChunkName>>> = indices.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(index), Some(slot)) = (indices.get(at), slots.get(at)) else {
                return Ok(());
            };
            let name = name_chunk(file, layout, *index)?;
            *slot.try_lock().expect("each slot is taken by one thread only") = name;
        }
    };
    std::thread::scope(|scope| {
        let threads = threads.clamp(1, indices.len().max(1));
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("hashing does not panic"))
    })?;
    Ok(slots
        .into_iter()
        .map(|slot| slot.into_inner().ok().flatten())
        .collect())
}

/// The names of all chunks of a file, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkTable {
    pub size: u64,
    pub names: Vec<ChunkName>,
}

impl ChunkTable {
    /// Reads a file with several threads; `None` if its size changed during the read.
    pub fn read(file: &File, threads: usize) -> io::Result<Option<Self>> {
        let layout = Layout::of(file.metadata()?.len());
        let indices: Vec<u64> = (0..layout.count()).collect();
        let names = name_chunks(file, layout, &indices, threads)?;
        Ok(names.map(|names| Self {
            size: layout.size(),
            names,
        }))
    }

    /// The file's digest; `None` if the number of names does not match the size.
    pub fn digest(&self) -> Option<Digest> {
        Layout::of(self.size).combine(&self.names)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(size: usize) -> (File, Vec<u8>) {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31 + i / 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (file, bytes)
    }

    #[test]
    fn chunks_together_give_the_digest_of_the_file() {
        let chunk = CHUNK as usize;
        for size in [
            0,
            1,
            1024,
            1025,
            chunk - 1,
            chunk,
            chunk + 1,
            2 * chunk,
            3 * chunk,
            5 * chunk + 7,
        ] {
            let (file, bytes) = file_of(size);
            let table = ChunkTable::read(&file, 3).unwrap().unwrap();
            assert_eq!(table.names.len() as u64, Layout::of(size as u64).count());
            assert_eq!(table.digest(), Some(Digest::of(&bytes)), "{size} bytes");
        }
    }

    #[test]
    fn a_table_with_a_name_too_few_has_no_digest() {
        let (file, _) = file_of(2 * CHUNK as usize);
        let mut table = ChunkTable::read(&file, 1).unwrap().unwrap();
        table.names.pop();
        assert_eq!(table.digest(), None);
    }

    #[test]
    fn a_chunk_past_the_end_has_no_range() {
        let layout = Layout::of(CHUNK + 1);
        assert_eq!(layout.range(1), Some((CHUNK, 1)));
        assert_eq!(layout.range(2), None);
        assert_eq!(layout.range(u64::MAX), None);
    }
}
