//! The first record of a checkpoint's file: what it is based on, and how far training was.

use std::path::Path;

use crate::checkpoint::{CheckpointError, FileReader};
use crate::wire::{Reader, WireError, Writer};

use super::kind;

/// The progress of training at a checkpoint.
pub(super) struct Header {
    pub(super) step: u64,
    /// The complete checkpoint on which this server's file of changed rows is based.
    pub(super) base: Option<u64>,
    /// Per trainer: its next step, and the step before which it left.
    pub(super) progress: Vec<(u64, Option<u64>)>,
    /// A server that resumes alone continues in this epoch.
    pub(super) epoch: u64,
}

impl Header {
    /// Training that has not begun.
    pub(super) fn start() -> Header {
        Header {
            step: 0,
            base: None,
            progress: Vec::new(),
            epoch: 1,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut head = Writer::new();
        head.u64(self.step)
            .u8(u8::from(self.base.is_some()))
            .u64(self.base.unwrap_or(0))
            .u32(self.progress.len() as u32);
        for (next, left) in &self.progress {
            head.u64(*next)
                .u8(u8::from(left.is_some()))
                .u64(left.unwrap_or(0));
        }
        head.u64(self.epoch).finish()
    }

    fn decode(head: &[u8]) -> Result<Header, WireError> {
        let mut head = Reader::new(head);
        let step = head.u64()?;
        let (has_base, base) = (head.flag("a base")?, head.u64()?);
        let count = head.count("the trainers of a checkpoint", 17)?;
        let progress = (0..count).map(|_| {
            let (next, has_left, left) = (head.u64()?, head.flag("`left`")?, head.u64()?);
            Ok((next, has_left.then_some(left)))
        });
        let progress = progress.collect::<Result<_, WireError>>()?;
        Ok(Header {
            step,
            base: has_base.then_some(base),
            progress,
            epoch: head.u64()?,
        })
    }
}

/// Reads the header of one server's file.
pub(super) fn read_header(path: &Path) -> Result<Header, CheckpointError> {
    let mut reader = FileReader::open(path)?;
    match reader.next()? {
        Some(record) if record.kind == kind::HEADER => {
            Header::decode(&record.head).map_err(|error| reader.damaged(error))
        }
        _ => Err(reader.damaged("it has no header")),
    }
}
