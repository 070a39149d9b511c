//! The port to the file index: the content of each stored file, and which upload belongs to which sender's file.
//!
//! Every row is a hint: jobs change files without the service, so a row is compared with the file's stamp before it is used. A
//! lost row costs time, and checks (`crate::check`) cover one file less.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

use std::io;

use super::Moved;
use crate::digest::Digest;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::Stamp;
use crate::staging::StagedId;

/// A file and its content when it was last stored or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedFile {
    pub place: Place,
    pub stamp: Stamp,
    pub digest: Digest,
}

/// The file index. Each change of the rows of files is one transaction.
pub trait FileIndex: Send + Sync {
    /// Records files; replaces existing rows.
    fn record(&self, files: &[IndexedFile]) -> io::Result<()>;

    /// The rows of some files of a space, in the order of `paths`.
    fn find(&self, space: &Space, paths: &[RelPath]) -> io::Result<Vec<Option<(Stamp, Digest)>>>;

    /// Removes the row of a file, or of all files below a folder.
    fn forget(&self, place: &Place) -> io::Result<()>;

    /// Replaces this very row, or removes it; does nothing if it has changed since it was read. Rows below its path stay.
    fn replace(&self, row: &IndexedFile, found: Option<(Stamp, Digest)>) -> io::Result<()>;

    /// Moves the rows of a renamed file or folder to its new place; replaces the rows there.
    fn moved(&self, moved: &Moved) -> io::Result<()>;

    /// Every row.
    fn all(&self) -> io::Result<Vec<IndexedFile>>;

    /// The upload that was started with a key.
    fn upload(&self, key: &Digest) -> io::Result<Option<StagedId>>;

    /// Records which upload was started with a key.
    fn record_upload(&self, key: &Digest, id: &StagedId) -> io::Result<()>;

    /// All uploads that were started with a key.
    fn uploads(&self) -> io::Result<Vec<StagedId>>;

    /// Removes the keys of uploads that no longer exist.
    fn forget_uploads(&self, gone: &[StagedId]) -> io::Result<()>;
}
