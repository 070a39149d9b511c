//! The trait of everything that receives the bytes of a request, piece by piece.

use super::FilesError;
use crate::queue::Class;

/// A blocking receiver of bytes.
pub trait Takes: Sized + Send + 'static {
    type Done: Send + 'static;
    /// The queue class of `finish`; `None` if it is short.
    const END: Option<Class> = None;

    /// Receives the next bytes.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError>;
    /// Accepts the received data.
    fn finish(self) -> Result<Self::Done, FilesError>;
    /// Discards the received data. Nothing is to be done where unfinished data does not count.
    fn discard(self) {}
}
