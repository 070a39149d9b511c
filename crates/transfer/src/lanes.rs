//! Threads with one connection each, for large replies: the receiving thread hashes and writes each piece while it is in the
//! core's cache.

use std::sync::{Mutex, PoisonError};

use paddlecloud_api::client::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::TransferError;
use super::mover::blocking;

/// Idle lanes. There are as many lanes as requests ran at a time.
#[derive(Default)]
pub(super) struct Lanes(Mutex<Vec<Lane>>);

struct Lane {
    client: Client,
    /// Taken out only when dropped.
    runtime: Option<Runtime>,
}

impl Lanes {
    /// Runs `work` on a thread that may block, with a client whose connections belong to that thread. Dropping the future stops
    /// the work at its next await.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        client: &Client,
        work: impl AsyncFnOnce(&Client) -> T + Send + 'static,
    ) -> Result<T, TransferError> {
        let waiting = self.waiting().pop();
        let lane = match waiting {
            Some(lane) => lane,
            None => Lane::new(client)?,
        };
        let (_guard, cancelled) = oneshot::channel::<()>();
        let (lane, done) = blocking(move || {
            let done = lane.drive(async {
                tokio::select! {
                    done = work(&lane.client) => Some(done),
                    _ = cancelled => None,
                }
            });
            (lane, done)
        })
        .await;
        self.waiting().push(lane);
        Ok(done.expect("somebody waits for it"))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn new(client: &Client) -> Result<Lane, TransferError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| TransferError::Io {
            action: "start receiving",
            source,
        })?;
        Ok(Lane {
            client: client.with_separate_connections(),
            runtime: Some(runtime),
        })
    }

    fn drive<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = self.runtime.as_ref().expect("taken out only at the end");
        runtime.block_on(work)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Nothing runs on it any more; a blocking shutdown is not allowed in async code, where transfers end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
