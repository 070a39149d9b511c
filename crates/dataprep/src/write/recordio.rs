//! Records into a RecordIO file.

use std::num::NonZeroUsize;
use std::path::Path;

use paddlecloud_recordio::{FileWriter, IndexFile, WriteOptions as Chunking};

use super::{Packing, Sink, SinkError, WriteOptions, packing_of};
use crate::error::DataError;

pub(super) struct Records {
    writer: FileWriter,
}

impl Records {
    pub(super) fn create(path: &Path, options: &WriteOptions) -> Result<Self, DataError> {
        if packing_of(path) == Packing::Gzip {
            let problem = "would be RecordIO inside gzip, which no reader expects: use the compressor gzip";
            return Err(DataError::file(path, problem));
        }
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let chunking = Chunking::new()
            .compressor(options.compressor)
            .chunk_size(options.chunk_size)
            .threads(threads);
        let index = match options.with_index {
            true => IndexFile::Stored,
            false => IndexFile::None,
        };
        Ok(Self {
            writer: FileWriter::create_with_index(path, chunking, index)?,
        })
    }
}

impl Sink for Records {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError> {
        self.writer.write(record).map_err(|e| SinkError::Failed(e.into()))
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        self.writer.finish()?;
        Ok(())
    }
}
