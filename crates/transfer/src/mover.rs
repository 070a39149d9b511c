//! The state that all parts of a transfer share: options, tally, rate limit, and the number of concurrent requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use paddlecloud_api::client::{Call, Client, ClientError, Opened};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::item::Item;
use super::lanes::Lanes;
use super::paced::{PacedBody, Throttle};
use super::tally::{Flow, Tally};
use super::{FileClient, TransferError, TransferOptions};

/// How often progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// Counts incoming bytes and limits their rate.
pub(super) struct Arrivals {
    bytes: Arc<AtomicU64>,
    throttle: Option<Arc<Throttle>>,
}

impl Arrivals {
    /// The next piece of a reply; `None` at its end.
    pub(super) async fn piece(
        &self,
        reply: &mut Opened,
        client: &Client,
    ) -> Result<Option<Bytes>, ClientError> {
        let piece = reply.piece(client).await?;
        if let Some(piece) = &piece {
            let len = piece.len() as u64;
            self.bytes.fetch_add(len, Ordering::Relaxed);
            if let Some(throttle) = &self.throttle {
                tokio::time::sleep(throttle.delay(len)).await;
            }
        }
        Ok(piece)
    }
}

/// Moves the items of one transfer.
pub(super) struct Mover<'a> {
    pub(super) files: FileClient<'a>,
    pub(super) options: &'a TransferOptions,
    pub(super) tally: &'a Tally<'a>,
    pub(super) throttle: Option<Arc<Throttle>>,
    /// A pack that breaks fails immediately.
    pub(super) packs_once: bool,
    /// How often packs are halved because connections broke.
    pub(super) halvings: AtomicU32,
    /// Packs that have arrived.
    pub(super) arrived: AtomicU32,
    permits: Semaphore,
    lanes: Lanes,
}

impl<'a> Mover<'a> {
    pub(super) fn new(
        files: FileClient<'a>,
        options: &'a TransferOptions,
        tally: &'a Tally<'a>,
    ) -> Mover<'a> {
        Mover {
            files,
            options,
            tally,
            throttle: options.bwlimit.map(|rate| Arc::new(Throttle::new(rate))),
            packs_once: false,
            halvings: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            permits: Semaphore::new(options.transfers.get()),
            lanes: Lanes::default(),
        }
    }

    /// A permit to run one more request.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        let permit = self.permits.acquire().await;
        permit.expect("nobody closes it")
    }

    /// Processes many things, as many at a time as requests may run.
    pub(super) async fn for_each<T, F: Future<Output = ()>>(
        &self,
        things: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> F,
    ) {
        futures_util::stream::iter(things)
            .for_each_concurrent(self.options.transfers.get(), work)
            .await;
    }

    /// Sends a body once and counts its bytes as they leave.
    pub(super) async fn send(&self, call: &Call, body: PacedBody) -> Result<Bytes, ClientError> {
        let (sent, mut flow) = (body.progress(), self.tally.flow(body.content()));
        let request = self.files.client.send_body(call, body.boxed_unsync(), &sent);
        let reply = self.counted(&sent, &mut flow, request).await;
        if reply.is_err() {
            flow.broke_but(0);
        }
        reply
    }

    /// Receives on a separate thread, with that thread's own client, and counts bytes as they arrive.
    pub(super) async fn receiving<T: Send + 'static>(
        &self,
        flow: &mut Flow<'_>,
        work: impl AsyncFnOnce(&Client, &Arrivals) -> T + Send + 'static,
    ) -> Result<T, TransferError> {
        let throttle = self.throttle.clone();
        self.aside(flow, async move |client, bytes| {
            let arrivals = Arrivals {
                bytes: bytes.clone(),
                throttle,
            };
            work(client, &arrivals).await
        })
        .await
    }

    /// Runs `work` on a separate thread, with that thread's own client, and reports its counter meanwhile.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        flow: &mut Flow<'_>,
        work: impl AsyncFnOnce(&Client, &Arc<AtomicU64>) -> T + Send + 'static,
    ) -> Result<T, TransferError> {
        let counter: Arc<AtomicU64> = Arc::default();
        let counting = counter.clone();
        let work = self.lanes.run(self.files.client, async move |client| {
            work(client, &counting).await
        });
        self.counted(&counter, flow, work).await
    }

    /// Awaits `work` and reports a counter meanwhile.
    async fn counted<F: Future>(&self, counter: &AtomicU64, flow: &mut Flow<'_>, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        let mut tell = || flow.passed(counter.load(Ordering::Relaxed));
        loop {
            match tokio::time::timeout(TICK, work.as_mut()).await {
                Ok(output) => {
                    tell();
                    return output;
                }
                Err(_) => tell(),
            }
        }
    }

    /// Fails all remaining items once nothing can succeed any more.
    pub(super) fn give_up<'i>(
        &self,
        items: impl IntoIterator<Item = &'i Item>,
        shown: impl Fn(&Item) -> String,
    ) {
        for item in items {
            self.tally.failed(shown(item), TransferError::BrokenOff);
        }
    }
}

/// How often a file is transferred again because it changed or arrived damaged.
const ATTEMPTS: usize = 3;

/// Tries until it succeeds, or starting over does not help.
pub(super) async fn attempts<T, F: Future<Output = Result<T, TransferError>>>(
    attempt: impl Fn() -> F,
    may_help: impl Fn(&TransferError) -> bool,
) -> Result<T, TransferError> {
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if may_help(&error) => {}
            done => return done,
        }
    }
    attempt().await
}

/// Runs `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("the work does not panic and is not aborted")
}

/// Duplicates an error, for every file that shared a request.
pub(super) fn same_again(error: &ClientError) -> ClientError {
    match error {
        ClientError::Refused(body) => ClientError::Refused(body.clone()),
        ClientError::Unreachable { endpoint, reason } => ClientError::Unreachable {
            endpoint: endpoint.clone(),
            reason: reason.clone(),
        },
        ClientError::Broken { endpoint, problem } => ClientError::Broken {
            endpoint: endpoint.clone(),
            problem: problem.clone(),
        },
        ClientError::Tls(_) | ClientError::Upload(_) => {
            ClientError::Upload(std::io::Error::other(error.to_string()))
        }
    }
}
