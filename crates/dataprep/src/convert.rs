//! Writes the records of one file as another file.

use std::ops::ControlFlow;
use std::path::Path;

use paddlecloud_recordio::DamageReport;

use crate::error::DataError;
use crate::read::Dataset;
use crate::write::{self, SinkError, WriteOptions};

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    pub records: u64,
    /// Bytes of the records themselves.
    pub record_bytes: u64,
    /// What was skipped by the input's policy.
    pub damage: DamageReport,
}

/// Writes every record of `input` to `output`, which appears when it is complete; a failure leaves nothing behind.
///
/// `progress` receives the number of input bytes read so far.
pub fn convert(
    input: &Dataset,
    output: &Path,
    options: &WriteOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Converted, DataError> {
    let mut sink = write::open(output, options, input)?;
    let (mut records, mut record_bytes) = (0, 0);
    let damage = input.each(&mut |seen| {
        progress(seen.position);
        sink.write(seen.bytes).map_err(|error| match error {
            SinkError::Record(problem) => DataError::record(input.path(), seen.number, problem),
            SinkError::Failed(error) => error,
        })?;
        records += 1;
        record_bytes += seen.bytes.len() as u64;
        Ok(ControlFlow::Continue(()))
    })?;
    sink.finish()?;
    Ok(Converted {
        records,
        record_bytes,
        damage,
    })
}
