//! What to do about damage, and the account of what was lost.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::error::ReadError;
use crate::fault::Fault;

/// What a reader does about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Stop with an error that names file, offset and fault.
    #[default]
    Strict,
    /// Continue at the next valid chunk and keep account, up to a limit.
    Skip(SkipBound),
}

/// How much may be lost before skipping becomes an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipBound {
    pub max_bytes: u64,
    pub max_ranges: u64,
}

impl SkipBound {
    /// For tools that report all damage, such as `verify`.
    pub const UNLIMITED: Self = Self {
        max_bytes: u64::MAX,
        max_ranges: u64::MAX,
    };

    /// Fails if more has been lost than allowed; `offset` is the reader's position.
    pub(crate) fn check(self, lost: LossTotal, file: &Path, offset: u64) -> Result<(), ReadError> {
        if lost.ranges <= self.max_ranges && lost.bytes <= self.max_bytes {
            return Ok(());
        }
        Err(ReadError::TooMuchDamage {
            file: file.to_owned(),
            bound: self,
            ranges: lost.ranges,
            bytes: lost.bytes,
            offset,
        })
    }
}

/// How much has been lost so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossTotal {
    pub(crate) ranges: u64,
    pub(crate) bytes: u64,
}

impl fmt::Display for SkipBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} ranges, {} bytes", self.max_ranges, self.max_bytes)
    }
}

/// How many records a lost range had.
///
/// The count is known if the range is one chunk whose header fits its surroundings and, as far as the bytes still show,
/// its payload; a stored index makes it certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostRecords {
    Known(u64),
    Unknown,
}

impl LostRecords {
    pub(crate) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a + b),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for LostRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(count) => count.fmt(f),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Bytes that were skipped, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRange {
    pub bytes: Range<u64>,
    pub records: LostRecords,
    pub fault: Fault,
}

/// Everything a reader has skipped so far, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamageReport {
    ranges: Vec<LostRange>,
    lost_bytes: u64,
}

impl DamageReport {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn ranges(&self) -> &[LostRange] {
        &self.ranges
    }

    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    pub fn lost_records(&self) -> LostRecords {
        let counts = self.ranges.iter().map(|r| r.records);
        counts.fold(LostRecords::Known(0), LostRecords::plus)
    }

    pub(crate) fn push(&mut self, range: LostRange) {
        self.lost_bytes += range.bytes.end - range.bytes.start;
        self.ranges.push(range);
    }

    pub(crate) fn tally(&self) -> LossTotal {
        LossTotal {
            ranges: self.ranges.len() as u64,
            bytes: self.lost_bytes,
        }
    }
}
