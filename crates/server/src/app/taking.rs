//! Bytes on their way in: fed piece by piece where blocking is allowed, accepted at the end or given up.

use bytes::Bytes;
use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::files::PackReply;
use paddlecloud_core::names::UserName;

use super::files::{blocking, told};
use super::{App, internal};
use crate::auth::Caller;
use crate::files::{ChunkIn, FilesError, PackIn, RangeIn};
use crate::lane;
use crate::long::{Length, Long};

/// Something that takes bytes, blocking.
pub trait Takes: Send + 'static {
    type Done: Send + 'static;
    /// What it takes to accept what came.
    const END: Length;

    /// Takes the next bytes.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError>;
    /// Accepts what came.
    fn finish(self) -> Result<Self::Done, FilesError>;
    /// Gives up.
    fn discard(self);
}

impl App {
    pub(super) fn taking<T: Takes>(&self, caller: &Caller, taker: T) -> Taking<T> {
        Taking {
            kept: Kept(Some(taker)),
            long: self.long.clone(),
            user: caller.user.clone(),
        }
    }
}

/// Bytes on their way in. Dropped unfinished, the rest is given up on a thread that may block.
pub struct Taking<T: Takes> {
    kept: Kept<T>,
    long: Long,
    user: UserName,
}

impl<T: Takes> Taking<T> {
    /// Takes the next bytes. What it refuses is given up before it says so: nothing half-written stays.
    pub async fn feed(&mut self, pieces: Vec<Bytes>) -> Result<(), ErrorBody> {
        let mut taker = self.kept.take()?;
        let fed = blocking(
            move || match pieces.iter().try_for_each(|piece| taker.feed(piece)) {
                // As something that gives itself up: whoever sent the bytes may be gone, and this future with them.
                Ok(()) => Ok(Kept(Some(taker))),
                Err(error) => {
                    taker.discard();
                    Err(error)
                }
            },
        );
        self.kept = fed.await?;
        Ok(())
    }

    /// Accepts what came: here, if the connection has a thread that may block, else when it is the user's turn.
    pub async fn finish(mut self) -> Result<T::Done, ErrorBody> {
        if T::END == Length::Short || lane::is_here() {
            let taker = self.kept.take()?;
            return blocking(move || taker.finish()).await;
        }
        let turn = self.long.end_turn(&self.user).await;
        let taker = self.kept.take()?;
        told(turn.blocking(move || taker.finish()).await)
    }
}

/// Gives itself up unless it is taken.
struct Kept<T: Takes>(Option<T>);

impl<T: Takes> Kept<T> {
    fn take(&mut self) -> Result<T, ErrorBody> {
        self.0.take().ok_or_else(internal)
    }
}

impl<T: Takes> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some(taker) = self.0.take() {
            // The thread outlives this future; what it removes is nobody's any more.
            drop(tokio::task::spawn_blocking(move || taker.discard()));
        }
    }
}

impl Takes for PackIn {
    type Done = PackReply;
    /// Files are synced, or sent to another store.
    const END: Length = Length::End;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        PackIn::feed(self, bytes)
    }

    fn finish(self) -> Result<PackReply, FilesError> {
        PackIn::finish(self)
    }

    fn discard(self) {
        PackIn::discard(self);
    }
}

impl Takes for ChunkIn {
    type Done = ();
    const END: Length = Length::Short;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        ChunkIn::feed(self, bytes)
    }

    fn finish(self) -> Result<(), FilesError> {
        ChunkIn::finish(self)
    }

    /// A chunk that is not whole does not count; there is nothing to remove.
    fn discard(self) {}
}

impl Takes for RangeIn {
    type Done = ();
    const END: Length = Length::Short;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        RangeIn::feed(self, bytes)
    }

    fn finish(self) -> Result<(), FilesError> {
        RangeIn::finish(self)
    }

    /// What came counts.
    fn discard(self) {}
}
