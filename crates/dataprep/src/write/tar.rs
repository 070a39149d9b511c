//! Records as samples of a WebDataset archive.

use std::path::Path;

use tar::{Builder, Header};

use super::{Destination, Sink, SinkError};
use crate::error::DataError;
use crate::packed::PackedFile;
use crate::sample::Sample;

pub(super) struct Samples {
    destination: Destination,
    archive: Builder<PackedFile>,
    /// The extension of files that contain an unchanged record, numbered.
    field: Option<String>,
    number: u64,
    last_key: Option<String>,
}

impl Samples {
    pub(super) fn create(path: &Path, field: Option<String>) -> Result<Self, DataError> {
        let (destination, file) = Destination::create(path)?;
        Ok(Self {
            destination,
            archive: Builder::new(file),
            field,
            number: 0,
            last_key: None,
        })
    }

    /// Owner and time are zero: the same records create the same archive.
    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DataError> {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        self.archive
            .append_data(&mut header, name, bytes)
            .map_err(|e| self.destination.failed(e))
    }

    fn append_sample(&mut self, sample: &Sample) -> Result<(), SinkError> {
        if sample.files.is_empty() {
            return Err(SinkError::Record("is a sample without files".to_owned()));
        }
        if self.last_key.as_deref() == Some(&sample.key) {
            let problem = format!("has the same key `{}` as the one before it", sample.key);
            return Err(SinkError::Record(problem));
        }
        for (extension, _) in &sample.files {
            let name = format!("{}.{extension}", sample.key);
            // A name must lead back to the same key, and not out of the archive.
            let is_safe =
                !name.starts_with('/') && !name.split('/').any(|part| part == ".." || part.is_empty());
            if !is_safe || Sample::split_name(&name) != Some((&sample.key, extension)) {
                return Err(SinkError::Record(format!(
                    "would be named `{name}`, which is not a valid sample name"
                )));
            }
            self.append(
                &name,
                sample.file(extension).expect("the sample has its own files"),
            )?;
        }
        self.last_key = Some(sample.key.clone());
        Ok(())
    }
}

impl Sink for Samples {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError> {
        match self.field.clone() {
            Some(extension) => {
                self.append(&format!("{:09}.{extension}", self.number), record)?;
            }
            None => {
                let sample = Sample::of_record(record).map_err(SinkError::Record)?;
                self.append_sample(&sample)?;
            }
        }
        self.number += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        let Self {
            destination, archive, ..
        } = *self;
        let file = archive.into_inner().map_err(|e| destination.failed(e))?;
        destination.publish(file)
    }
}
