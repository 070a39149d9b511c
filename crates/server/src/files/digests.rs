//! Digests of files, in one go or a stretch at a time. Whoever asks for one hears what the disk has: what is remembered only
//! tells whether that is what was stored.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use paddlecloud_pfs::content::{Hashing, Hint};
use paddlecloud_pfs::root::Stamp;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Digest, Mtime, Place, RootError};

use super::{Files, FilesError, Reached};

/// More hints are not kept: they are a convenience, and memory is not endless.
const MOST_HINTS: usize = 1_000_000;

/// A file that is being read for its digest.
pub(super) struct Reading {
    reached: Reached,
    pub(super) file: Arc<dyn ReadAt>,
    hashing: Hashing,
    began: Mtime,
}

impl Files {
    /// The digest of a file; `None` for what is no file.
    pub(super) fn digest(&self, reached: &Reached) -> Result<Option<Digest>, FilesError> {
        let Some(mut reading) = self.begin_reading(reached)? else {
            return Ok(None);
        };
        loop {
            if let Some(digest) = reading.read_on(self)? {
                return Ok(Some(digest));
            }
        }
    }

    /// The same for somebody who reads on by himself.
    pub(super) fn begin_reading(&self, reached: &Reached) -> Result<Option<Box<Reading>>, FilesError> {
        let file = match reached.root.open_file(&reached.place.path) {
            Err(RootError::IsAFolder(_) | RootError::NotAFile(_)) => return Ok(None),
            other => other.map_err(reached.failed())?,
        };
        Ok(Some(Box::new(Reading {
            reached: reached.clone(),
            file,
            hashing: Hashing::default(),
            began: Mtime::from(SystemTime::now()),
        })))
    }

    pub(super) fn remember(&self, place: &Place, stamp: Stamp, digest: Digest) {
        let hint = Hint {
            place: place.clone(),
            stamp,
            digest,
        };
        self.0.hints.record_within(hint, MOST_HINTS);
    }
}

impl Reading {
    /// Reads on until then, at least one stretch; the digest when the file is read, which is then remembered.
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
        if files.sound(&self.reached, &stamp, &digest)? && stamp.is_settled(self.began) {
            files.remember(&self.reached.place, stamp, digest);
        }
        Ok(Some(digest))
    }
}
