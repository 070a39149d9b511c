//! Digests of files: as recorded in the index, and computed from the disk.
//!
//! A caller who asks for a digest gets that of the bytes on disk; the index only says whether they are what was stored.

use std::io;
use std::time::SystemTime;

use paddlecloud_api::files::SMALL_FILE;
use paddlecloud_pfs::content::{FileIndex, IndexedFile, hash_file};
use paddlecloud_pfs::root::Stamp;
use paddlecloud_pfs::{Digest, Mtime, Place, RelPath, RootError, Space};

use super::{Files, FilesError, Reached};

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
        let path = &reached.place.path;
        let file = match reached.root.open_file(path) {
            Err(RootError::IsAFolder(_) | RootError::NotAFile(_)) => return Ok(None),
            other => other.map_err(reached.failed())?,
        };
        let began = Mtime::from(SystemTime::now());
        let digest = hash_file(&*file).map_err(|error| {
            reached.failed()(match error.kind() {
                // The file was truncated.
                io::ErrorKind::UnexpectedEof => RootError::Changing(path.clone()),
                _ => RootError::io("read", path, error),
            })
        })?;
        let stamp = file.meta().stamp;
        let indexed = indexed
            .filter(|(seen, _)| *seen == stamp)
            .map(|(_, digest)| digest);
        let is_sound = self.is_sound(reached, &stamp, indexed, &digest)?;
        // Reading a small file again is faster than recording it.
        if is_sound && indexed.is_none() && stamp.size > SMALL_FILE && stamp.is_settled(began) {
            self.record(&reached.place, stamp, digest);
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
