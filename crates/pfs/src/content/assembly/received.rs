//! The received parts of an unfinished file, and the chunks that are being written.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;

use crate::content::chunk::{CHUNK, ChunkName, Layout};
use crate::content::journal::{Record, read_records};
use crate::content::ranges::Ranges;

#[derive(Debug, Default)]
pub(super) struct Received {
    ranges: Ranges,
    /// Chunks that were checked on arrival. They are not written again.
    names: BTreeMap<u64, ChunkName>,
    /// Chunks that are being written. Two writers of one chunk could undo each other's check.
    claimed: HashSet<u64>,
}

impl Received {
    /// Replays a journal.
    pub fn read(journal: &File, layout: Layout) -> io::Result<Self> {
        let mut received = Self::default();
        read_records(journal, layout, |record| received.add(layout, record))?;
        Ok(received)
    }

    pub fn add(&mut self, layout: Layout, record: Record) {
        add_to(&mut self.ranges, layout, record);
        match record {
            Record::Chunk { index, name } if layout.range(index).is_some() => {
                self.names.insert(index, name);
            }
            Record::Chunk { .. } | Record::Range { .. } => {}
        }
    }

    /// Clears what was received, but keeps the claims of writers.
    pub fn clear(&mut self) {
        self.ranges = Ranges::default();
        self.names.clear();
    }

    pub fn missing(&self, layout: Layout) -> Vec<Range<u64>> {
        self.ranges.gaps(layout.size())
    }

    pub fn names(&self) -> &BTreeMap<u64, ChunkName> {
        &self.names
    }

    /// Reserves chunks for one writer; `false` if another writer holds one of them.
    pub fn claim(&mut self, chunks: Range<u64>) -> bool {
        if chunks.clone().any(|index| self.claimed.contains(&index)) {
            return false;
        }
        self.claimed.extend(chunks);
        true
    }

    pub fn release(&mut self, chunks: Range<u64>) {
        self.claimed.retain(|index| !chunks.contains(index));
    }
}

/// The number of bytes received according to a journal, without the rest of the state needed to resume.
pub(super) fn arrived(journal: &File, layout: Layout) -> io::Result<u64> {
    let mut ranges = Ranges::default();
    read_records(journal, layout, |record| add_to(&mut ranges, layout, record))?;
    Ok(ranges.covered(layout.size()))
}

fn add_to(ranges: &mut Ranges, layout: Layout, record: Record) {
    let chunk = |index| {
        let range = layout.range(index).map(|(offset, len)| offset..offset + len);
        range.unwrap_or_default()
    };
    match record {
        Record::Chunk { index, .. } => ranges.insert(chunk(index)),
        Record::Range { offset, len } => {
            let end = offset.saturating_add(len).min(layout.size());
            ranges.insert(offset.min(end)..end);
        }
    }
}

/// The chunks that contain the bytes `offset..end`.
pub(super) fn touched(offset: u64, end: u64) -> Range<u64> {
    if offset >= end {
        0..0
    } else {
        offset / CHUNK..end.div_ceil(CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(layout: Layout, records: impl IntoIterator<Item = Record>) -> Received {
        let mut received = Received::default();
        for record in records {
            received.add(layout, record);
        }
        received
    }

    #[test]
    fn a_checked_chunk_stays_checked() {
        let layout = Layout::of(2 * CHUNK);
        let name = ChunkName::from_bytes([1; 32]);
        let chunk = |index| Record::Chunk { index, name };
        let range = Record::Range {
            offset: CHUNK - 1,
            len: 1,
        };
        let received = replayed(layout, vec![chunk(0), chunk(1), range]);
        assert_eq!(received.names().keys().collect::<Vec<_>>(), [&0, &1]);
        assert!(received.missing(layout).is_empty());
    }

    #[test]
    fn a_chunk_is_claimed_by_one_at_a_time() {
        let mut received = Received::default();
        assert!(received.claim(1..3));
        assert!(!received.claim(2..4) && received.claim(3..4));
        received.release(1..3);
        assert!(received.claim(0..3));
    }

    /// Each of these records would take hours if its length or the order mattered.
    #[test]
    fn forged_records_cost_no_more_than_others() {
        let layout = Layout::of(1 << 62);
        let (end, step) = (layout.size(), 1 << 20);
        let all = Record::Range { offset: 0, len: end };
        let scattered = (0..200_000).map(|at| Record::Range {
            offset: end - (at + 1) * step,
            len: 1,
        });
        let received = replayed(layout, scattered);
        assert_eq!(received.missing(layout).len(), 200_001);
        let received = replayed(layout, std::iter::repeat_n(all, 200_000));
        assert!(received.missing(layout).is_empty());
    }

    #[test]
    fn records_beyond_the_file_change_nothing() {
        let layout = Layout::of(10);
        let beyond = Record::Range {
            offset: u64::MAX,
            len: 5,
        };
        let far = Record::Chunk {
            index: u64::MAX,
            name: ChunkName::from_bytes([0; 32]),
        };
        assert_eq!(
            replayed(layout, vec![beyond, far]).missing(layout),
            std::slice::from_ref(&(0..10))
        );
    }
}
