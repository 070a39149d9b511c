//! Chunks, digests, manifests and the transfer engine of the file service.
//!
//! A leaf: it knows files and bytes, not jobs, users' rights or HTTP. All calls block; async callers run them on threads that may
//! block.

mod as_text;
pub mod check;
pub mod content;
mod digest;
#[cfg(unix)]
pub mod durable;
mod entry;
mod escape;
mod links;
mod order;
pub mod pack;
pub mod package;
mod path;
pub mod quota;
mod relpath;
pub mod root;
pub mod share;
#[cfg(all(feature = "conformance", target_os = "linux"))]
pub mod small_disk;
mod source;
pub mod staging;
pub mod store;
pub mod sync;
mod sys;
#[cfg(test)]
mod testing;

pub use self::digest::{Digest, DigestSyntaxError};
pub use self::entry::{Entry, LinkTarget, LinkTargetError, Mtime, Node};
pub use self::links::{LinkOutside, links_outside};
pub use self::order::OrderError;
pub use self::path::{
    Access, AccessError, Caller, CallerRole, HomeOwner, PfsPath, PfsPathError, Place, Space,
};
pub use self::relpath::{RelPath, RelPathError};
pub use self::root::{Existing, Made, Root, RootError};
pub use self::source::Source;
pub use self::sys::{FileExt, KEEPS_EXECUTABLE_BITS};
