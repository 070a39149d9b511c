//! Counts the records in lost bytes, if the bytes still show it.

use crate::chunk::{Limits, Opener, Records, record_end};
use crate::compressor::Compressor;
use crate::damage::LostRecords;
use crate::fault::Fault;
use crate::layout::{HEADER_LEN, Header, Layout, RawHeader};
use crate::snappy;

/// Records in a chunk whose position is certain (its neighbours agree) but whose contents are not.
///
/// `unpacked` is the decompressed payload, useful only if it matched its checksum.
pub(crate) fn in_chunk(
    header: &Header,
    stored: &[u8],
    unpacked: Records<'_>,
    fault: &Fault,
    limits: &Limits,
) -> LostRecords {
    let claimed = LostRecords::Known(header.records.into());
    match fault {
        // The payload is what was written, so it can be counted, unless the compressor is wrong.
        Fault::RecordOverrun { .. } | Fault::TrailingBytes { .. } => match count(unpacked.payload()) {
            LostRecords::Unknown => in_payload(header.checksum, header.records, stored, limits),
            counted => counted,
        },
        Fault::Checksum { .. } if is_consistent(header, stored) => claimed,
        Fault::Checksum { .. } => LostRecords::Unknown,
        _ => claimed,
    }
}

/// Whether a damaged payload still has the structure that its header describes.
fn is_consistent(header: &Header, stored: &[u8]) -> bool {
    match header.compressor {
        Compressor::None => count(stored) == LostRecords::Known(header.records.into()),
        Compressor::Snappy => snappy::frames_fit(stored),
        Compressor::Gzip | Compressor::Zstd => true,
    }
}

/// Records in `lost`, bytes from the start of a damaged chunk to the next valid one.
///
/// Known only if this is a single chunk with damage to its header alone, or an uncompressed one whose records are as
/// many as its header says.
pub(crate) fn in_gap(lost: &[u8], layout: Option<Layout>, limits: &Limits) -> LostRecords {
    let layouts: &[Layout] = match layout {
        Some(Layout::Cloud) => &[Layout::Cloud],
        Some(Layout::Fluid) => &[Layout::Fluid],
        None => &Layout::ALL,
    };
    let Some((header, payload)) = lost.split_first_chunk::<HEADER_LEN>() else {
        return LostRecords::Unknown;
    };
    let count = |layout: &Layout| {
        let raw = RawHeader::split(header, *layout);
        in_payload(raw.checksum, raw.records, payload, limits)
    };
    let mut counts = layouts.iter().map(count);
    counts
        .find(|count| *count != LostRecords::Unknown)
        .unwrap_or(LostRecords::Unknown)
}

/// Records in a payload, given its header but without trusting the rest of it.
fn in_payload(checksum: u32, records: u32, payload: &[u8], limits: &Limits) -> LostRecords {
    if payload.is_empty() {
        return LostRecords::Unknown;
    }
    let plain = count(payload);
    if crc32fast::hash(payload) != checksum {
        let claimed = LostRecords::Known(records.into());
        return if plain == claimed {
            claimed
        } else {
            LostRecords::Unknown
        };
    }
    if plain != LostRecords::Unknown {
        return plain;
    }
    let opens = |compressor| {
        let header = Header {
            checksum,
            compressor,
            stored_len: payload.len() as u32,
            records,
        };
        Opener::default().open(&header, payload, limits).is_ok()
    };
    match Compressor::ALL.into_iter().any(opens) {
        true => LostRecords::Known(records.into()),
        false => LostRecords::Unknown,
    }
}

/// Counts records that fill `payload` exactly.
fn count(payload: &[u8]) -> LostRecords {
    let (mut at, mut records) = (0, 0);
    while at < payload.len() {
        let Some(end) = record_end(payload, at) else {
            return LostRecords::Unknown;
        };
        at = end;
        records += 1;
    }
    LostRecords::Known(records)
}
