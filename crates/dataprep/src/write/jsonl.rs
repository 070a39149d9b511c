//! Records as lines of JSON.

use std::io::Write;
use std::path::Path;

use super::{Destination, Sink, SinkError};
use crate::error::DataError;
use crate::json_row;
use crate::packed::PackedFile;

pub(super) struct Values {
    destination: Destination,
    file: PackedFile,
    field: Option<String>,
    line: Vec<u8>,
}

impl Values {
    pub(super) fn create(path: &Path, field: Option<String>) -> Result<Self, DataError> {
        let (destination, file) = Destination::create(path)?;
        Ok(Self {
            destination,
            file,
            field,
            line: Vec::new(),
        })
    }

    fn fill_line(&mut self, record: &[u8]) -> Result<(), String> {
        match &self.field {
            Some(name) => {
                let text =
                    std::str::from_utf8(record).map_err(|_| "is not UTF-8, so it cannot be JSON text")?;
                json_row::object(std::iter::once((name.as_str(), text)), &mut self.line);
            }
            None => {
                json_row::check(record)?;
                self.line.clear();
                // Between values a line end means the same as a space; inside a string there can be none.
                let on_one_line = |byte: &u8| {
                    if matches!(byte, b'\n' | b'\r') {
                        b' '
                    } else {
                        *byte
                    }
                };
                self.line.extend(record.trim_ascii().iter().map(on_one_line));
            }
        }
        self.line.push(b'\n');
        Ok(())
    }
}

impl Sink for Values {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError> {
        self.fill_line(record).map_err(SinkError::Record)?;
        self.file
            .write_all(&self.line)
            .map_err(|e| self.destination.failed(e).into())
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        self.destination.publish(self.file)
    }
}
