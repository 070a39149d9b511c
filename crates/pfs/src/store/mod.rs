//! The port behind which files are kept: what the service needs of any storage, in few words.
//!
//! Rights and quotas are decided before; a store does as it is told, inside the space it is told.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod local;

use std::io;

pub use self::local::LocalStore;
use crate::path::{Place, Space};
use crate::root::{Copied, DirEntry, Existing, FileAttributes, Meta, Root, RootError, Usage};

/// A storage backend. All methods block; all are safe to call from many threads.
///
/// Every implementation passes [`conformance`](self::conformance).
pub trait FileStore: Send + Sync {
    /// What the backend cannot do.
    fn limits(&self) -> StoreLimits;

    /// What is at a place. Links that lead out of the space lead nowhere.
    fn stat(&self, place: &Place) -> Result<Meta, RootError>;

    /// What lies directly in a folder, by name. Paths are relative to the space.
    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError>;

    /// Makes a folder and those on the way; one that is there already is fine.
    fn make_folder(&self, place: &Place) -> Result<(), RootError>;

    /// Removes a file, a link or an empty folder.
    fn remove(&self, place: &Place) -> Result<(), RootError>;

    /// Removes whatever is there with all below it.
    fn remove_all(&self, place: &Place) -> Result<(), RootError>;

    /// Moves a node in one step, also between spaces where the backend can.
    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError>;

    /// Copies a file or folder without its bytes leaving the storage's side.
    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Copied, RootError>;

    /// Opens a file for reading at any offset. What is opened stays readable when the name is replaced.
    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError>;

    /// Begins a new file, unseen until it is published. The folder it will lie in must exist by then.
    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError>;

    /// Bytes and files below a place.
    fn usage(&self, place: &Place) -> Result<Usage, RootError>;

    /// The space as a folder, where the backend is a file system: then chunks may arrive in any order.
    fn folder(&self, space: &Space) -> Result<Option<Root>, RootError>;
}

/// Reads a file that stays the same while it is open.
pub trait ReadAt: Send + Sync {
    /// Kind, size and times when it was opened.
    fn meta(&self) -> &Meta;

    /// Reads some bytes; zero at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// A file that is being written. Dropping it leaves nothing behind.
pub trait NewFile: Send {
    /// Adds bytes at the end; some backends know no other way.
    fn append(&mut self, bytes: &[u8]) -> Result<(), RootError>;

    /// Makes it durable and gives it its name in one step.
    fn publish(self: Box<Self>, existing: Existing) -> Result<Meta, RootError>;
}

/// What a backend cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Longest name of one file, in bytes.
    pub name: usize,
    /// Longest path inside a space, in bytes.
    pub path: usize,
    /// Whether names may be any bytes; otherwise they must be UTF-8.
    pub any_bytes: bool,
    /// Whether links, executable bits and times are kept.
    pub attributes: bool,
}
