//! Threads with a connection each, for replies of many bytes: what comes is hashed and written by the thread that
//! received it, while the processor has it at hand.

use std::sync::{Mutex, PoisonError};

use paddlecloud_api::client::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::TransferError;
use super::engine::blocking;

/// Those that wait for work. As many are made as work runs at a time.
#[derive(Default)]
pub(super) struct Lanes(Mutex<Vec<Lane>>);

struct Lane {
    client: Client,
    /// Only taken out at the end.
    runtime: Option<Runtime>,
}

impl Lanes {
    /// Does something on a thread that may block, with a client whose connections live there. Dropped, it ends at the
    /// next chance.
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
        let (_wanted, unwanted) = oneshot::channel::<()>();
        let (lane, done) = blocking(move || {
            let done = lane.drive(async {
                tokio::select! {
                    done = work(&lane.client) => Some(done),
                    _ = unwanted => None,
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
            action: "begin to receive",
            source,
        })?;
        Ok(Lane {
            client: client.beside(),
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
        // Nothing runs on it any more; waiting for that is forbidden where transfers end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
