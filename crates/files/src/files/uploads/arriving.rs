//! Receives bytes of an upload: a chunk, which counts once it is complete, or a range, which counts as it arrives.

use std::sync::Arc;

use paddlecloud_pfs::content::{ChunkName, ChunkWriter};

use super::Live;
use crate::files::{Files, FilesError, Takes};

/// A chunk that is being received; it counts only after `finish`.
pub struct ChunkIn {
    pub(super) files: Files,
    pub(super) live: Arc<Live>,
    pub(super) writer: ChunkWriter,
    pub(super) name: ChunkName,
}

impl Takes for ChunkIn {
    type Done = ();

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        let _acting = self.files.act(self.live.space())?;
        let written = self.writer.write(bytes);
        self.live.checked(&self.files, written)
    }

    /// Accepts the chunk if it is complete and has the announced name.
    fn finish(self) -> Result<(), FilesError> {
        let _acting = self.files.act(self.live.space())?;
        let finished = self.writer.finish(Some(self.name));
        self.live.record_request();
        self.live.checked(&self.files, finished)
    }
}

/// Bytes at any offset that are being received; each piece counts immediately.
pub struct RangeIn {
    pub(super) files: Files,
    pub(super) live: Arc<Live>,
    pub(super) offset: u64,
    pub(super) left: u64,
}

impl Takes for RangeIn {
    type Done = ();

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left =
            left.ok_or_else(|| FilesError::BadRequest("more bytes came than were announced".to_owned()))?;
        let _acting = self.files.act(self.live.space())?;
        let put = self.live.assembly.put_range(self.offset, bytes);
        self.live.checked(&self.files, put)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Checks that all announced bytes arrived.
    fn finish(self) -> Result<(), FilesError> {
        match self.left {
            0 => {
                self.live.record_request();
                Ok(())
            }
            left => Err(FilesError::BadRequest(format!("{left} bytes are missing"))),
        }
    }
}
