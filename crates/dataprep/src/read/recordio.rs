//! Records of a RecordIO file, or of one inside gzip.

use std::ops::Range;

use paddlecloud_recordio::{Batch, DamageReport, Limits, RangeReader, ReadAt, StreamReader};

use super::{Dataset, Seen, Visit};
use crate::error::DataError;
use crate::input::Input;

pub(super) fn each_in_file(
    data: &Dataset,
    records: Range<u64>,
    visit: &mut Visit<'_>,
) -> Result<DamageReport, DataError> {
    let file = data.record_file(data.options.policy)?;
    let end = records.end.min(file.len());
    let mut reader = file.range(records.start.min(end)..end)?;
    let mut progress = ChunkProgress::default();
    let mut one = Batch::new();
    // One at a time and by copy: the reader knows the next number only between two reads, and records lost to damage
    // keep theirs.
    while reader.read_batch(1, &mut one)? == 1 {
        let number = reader.position() - 1;
        let seen = Seen {
            number,
            bytes: one.get(0),
            position: progress.at(&reader, number),
        };
        if visit(seen)?.is_break() {
            break;
        }
        one.clear();
    }
    Ok(reader.damage().clone())
}

/// How far the chunk of the current record reaches into the file.
#[derive(Default)]
struct ChunkProgress {
    records: Range<u64>,
    end: u64,
}

impl ChunkProgress {
    fn at<S: ReadAt>(&mut self, reader: &RangeReader<S>, record: u64) -> u64 {
        if !self.records.contains(&record)
            && let Some(n) = reader.index().chunk_of(record)
        {
            let chunk = &reader.index().chunks()[n];
            (self.records, self.end) = (chunk.records(), chunk.bytes().end);
        }
        self.end
    }
}

pub(super) fn each_in_stream(
    data: &Dataset,
    input: Input,
    visit: &mut Visit<'_>,
) -> Result<DamageReport, DataError> {
    let position = input.position;
    let mut reader =
        StreamReader::named(input.reader, &data.path, Limits::default()).policy(data.options.policy);
    let mut one = Batch::new();
    // By copy, for the reason given above.
    while reader.read_batch(1, &mut one)? == 1 {
        let seen = Seen {
            number: reader.position() - 1,
            bytes: one.get(0),
            position: position.get(),
        };
        if visit(seen)?.is_break() {
            break;
        }
        one.clear();
    }
    Ok(reader.damage().clone())
}
