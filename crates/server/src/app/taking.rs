//! Receives bytes piece by piece on blocking threads, and accepts or discards them at the end.

use bytes::Bytes;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_core::names::UserName;
use paddlecloud_files::Takes;
use paddlecloud_files::lane;
use paddlecloud_files::queue::Queue;

use super::files::{blocking, joined};
use super::{App, AppError};

impl App {
    pub(super) fn taking<T: Takes>(&self, caller: &Caller, taker: T) -> Taking<T> {
        Taking {
            kept: Kept(Some(taker)),
            queue: self.queue.clone(),
            user: caller.user.clone(),
        }
    }
}

/// Bytes being received. If this is dropped unfinished, the data is discarded on a blocking thread.
pub struct Taking<T: Takes> {
    kept: Kept<T>,
    queue: Queue,
    user: UserName,
}

impl<T: Takes> Taking<T> {
    /// Receives the next bytes. Rejected data is discarded before the error is returned, so no partial file stays.
    pub async fn feed(&mut self, pieces: Vec<Bytes>) -> Result<(), AppError> {
        let mut taker = self.kept.take()?;
        let fed = blocking(
            move || match pieces.iter().try_for_each(|piece| taker.feed(piece)) {
                // Discards itself when dropped: the client may disconnect, which drops this future.
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

    /// Accepts the data: immediately if the connection has its own blocking thread, otherwise when it is the user's turn.
    pub async fn finish(mut self) -> Result<T::Done, AppError> {
        let class = T::END.filter(|_| !lane::is_here());
        let Some(class) = class else {
            let taker = self.kept.take()?;
            return blocking(move || taker.finish()).await;
        };
        let turn = self.queue.turn(class, &self.user).await;
        let taker = self.kept.take()?;
        joined(turn.blocking(move || taker.finish()).await)
    }
}

/// Discards its content when dropped, unless it was taken.
struct Kept<T: Takes>(Option<T>);

impl<T: Takes> Kept<T> {
    fn take(&mut self) -> Result<T, AppError> {
        self.0.take().ok_or(AppError::Internal)
    }
}

impl<T: Takes> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some(taker) = self.0.take() {
            // The thread outlives this future; no one else uses what it removes.
            drop(tokio::task::spawn_blocking(move || taker.discard()));
        }
    }
}
