//! Memory-mapped files that cannot be truncated meanwhile.
//!
//! Reading a mapped page that is gone raises SIGBUS and ends the process. The kernel rules that out only for a memory
//! file sealed against shrinking. For all others the caller must guarantee it, so that constructor is `unsafe`;
//! `RecordFile` needs neither.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::chunk::Limits;
use crate::error::ReadError;
use crate::slice::SliceReader;

/// A mapped file, ready to be read without copying.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    name: PathBuf,
}

impl MappedFile {
    /// Maps a memory file that is sealed against shrinking and writing; refuses any other.
    ///
    /// Seals cannot be removed, so every page stays there, unchanged, as long as the map does.
    #[cfg(target_os = "linux")]
    pub fn map_sealed(file: &File, name: &Path) -> Result<Self, ReadError> {
        use rustix::fs::{SealFlags, fcntl_get_seals};
        use std::io;
        let needed = SealFlags::SHRINK | SealFlags::WRITE;
        let seals = fcntl_get_seals(file).map_err(|e| ReadError::io(name, e.into()))?;
        if !seals.contains(needed) {
            let unsealed = io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is not sealed against shrinking and writing",
            );
            return Err(ReadError::io(name, unsealed));
        }
        // SAFETY: the seals just checked permanently forbid that anyone truncates or changes the file.
        unsafe { Self::map(file, name) }
    }

    /// Maps any file.
    ///
    /// # Safety
    ///
    /// As long as the map lives, nobody may truncate the file (reading then raises SIGBUS) or change it (slices of it
    /// would change, which Rust does not allow).
    pub unsafe fn map(file: &File, name: &Path) -> Result<Self, ReadError> {
        // SAFETY: the caller promises that the file keeps its length and contents.
        let map = unsafe { Mmap::map(file) }.map_err(|e| ReadError::io(name, e))?;
        Ok(Self {
            map,
            name: name.to_owned(),
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub fn reader(&self, limits: Limits) -> SliceReader<'_> {
        SliceReader::named(&self.map, &self.name, limits)
    }
}
