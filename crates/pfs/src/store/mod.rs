//! The port to file storage: the operations that the service needs of any backend.
//!
//! Rights and quotas are checked by the callers; a store confines each operation to the given space.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod local;
mod patience;
mod remote;
mod space;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::time::Duration;

pub use self::local::LocalStore;
pub use self::remote::RemoteSpace;
pub use self::space::{Entries, OpenSpace};
use crate::path::{Place, Space};
use crate::quota::Amount;
use crate::relpath::RelPath;
use crate::root::{DirEntry, Existing, FileAttributes, Meta, Root, RootError, Usage};
use crate::source::Source;

/// A storage backend. All methods block; all are safe to call from many threads.
///
/// Every implementation passes [`conformance`](self::conformance).
pub trait FileStore: Send + Sync {
    /// The limits of the backend.
    fn limits(&self) -> StoreLimits;

    /// The location, for people; contains no secret.
    fn name(&self) -> String;

    /// The metadata of a place. A link that leads out of the space is not found.
    fn stat(&self, place: &Place) -> Result<Meta, RootError>;

    /// The entries directly in a folder, by name. Paths are relative to the space.
    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError>;

    /// Creates a folder and its parents; existing ones are fine.
    fn make_folder(&self, place: &Place) -> Result<(), RootError>;

    /// Removes a file, a link or an empty folder.
    fn remove(&self, place: &Place) -> Result<(), RootError>;

    /// Removes whatever is at a place, with everything below.
    fn remove_all(&self, place: &Place) -> Result<(), RootError>;

    /// Moves a node atomically, also between spaces if the backend can.
    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError>;

    /// Copies a file or folder inside the storage, without transferring its bytes.
    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Amount, RootError>;

    /// Opens a file for reading at any offset. It stays readable when the name is replaced.
    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError>;

    /// Starts a new file, hidden until it is published. Its folder must exist by then.
    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError>;

    /// Bytes and files below a place.
    fn usage(&self, place: &Place) -> Result<Usage, RootError>;

    /// The usage of unpublished files in a space, including foreign ones; zero if others cannot put any there.
    fn staged(&self, _space: &Space) -> Result<Usage, RootError> {
        Ok(Usage::default())
    }

    /// The space as a folder, if the backend is a file system: then chunks may arrive in any order.
    fn folder(&self, space: &Space) -> Result<Option<Root>, RootError>;

    /// Removes unpublished files of writers that are gone, if unchanged for `age`. Returns their number.
    fn sweep(&self, space: &Space, age: Duration) -> Result<u64, RootError>;

    /// The backend's own quota for a space in bytes, if any.
    fn quota(&self, _space: &Space) -> Result<Option<u64>, RootError> {
        Ok(None)
    }
}

/// An open file. Its content stays the same unless the file is written to in place.
pub trait ReadAt: Source {
    /// Kind, size and times when the file was opened.
    fn meta(&self) -> &Meta;

    /// Whether the file was not written to since it was opened. Removing or replacing it does not count. Files in a remote store
    /// are never written in place.
    fn is_as_opened(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// A file that is being written. Dropping it removes it.
pub trait NewFile: Send {
    /// Appends bytes; some backends support nothing else.
    fn append(&mut self, bytes: &[u8]) -> Result<(), RootError>;

    /// Makes the file durable and gives it its name atomically.
    fn publish(self: Box<Self>, existing: Existing) -> Result<Meta, RootError>;
}

/// The limits of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum length of a name, in bytes.
    pub name: usize,
    /// Maximum length of a path inside a space, in bytes.
    pub path: usize,
    /// Maximum number of names in a path inside a space.
    pub depth: usize,
    /// Allowed bytes in names.
    pub names: NameRule,
    /// Characters that names must not contain.
    pub without: &'static str,
    /// Whether symbolic links are supported.
    pub links: bool,
    /// Whether moves are atomic.
    pub moves_whole: bool,
    /// Whether an open file stays readable when it is replaced or removed. If not, reads fail; they never return bytes of another
    /// file.
    pub stays_open: bool,
    /// Whether a listing has all metadata. If not, every entry costs another request.
    pub lists_times: bool,
    /// A name reserved by the store; empty if there is none.
    pub own_name: &'static str,
    /// How many files to write concurrently.
    pub writers: usize,
}

/// Which bytes names may consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    AnyBytes,
    Utf8,
    Utf8NoControls,
}

impl fmt::Display for StoreLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "names of {} bytes, paths of {} bytes, {} folders deep",
            self.name, self.path, self.depth
        )?;
        match self.names {
            NameRule::AnyBytes => {}
            NameRule::Utf8 => f.write_str("; names are UTF-8")?,
            NameRule::Utf8NoControls => f.write_str("; names are UTF-8 without control characters")?,
        }
        if !self.without.is_empty() {
            write!(f, ", without `{}`", self.without)?;
        }
        if !self.own_name.is_empty() {
            write!(f, ", not called `{}`", self.own_name)?;
        }
        if !self.links {
            f.write_str("; no symbolic links")?;
        }
        if !self.moves_whole {
            f.write_str("; moving copies, then removes")?;
        }
        if !self.stays_open {
            f.write_str("; reading ends when a file is replaced")?;
        }
        Ok(())
    }
}

impl StoreLimits {
    /// Fails with the limit that a path exceeds.
    pub fn check(&self, path: &RelPath) -> Result<(), RootError> {
        let refused = |reason: String| {
            Err(RootError::Unsupported {
                path: path.clone(),
                reason,
            })
        };
        let bytes = path.as_bytes();
        if bytes.len() > self.path {
            return refused(format!("paths have at most {} bytes here", self.path));
        }
        if path.depth() > self.depth {
            return refused(format!("folders nest at most {} deep here", self.depth));
        }
        if path.parts().any(|name| name.len() > self.name) {
            return refused(format!("names have at most {} bytes here", self.name));
        }
        if !self.own_name.is_empty() && path.parts().any(|name| name == self.own_name.as_bytes()) {
            return refused(format!("the storage itself uses the name `{}`", self.own_name));
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return match self.names {
                NameRule::AnyBytes => Ok(()),
                NameRule::Utf8 | NameRule::Utf8NoControls => refused("names must be UTF-8 here".to_owned()),
            };
        };
        if self.names == NameRule::Utf8NoControls && text.contains(char::is_control) {
            return refused("names have no control characters here".to_owned());
        }
        match text.chars().find(|c| self.without.contains(*c)) {
            Some(found) => refused(format!("names cannot contain `{found}` here")),
            None => Ok(()),
        }
    }
}
