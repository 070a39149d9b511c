//! The port to the file index: which content each stored file had, and which upload belongs to which sender's file.
//!
//! Every row is a hint. The published file is the only copy of its bytes, and jobs change it without the service, so each answer is
//! compared with the file's stamp before it is used. Losing a row costs time, and a check (`crate::check`) knows one file less.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

use std::io;

use super::Moved;
use crate::digest::Digest;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::Stamp;
use crate::staging::StagedId;

/// A file and the content it had when it was last stored or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedFile {
    pub place: Place,
    pub stamp: Stamp,
    pub digest: Digest,
}

/// Files up to this size are not found by their digest: they are many, and sending one again costs little.
pub const LARGE: u64 = 1 << 20;

/// The file index. Each method is one transaction.
pub trait FileIndex: Send + Sync {
    /// Records files, in the place of what was known of them.
    fn record(&self, files: &[IndexedFile]) -> io::Result<()>;

    /// What is known of some files of a space, in the order asked for.
    fn find(&self, space: &Space, paths: &[RelPath]) -> io::Result<Vec<Option<(Stamp, Digest)>>>;

    /// Up to `most` files larger than [`LARGE`] with this content in one of these spaces.
    fn with_digest(&self, digest: Digest, spaces: &[Space], most: usize) -> io::Result<Vec<IndexedFile>>;

    /// Forgets a file, or all files below a folder.
    fn forget(&self, place: &Place) -> io::Result<()>;

    /// Carries the rows of a moved file or folder to its new place. Forgets what was known there before.
    fn moved(&self, moved: &Moved) -> io::Result<()>;

    /// Puts what a check found in the place of the row it had read, or removes that row; a row that changed since stays.
    fn replace(&self, read: &IndexedFile, found: Option<(Stamp, Digest)>) -> io::Result<()>;

    /// Every row.
    fn all(&self) -> io::Result<Vec<IndexedFile>>;

    /// The upload a key began.
    fn upload(&self, key: &Digest) -> io::Result<Option<StagedId>>;

    /// Notes which upload a key began.
    fn record_upload(&self, key: &Digest, id: &StagedId) -> io::Result<()>;

    /// All uploads that keys have begun.
    fn uploads(&self) -> io::Result<Vec<StagedId>>;

    /// Forgets the keys of uploads that are gone.
    fn forget_uploads(&self, gone: &[StagedId]) -> io::Result<()>;
}

impl dyn FileIndex + '_ {
    /// The content of one file, if it still has the stamp that was recorded with it.
    pub fn digest_of(&self, place: &Place, stamp: &Stamp) -> io::Result<Option<Digest>> {
        let found = self.find(&place.space, std::slice::from_ref(&place.path))?;
        let known = found.into_iter().flatten().find(|(seen, _)| seen == stamp);
        Ok(known.map(|(_, digest)| digest))
    }
}
