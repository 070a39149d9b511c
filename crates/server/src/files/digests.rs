//! Digests of files: as recorded in the index, and computed from the disk, at once or step by step.
//!
//! A caller who asks for a digest gets that of the bytes on disk; the index only says whether they are what was stored.

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use paddlecloud_api::files::SMALL_FILE;
use paddlecloud_pfs::content::{FileIndex, Hashing, IndexedFile};
use paddlecloud_pfs::root::Stamp;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Digest, Mtime, Place, RelPath, RootError, Space};

use super::{Files, FilesError, Reached};

/// A file that is being read for its digest.
pub(super) struct Reading {
    reached: Reached,
    pub(super) file: Arc<dyn ReadAt>,
    indexed: Option<(Stamp, Digest)>,
    hashing: Hashing,
    began: Mtime,
}

impl Files {
    pub(super) fn index(&self) -> &dyn FileIndex {
        &*self.0.index
    }

    /// Looks up some files in the index, in one query. If the index is unreadable, nothing is known about them.
    pub(super) fn indexed(&self, space: &Space, paths: &[RelPath]) -> Vec<Option<(Stamp, Digest)>> {
        self.index().find(space, paths).unwrap_or_else(|error| {
            tracing::warn!(%error, "the file index cannot be read");
            vec![None; paths.len()]
        })
    }

    pub(super) fn indexed_file(&self, place: &Place) -> Option<(Stamp, Digest)> {
        self.indexed(&place.space, std::slice::from_ref(&place.path))
            .pop()?
    }

    /// The recorded digest of a file that still has this stamp.
    pub(super) fn indexed_digest(&self, place: &Place, stamp: &Stamp) -> Option<Digest> {
        let (seen, digest) = self.indexed_file(place)?;
        (seen == *stamp).then_some(digest)
    }

    /// Records what a file contains.
    pub(super) fn record(&self, place: &Place, stamp: Stamp, digest: Digest) {
        let place = place.clone();
        logged(self.index().record(&[IndexedFile { place, stamp, digest }]));
    }

    /// Removes the record of a file, or of all files below a folder.
    pub(super) fn forget(&self, place: &Place) {
        logged(self.index().forget(place));
    }

    /// The digest of a file; `None` if it is not a file.
    pub(super) fn digest(
        &self,
        reached: &Reached,
        indexed: Option<(Stamp, Digest)>,
    ) -> Result<Option<Digest>, FilesError> {
        let Some(mut reading) = self.begin_reading(reached, indexed)? else {
            return Ok(None);
        };
        loop {
            if let Some(digest) = reading.read_on(self)? {
                return Ok(Some(digest));
            }
        }
    }

    /// The same for a caller that reads step by step.
    pub(super) fn begin_reading(
        &self,
        reached: &Reached,
        indexed: Option<(Stamp, Digest)>,
    ) -> Result<Option<Box<Reading>>, FilesError> {
        let file = match reached.root.open_file(&reached.place.path) {
            Err(RootError::IsAFolder(_) | RootError::NotAFile(_)) => return Ok(None),
            other => other.map_err(reached.failed())?,
        };
        Ok(Some(Box::new(Reading {
            reached: reached.clone(),
            file,
            indexed,
            hashing: Hashing::default(),
            began: Mtime::from(SystemTime::now()),
        })))
    }
}

impl Reading {
    /// Reads until the deadline, at least one step. Returns the digest at the end of the file.
    pub(super) fn read_until(&mut self, files: &Files, until: Instant) -> Result<Option<Digest>, FilesError> {
        loop {
            let read = self.read_on(files)?;
            if read.is_some() || Instant::now() >= until {
                return Ok(read);
            }
        }
    }

    fn read_on(&mut self, files: &Files) -> Result<Option<Digest>, FilesError> {
        let read = self.hashing.read_on(&*self.file);
        let Some(digest) = read.map_err(|error| FilesError::Disk(error, "read"))? else {
            return Ok(None);
        };
        let stamp = self.file.meta().stamp;
        let indexed = self
            .indexed
            .filter(|(seen, _)| *seen == stamp)
            .map(|(_, digest)| digest);
        let is_sound = files.is_sound(&self.reached, &stamp, indexed, &digest)?;
        // Reading a small file again is faster than recording it.
        if is_sound && indexed.is_none() && stamp.size > SMALL_FILE && stamp.is_settled(self.began) {
            files.record(&self.reached.place, stamp, digest);
        }
        Ok(Some(digest))
    }
}

/// Logs a failed write to the index. Rows are hints, so the request does not fail: a later check reports the file as changed.
pub(super) fn logged(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(%error, "the file index cannot be written");
    }
}
