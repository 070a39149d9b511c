//! Writes a RecordIO file that appears under its name when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use crate::atomic_file::AtomicFile;
use crate::error::WriteError;
use crate::layout::Layout;
use crate::stored_index;
use crate::writer::{WriteOptions, Writer, Written};

const BUFFER_LEN: usize = 256 << 10;

/// Whether [`FileWriter`] writes an index beside the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexFile {
    #[default]
    None,
    Stored,
}

/// Writes a file under a temporary name; [`FileWriter::finish`] makes it durable and renames it.
///
/// If it is dropped before that, it leaves nothing behind, and an existing file of that name is untouched.
pub struct FileWriter {
    writer: Writer<BufWriter<File>>,
    file: AtomicFile,
    index: IndexFile,
}

impl FileWriter {
    pub fn create(path: impl AsRef<Path>, options: WriteOptions) -> Result<Self, WriteError> {
        Self::create_with_index(path, options, IndexFile::None)
    }

    pub fn create_with_index(
        path: impl AsRef<Path>,
        options: WriteOptions,
        index: IndexFile,
    ) -> Result<Self, WriteError> {
        let path = path.as_ref();
        let file = AtomicFile::create(path)?;
        let handle = file.file().try_clone().map_err(|e| WriteError::io(path, e))?;
        let writer = Writer::named(BufWriter::with_capacity(BUFFER_LEN, handle), path, options)?;
        let writer = match index {
            IndexFile::None => writer,
            IndexFile::Stored => writer.keep_headers(),
        };
        Ok(Self { writer, file, index })
    }

    pub fn write(&mut self, record: &[u8]) -> Result<(), WriteError> {
        self.writer.write(record)
    }

    /// Ends the current chunk here, full or not.
    pub fn flush_chunk(&mut self) -> Result<(), WriteError> {
        self.writer.flush_chunk()
    }

    /// Writes the rest, makes it durable and publishes it.
    pub fn finish(mut self) -> Result<Written, WriteError> {
        let (_, written, headers) = self.writer.finish_with_headers()?;
        let path = self.file.path().to_owned();
        // The old index is removed first: a crash in between leaves a file without an index, never with a wrong one.
        remove_if_exists(&stored_index::index_path(&path))?;
        self.file.publish()?;
        if self.index == IndexFile::Stored {
            stored_index::store(&path, Layout::Cloud, headers.into_iter())?;
        }
        Ok(written)
    }
}

fn remove_if_exists(path: &Path) -> Result<(), WriteError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(WriteError::io(path, e)),
        _ => Ok(()),
    }
}
