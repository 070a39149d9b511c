//! Finds the records in a payload while it arrives, so that each part is examined while it is in the cache.

use crate::fault::Fault;

/// Starts of records, found so far or in full.
///
/// After [`Splitter::finish`]: start of each record, then 4 past the end of the payload, so that record `i` is
/// `starts[i]..starts[i + 1] - 4`.
#[derive(Default)]
pub(crate) struct Splitter {
    starts: Vec<u32>,
    records: u32,
    /// where the next record's length stands
    at: usize,
}

impl Splitter {
    pub(crate) fn clear(&mut self) {
        self.starts.clear();
    }

    /// Expects `records` records in a payload of at most `payload_len` bytes.
    pub(crate) fn begin(&mut self, records: u32, payload_len: usize) {
        self.starts.clear();
        // A wrong count must not reserve memory that the payload cannot justify.
        self.starts.reserve((records as usize).min(payload_len / 4) + 1);
        self.records = records;
        self.at = 0;
    }

    /// Examines the payload received so far; payloads are shorter than 4 GiB.
    pub(crate) fn feed(&mut self, payload: &[u8]) {
        while self.starts.len() < self.records as usize {
            let Some(len) = payload.get(self.at..).and_then(|rest| rest.first_chunk::<4>()) else {
                return;
            };
            let start = self.at + 4;
            self.starts.push(start as u32);
            self.at = start + u32::from_le_bytes(*len) as usize;
        }
    }

    /// Verifies that the records fill the payload exactly. After a fault there are no records.
    pub(crate) fn finish(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.feed(payload);
        let result = self.check(payload.len());
        match result {
            Ok(()) => self.starts.push(payload.len() as u32 + 4),
            Err(_) => self.starts.clear(),
        }
        result
    }

    fn check(&self, payload_len: usize) -> Result<(), Fault> {
        let (found, records) = (self.starts.len() as u32, self.records);
        if self.at > payload_len {
            // The length of the last one found leads past the end.
            let record = found.saturating_sub(1);
            return Err(Fault::RecordOverrun { record, records });
        }
        if found < records {
            return Err(Fault::RecordOverrun {
                record: found,
                records,
            });
        }
        match payload_len - self.at {
            0 => Ok(()),
            extra => Err(Fault::TrailingBytes {
                extra: extra as u64,
                records,
            }),
        }
    }

    pub(crate) fn starts(&self) -> &[u32] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(payload: &[u8], records: u32, step: usize) -> Result<Vec<u32>, Fault> {
        let mut splitter = Splitter::default();
        splitter.begin(records, payload.len());
        for end in (0..payload.len()).step_by(step) {
            splitter.feed(&payload[..end]);
        }
        splitter.finish(payload)?;
        Ok(splitter.starts().to_vec())
    }

    #[test]
    fn records_must_fill_the_payload_exactly() {
        let payload = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc";
        for step in [1, 2, 5, 100] {
            assert_eq!(split(payload, 3, step).unwrap(), [4, 9, 13, 19]);
            let trailing = Fault::TrailingBytes { extra: 6, records: 2 };
            assert_eq!(split(payload, 2, step), Err(trailing));
            let overrun = |record, records| Fault::RecordOverrun { record, records };
            assert_eq!(split(payload, 4, step), Err(overrun(3, 4)));
            assert_eq!(split(&payload[..14], 3, step), Err(overrun(2, 3)));
            assert_eq!(split(&payload[..11], 3, step), Err(overrun(2, 3)));
        }
        assert_eq!(split(b"", 0, 1).unwrap(), [4]);
    }

    #[test]
    fn a_lying_count_reserves_no_memory() {
        let mut splitter = Splitter::default();
        splitter.begin(u32::MAX, 8);
        splitter.finish(&[0; 8]).unwrap_err();
        assert!(splitter.starts.capacity() < 100);
    }
}
