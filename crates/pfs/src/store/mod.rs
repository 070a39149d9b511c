//! The port behind which files are kept: what the service needs of any storage, in few words.
//!
//! Rights and quotas are decided before; a store does as it is told, inside the space it is told.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(test)]
mod elsewhere;
mod local;
mod patience;
mod remote;
mod space;

use std::fmt;
use std::io;
use std::time::Duration;

pub use self::local::LocalStore;
pub use self::remote::RemoteSpace;
pub use self::space::{Entries, OpenSpace};
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{Copied, DirEntry, Existing, FileAttributes, Meta, Root, RootError, Usage};
use crate::source::Source;

/// A storage backend. All methods block; all are safe to call from many threads.
///
/// Every implementation passes [`conformance`](self::conformance).
pub trait FileStore: Send + Sync {
    /// What the backend cannot do.
    fn limits(&self) -> StoreLimits;

    /// Where it is, for people; no secret is in it.
    fn name(&self) -> String;

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

    /// What lies in a space and has no name yet, whoever put it there; nothing where nobody else could.
    fn staged(&self, _space: &Space) -> Result<Usage, RootError> {
        Ok(Usage::default())
    }

    /// The space as a folder, where the backend is a file system: then chunks may arrive in any order.
    fn folder(&self, space: &Space) -> Result<Option<Root>, RootError>;

    /// Removes what writers that are gone left unpublished and nobody touched for `age`; answers how much.
    fn sweep(&self, space: &Space, age: Duration) -> Result<u64, RootError>;

    /// Bytes a space may hold by the backend's own rule, where it has one.
    fn quota(&self, _space: &Space) -> Result<Option<u64>, RootError> {
        Ok(None)
    }
}

/// Reads a file that stays the same while it is open, unless somebody writes into it.
pub trait ReadAt: Source {
    /// Kind, size and times when it was opened.
    fn meta(&self) -> &Meta;

    /// Whether nobody wrote to it since it was opened. Who removes it, or gives its name to another, does not. Nobody writes into
    /// a file that lies in a remote store.
    fn is_as_opened(&self) -> io::Result<bool> {
        Ok(true)
    }
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
    /// Most names in a path inside a space.
    pub depth: usize,
    /// What names consist of.
    pub names: NameRule,
    /// Characters that no name contains.
    pub without: &'static str,
    /// Whether symbolic links are kept.
    pub links: bool,
    /// Whether a move is one step that others see as a whole.
    pub moves_whole: bool,
    /// Whether a file that is open stays readable when it is replaced or removed. Where it does not, reading fails;
    /// it never goes on in another file.
    pub stays_open: bool,
    /// Whether a listing tells all that is asked of an entry. Where it does not, every entry costs a request more.
    pub lists_times: bool,
    /// A name that the store uses itself and nothing else may have; none where it is empty.
    pub own_name: &'static str,
    /// How many files are worth writing at the same time.
    pub writers: usize,
}

/// What names consist of.
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
    /// Says which limit a path would break.
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
