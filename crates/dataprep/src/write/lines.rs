//! Records as lines of text.

use std::io::Write;
use std::path::Path;

use super::{Destination, Sink, SinkError};
use crate::error::DataError;
use crate::packed::PackedFile;

pub(super) struct Lines {
    destination: Destination,
    file: PackedFile,
}

impl Lines {
    pub(super) fn create(path: &Path) -> Result<Self, DataError> {
        let (destination, file) = Destination::create(path)?;
        Ok(Self { destination, file })
    }
}

impl Sink for Lines {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError> {
        if record.contains(&b'\n') {
            return Err(SinkError::Record(
                "contains a line end, so it cannot be a line".to_owned(),
            ));
        }
        if record.ends_with(b"\r") {
            let problem = "ends with a carriage return, which would be read as part of the line's end";
            return Err(SinkError::Record(problem.to_owned()));
        }
        self.file
            .write_all(record)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|e| self.destination.failed(e).into())
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        self.destination.publish(self.file)
    }
}
