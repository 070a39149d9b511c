//! Repairs an index when a chunk in it turns out to be several.
//!
//! A wrong size can, by bad luck, lead exactly to the start of a later chunk. The scan then sees one chunk where there
//! are more, and only its checksum reveals that. The same checksum shows where it really ends: there, and nowhere else,
//! it matches.

use crate::chunk::Limits;
use crate::damage::LostRange;
use crate::error::ReadError;
use crate::fault::Fault;
use crate::index::{ChunkInfo, ChunkList, Gap, Index};
use crate::layout::{HEADER_LEN, Header, Layout, MAGIC};
use crate::loss;
use crate::peek::Peek;
use crate::source::{ReadAt, SizedSource};

/// The index with chunk `n` split, if its payload `stored` shows that it must be.
pub(crate) fn divide<S: ReadAt>(
    source: &SizedSource<S>,
    index: &Index,
    n: usize,
    stored: &[u8],
    fault: &Fault,
    limits: &Limits,
) -> Result<Option<Index>, ReadError> {
    let Fault::Checksum { .. } = fault else {
        return Ok(None);
    };
    let chunk = index.chunks()[n];
    let Some(payload_len) = true_len(&chunk.header, stored) else {
        return Ok(None);
    };
    let next = chunk.offset + (HEADER_LEN + payload_len) as u64;
    let inner = walk(source, index, next, chunk.bytes().end)?;
    if inner.is_empty() {
        return Ok(None);
    }
    let mut damaged = chunk.header.to_bytes(index.layout()).to_vec();
    damaged.extend_from_slice(&stored[..payload_len]);
    let lost = LostRange {
        bytes: chunk.offset..next,
        records: loss::in_gap(&damaged, Some(index.layout()), limits),
        fault: fault.clone(),
    };
    Ok(Some(rebuilt(index, n, &inner, lost)))
}

/// Where the payload of a damaged chunk really ends, if inside `stored`: its checksum matches there, and chunks follow
/// up to the end of `stored`.
pub(crate) fn end_inside(header: &Header, stored: &[u8], layout: Layout) -> Option<usize> {
    let end = true_len(header, stored)?;
    let mut rest = &stored[end..];
    while !rest.is_empty() {
        let next = Header::parse(rest.first_chunk()?, layout).ok()?;
        rest = rest.get(next.chunk_len() as usize..)?;
    }
    Some(end)
}

/// The length at which the checksum matches, if something like a header follows.
fn true_len(header: &Header, stored: &[u8]) -> Option<usize> {
    let magic = MAGIC.to_le_bytes();
    let mut hasher = crc32fast::Hasher::new();
    let mut hashed = 0;
    let places = stored
        .windows(magic.len())
        .enumerate()
        .filter(|(_, bytes)| **bytes == magic);
    for (at, _) in places {
        hasher.update(&stored[hashed..at]);
        hashed = at;
        if at > 0 && hasher.clone().finalize() == header.checksum {
            return Some(at);
        }
    }
    None
}

/// The chunks from `at` on, provided that they end exactly at `end`.
fn walk<S: ReadAt>(
    source: &SizedSource<S>,
    index: &Index,
    mut at: u64,
    end: u64,
) -> Result<Vec<(u64, Header)>, ReadError> {
    let mut headers = Peek::new(source);
    let mut found = Vec::new();
    while at < end {
        let Ok((header, _)) = headers.header(at, Some(index.layout()))? else {
            return Ok(Vec::new());
        };
        found.push((at, header));
        at += header.chunk_len();
    }
    Ok(if at == end { found } else { Vec::new() })
}

fn rebuilt(index: &Index, n: usize, inner: &[(u64, Header)], lost: LostRange) -> Index {
    let (before, after) = (&index.chunks()[..n], &index.chunks()[n + 1..]);
    let place = |chunk: &ChunkInfo| (chunk.offset, chunk.header);
    let mut chunks = ChunkList::default();
    let places = before
        .iter()
        .map(place)
        .chain(inner.iter().copied())
        .chain(after.iter().map(place));
    places.for_each(|(offset, header)| chunks.push(offset, header));

    let (mut gaps, behind): (Vec<Gap>, Vec<Gap>) = index
        .gaps()
        .iter()
        .cloned()
        .partition(|gap| gap.chunks_before <= n);
    gaps.push(Gap {
        chunks_before: n,
        lost,
    });
    let moved = inner.len() - 1;
    gaps.extend(behind.into_iter().map(|gap| Gap {
        chunks_before: gap.chunks_before + moved,
        ..gap
    }));
    Index::new(index.layout(), index.file_len(), chunks.into_chunks(), gaps)
}
