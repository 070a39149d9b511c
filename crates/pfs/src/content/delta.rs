//! Finds the content that a new file shares with an old file on the other side, at any offset.
//!
//! The side with the old file sends a [`Signature`] (two sums per block). The side with the new file slides over its bytes and
//! replies with ranges to copy and ranges to send. Nothing here is trusted: the assembled file is checked by its digest.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use super::rolling::Rolling;
use crate::source::Source;

/// Sums of the blocks of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    block: u32,
    size: u64,
    sums: Vec<BlockSum>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockSum {
    weak: u64,
    strong: [u8; STRONG],
}

/// Long enough that blocks do not collide by accident; deliberate collisions are caught by the file's digest.
const STRONG: usize = 16;
const SUM: usize = 8 + STRONG;
const MAGIC: &[u8; 8] = b"PFSSIGN1";
const MIN_BLOCK: u32 = 2 << 10;
const MAX_BLOCK: u32 = 4 << 20;

/// Where a range of the new file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Copy it from the old file at `from`.
    Copy { to: u64, from: u64, len: u64 },
    /// Send it.
    Send { to: u64, len: u64 },
}

/// The bytes are not a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not a signature of a file")]
pub struct SignatureError;

impl Signature {
    /// A block length that balances the size of the signature against the bytes sent around each change.
    fn block_for(size: u64) -> u32 {
        let root = u32::try_from(size.isqrt()).unwrap_or(MAX_BLOCK);
        root.clamp(MIN_BLOCK, MAX_BLOCK).next_power_of_two()
    }

    /// Reads a file once and sums its full blocks; a shorter last block is left out.
    pub fn of(file: &(impl Source + ?Sized)) -> io::Result<Self> {
        let size = file.len()?;
        let block = Self::block_for(size);
        let mut sums = Vec::with_capacity(usize::try_from(size / u64::from(block)).unwrap_or(0));
        let mut window = Window::new(file, size, block as usize);
        while let Some(bytes) = window.block()? {
            sums.push(BlockSum {
                weak: Rolling::of(bytes).value(),
                strong: strong(bytes),
            });
            window.advance(block as usize);
        }
        Ok(Self { block, size, sums })
    }

    /// Encodes the signature for the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.sums.len() * SUM);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.block.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        for sum in &self.sums {
            out.extend_from_slice(&sum.weak.to_le_bytes());
            out.extend_from_slice(&sum.strong);
        }
        out
    }

    /// Decodes a signature from the wire.
    pub fn decode(bytes: &[u8]) -> Result<Self, SignatureError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SignatureError)?;
        let (block, rest) = rest.split_first_chunk().ok_or(SignatureError)?;
        let (size, rest) = rest.split_first_chunk().ok_or(SignatureError)?;
        let (block, size) = (u32::from_le_bytes(*block), u64::from_le_bytes(*size));
        let fits = (MIN_BLOCK..=MAX_BLOCK).contains(&block)
            && rest.len().is_multiple_of(SUM)
            && (rest.len() / SUM) as u64 == size / u64::from(block);
        if !fits {
            return Err(SignatureError);
        }
        Ok(Self {
            block,
            size,
            sums: rest.chunks_exact(SUM).map(decode_sum).collect(),
        })
    }

    /// Compares a new file with the old file of this signature. The operations cover the new file completely.
    pub fn diff(&self, new: &File) -> io::Result<Vec<Op>> {
        let size = new.metadata()?.len();
        let mut search = Search {
            signature: self,
            index: Index::new(self),
            ops: Ops::default(),
            expected: None,
        };
        search.run(&mut Window::new(new, size, self.block as usize))?;
        search.ops.finish(size);
        Ok(search.ops.list)
    }
}

fn decode_sum(bytes: &[u8]) -> BlockSum {
    let (weak, strong) = bytes.split_at(8);
    BlockSum {
        weak: u64::from_le_bytes(weak.try_into().expect("eight bytes")),
        strong: strong.try_into().expect("the rest of a whole sum"),
    }
}

fn strong(bytes: &[u8]) -> [u8; STRONG] {
    let hash = blake3::hash(bytes);
    hash.as_bytes()[..STRONG].try_into().expect("a part of a digest")
}

/// Finds blocks by their weak sum. A bitmap in front rejects nearly all positions of changed data.
struct Index {
    by_weak: HashMap<u64, u32>,
    filter: Vec<u64>,
    mask: u64,
}

impl Index {
    fn new(signature: &Signature) -> Self {
        let bits = (signature.sums.len() * 16).next_power_of_two().max(64);
        let mut index = Self {
            by_weak: HashMap::new(),
            filter: vec![0; bits / 64],
            mask: bits as u64 - 1,
        };
        for (block, sum) in signature.sums.iter().enumerate() {
            let bit = index.bit(sum.weak);
            index.filter[bit / 64] |= 1 << (bit % 64);
            // Of equal blocks, the first one is used for all.
            index.by_weak.entry(sum.weak).or_insert(block as u32);
        }
        index
    }

    fn bit(&self, weak: u64) -> usize {
        let mixed = weak.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (mixed & self.mask) as usize
    }

    fn find(&self, weak: u64) -> Option<u32> {
        let bit = self.bit(weak);
        if self.filter[bit / 64] & (1 << (bit % 64)) == 0 {
            return None;
        }
        self.by_weak.get(&weak).copied()
    }
}

struct Search<'a> {
    signature: &'a Signature,
    index: Index,
    ops: Ops,
    /// The block after the last match: in unchanged stretches it is always the right one.
    expected: Option<u32>,
}

impl Search<'_> {
    fn run(&mut self, window: &mut Window<'_, File>) -> io::Result<()> {
        if self.signature.sums.is_empty() {
            return Ok(());
        }
        let len = self.signature.block as usize;
        let mut rolling: Option<Rolling> = None;
        while let Some((bytes, next)) = window.block_and_next()? {
            let sum = rolling.take().unwrap_or_else(|| Rolling::of(bytes));
            if let Some(block) = self.matching(sum.value(), bytes) {
                let from = u64::from(block) * len as u64;
                self.ops.copy(window.position(), from, len as u64);
                self.expected = Some(block + 1);
                window.advance(len);
            } else {
                self.expected = None;
                rolling = next.map(|next| sum.roll(bytes[0], next));
                window.advance(1);
            }
        }
        Ok(())
    }

    fn matching(&self, weak: u64, bytes: &[u8]) -> Option<u32> {
        let sums = &self.signature.sums;
        let expected = self
            .expected
            .filter(|block| sums.get(*block as usize).is_some_and(|sum| sum.weak == weak));
        let block = expected.or_else(|| self.index.find(weak))?;
        (sums[block as usize].strong == strong(bytes)).then_some(block)
    }
}

/// Collects operations and joins adjacent ones.
#[derive(Default)]
struct Ops {
    list: Vec<Op>,
    end: u64,
}

impl Ops {
    fn copy(&mut self, to: u64, from: u64, len: u64) {
        self.finish(to);
        self.end = to + len;
        match self.list.last_mut() {
            Some(Op::Copy {
                to: last_to,
                from: last_from,
                len: last_len,
            }) if *last_to + *last_len == to && *last_from + *last_len == from => {
                *last_len += len;
            }
            _ => self.list.push(Op::Copy { to, from, len }),
        }
    }

    /// Adds a `Send` for bytes before `to` that are not copied.
    fn finish(&mut self, to: u64) {
        if to > self.end {
            self.list.push(Op::Send {
                to: self.end,
                len: to - self.end,
            });
            self.end = to;
        }
    }
}

/// A view of one block of a file that slides forward; reads in large pieces.
struct Window<'a, S: Source + ?Sized> {
    file: &'a S,
    size: u64,
    block: usize,
    buffer: Vec<u8>,
    /// Offset in the file of the first byte in `buffer`.
    base: u64,
    /// Offset in `buffer` of the first byte of the block.
    at: usize,
}

const READ_AHEAD: usize = 1 << 20;

impl<'a, S: Source + ?Sized> Window<'a, S> {
    fn new(file: &'a S, size: u64, block: usize) -> Self {
        Self {
            file,
            size,
            block,
            buffer: Vec::new(),
            base: 0,
            at: 0,
        }
    }

    fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    fn advance(&mut self, by: usize) {
        self.at += by;
    }

    fn block(&mut self) -> io::Result<Option<&[u8]>> {
        Ok(self.block_and_next()?.map(|(block, _)| block))
    }

    /// The current block and the byte after it; `None` if less than a block is left.
    fn block_and_next(&mut self) -> io::Result<Option<(&[u8], Option<u8>)>> {
        if self.position() + self.block as u64 > self.size {
            return Ok(None);
        }
        if self.at + self.block + 1 > self.buffer.len() {
            self.refill()?;
        }
        let end = self.at + self.block;
        let Some(block) = self.buffer.get(self.at..end) else {
            return Ok(None);
        };
        Ok(Some((block, self.buffer.get(end).copied())))
    }

    fn refill(&mut self) -> io::Result<()> {
        let position = self.position();
        self.buffer.drain(..self.at.min(self.buffer.len()));
        self.base = position;
        self.at = 0;
        let have = self.buffer.len();
        let need = usize::try_from(self.size - position)
            .unwrap_or(usize::MAX)
            .min(self.block + READ_AHEAD);
        self.buffer.resize(need.max(have), 0);
        let read = self
            .file
            .read_full(&mut self.buffer[have..], position + have as u64)?;
        self.buffer.truncate(have + read);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        let mut out = vec![0; len];
        hasher.finalize_xof().fill(&mut out);
        out
    }

    /// Rebuilds the new file from the operations; also checks that they cover it in order.
    fn rebuilt(old: &[u8], new: &[u8], ops: &[Op]) -> (Vec<u8>, u64) {
        let (mut out, mut sent) = (Vec::new(), 0);
        for op in ops {
            match *op {
                Op::Copy { to, from, len } => {
                    assert_eq!(to, out.len() as u64);
                    out.extend_from_slice(&old[from as usize..(from + len) as usize]);
                }
                Op::Send { to, len } => {
                    assert_eq!(to, out.len() as u64);
                    out.extend_from_slice(&new[to as usize..(to + len) as usize]);
                    sent += len;
                }
            }
        }
        (out, sent)
    }

    fn sent(old: &[u8], new: &[u8]) -> u64 {
        let signature = Signature::of(&file_of(old)).unwrap();
        let signature = Signature::decode(&signature.encode()).unwrap();
        let ops = signature.diff(&file_of(new)).unwrap();
        let (out, sent) = rebuilt(old, new, &ops);
        assert!(out == new, "rebuilt file differs");
        sent
    }

    #[test]
    fn an_unchanged_file_sends_at_most_its_last_part_of_a_block() {
        let old = noise(3_000_000, 1);
        assert!(sent(&old, &old) < 2048);
        let whole = noise(2048 * 100, 1);
        assert_eq!(sent(&whole, &whole), 0);
    }

    #[test]
    fn a_change_an_insertion_and_a_removal_send_little_more_than_themselves() {
        let old = noise(8_000_000, 2);
        let block = u64::from(Signature::block_for(8_000_000));
        let mut changed = old.clone();
        changed[4_000_000..4_010_000].copy_from_slice(&noise(10_000, 3));
        assert!(sent(&old, &changed) <= 10_000 + 3 * block);
        let mut inserted = old.clone();
        inserted.splice(4_000_001..4_000_001, noise(10_007, 4));
        assert!(sent(&old, &inserted) <= 10_007 + 3 * block);
        let mut removed = old.clone();
        removed.drain(1_000_003..1_500_000);
        assert!(sent(&old, &removed) <= 3 * block);
    }

    #[test]
    fn moved_and_repeated_parts_are_found() {
        let (a, b) = (noise(500_000, 5), noise(500_000, 6));
        let old = [a.clone(), b.clone()].concat();
        let new = [b.clone(), a.clone(), b, a].concat();
        assert!(sent(&old, &new) < 20_000);
    }

    #[test]
    fn files_with_nothing_in_common_are_sent_whole() {
        assert_eq!(sent(&noise(100_000, 7), &noise(100_000, 8)), 100_000);
        assert_eq!(sent(&[], &noise(5000, 8)), 5000);
        assert_eq!(sent(&noise(5000, 8), &[]), 0);
    }

    #[test]
    fn zeros_do_not_confuse_it() {
        assert!(sent(&vec![0; 1_000_000], &vec![0; 2_000_000]) < 4096);
    }

    #[test]
    fn other_bytes_are_no_signature() {
        let good = Signature::of(&file_of(&noise(10_000, 1))).unwrap().encode();
        for bad in [&b""[..], b"PFSSIGN1", &good[..good.len() - 1], &good[1..]] {
            assert_eq!(Signature::decode(bad), Err(SignatureError));
        }
        let mut zero_block = good.clone();
        zero_block[8..12].fill(0);
        assert_eq!(Signature::decode(&zero_block), Err(SignatureError));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn any_edits_are_rebuilt_exactly(
            len in 0_usize..60_000,
            edits in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..4000, 0_usize..4000), 0..4),
        ) {
            let old = noise(len, 9);
            let mut new = old.clone();
            for (number, (at, removed, inserted)) in edits.iter().enumerate() {
                let start = at.index(new.len() + 1);
                let end = (start + removed).min(new.len());
                new.splice(start..end, noise(*inserted, 100 + number as u64));
            }
            sent(&old, &new);
        }
    }
}
