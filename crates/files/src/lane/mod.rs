//! Threads for connections that move many bytes.
//!
//! Most requests wait more than they work, and share a few threads that must not block. A connection that receives or
//! sends a file hashes it and accesses the disk for every piece, and handing each piece to another thread costs as much
//! as hashing it. So the whole connection moves to a thread that may block, stays while bytes keep coming, and moves
//! back when they do not. The number of such threads is limited; other connections use [`blocking`], which hands over
//! one piece at a time.
//!
//! A connection begins on the shared threads and ends wherever its future is ready:
//!
//! ```text
//!            `reach` finds a free thread              `run` gets a permit
//!   shared ──────────────────────────────► called ─────────────────────────► on its thread
//!     ▲  ▲                                   │                                     │
//!     │  └──── no permit: polled again, ─────┘                                     │
//!     │        `reach` returns false                                               │
//!     └──────────────── the poll is pending, and one of: ──────────────────────────┘
//!                       - not (`is_taken`, or `lingers` and not `is_serving`)
//!                       - `STINT` is over
//!                       - not `is_woken`, and the socket is not ready within `SILENCE`
//! ```
//!
//! `run` looks for a call after each pending poll. A connection that comes back is polled immediately, so no wake-up is
//! lost. The flags:
//!
//! | flag | set by | cleared by |
//! | --- | --- | --- |
//! | `is_here` | the start on its thread | the move back |
//! | `is_called` | `reach`, if it is not there and a thread is free | `run`, when it sees the call |
//! | `is_taken` | [`LaneRequest::take`] | the drop of that request |
//! | `lingers` | the drop of a [`LaneRequest`], if it is on its thread | the same if it is not, and the move back |
//! | `is_serving` | [`Lane::serve`] | the drop of [`Serving`] |
//! | `is_woken` | its waker on the thread | each poll on the thread, before it begins |
//! | `waits_to_read`, `waits_to_write` | [`Wire`] on the thread, when the socket would block | the same |

mod wire;

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{JoinError, spawn_blocking};

pub use wire::Wire;

/// Connections that may have a thread at the same time: more than there are cores, and fewer than the blocking threads.
pub const LANES: usize = 8;
/// How long a thread waits for a peer that has nothing to send, or no room to receive.
const SILENCE: Duration = Duration::from_millis(10);
/// How long a connection keeps its thread at most. When the server stops, it ends at the next opportunity. In tests of
/// this crate a busy machine does not end it.
const STINT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

static FREE: Semaphore = Semaphore::const_new(LANES);

tokio::task_local! {
    static LANE: Arc<Lane>;
}

/// Where a connection runs now, and what it waits for.
#[derive(Debug)]
pub struct Lane {
    socket: Arc<OwnedFd>,
    /// On a thread that may block.
    is_here: AtomicBool,
    /// Wants to move to such a thread.
    is_called: AtomicBool,
    /// A request wants to stay on the thread.
    is_taken: AtomicBool,
    /// An earlier request used the thread: the next one will probably come soon and want the same.
    lingers: AtomicBool,
    /// A request is being answered.
    is_serving: AtomicBool,
    is_woken: AtomicBool,
    waits_to_read: AtomicBool,
    waits_to_write: AtomicBool,
}

impl Lane {
    fn new(socket: Arc<OwnedFd>) -> Arc<Self> {
        Arc::new(Self {
            socket,
            is_here: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            is_serving: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            waits_to_read: AtomicBool::new(false),
            waits_to_write: AtomicBool::new(false),
        })
    }

    fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Relaxed)
    }

    /// Marks a request as being answered, as long as the answer lives.
    pub fn serve(self: &Arc<Self>) -> Serving {
        self.is_serving.store(true, Ordering::Relaxed);
        Serving(self.clone())
    }

    /// Whether the connection is worth its thread: bytes are moved, or were moved and the next request is expected.
    fn stays(&self) -> bool {
        let is_between = self.lingers.load(Ordering::Relaxed) && !self.is_serving.load(Ordering::Relaxed);
        is_between || self.is_taken.load(Ordering::Relaxed)
    }

    /// Waits until the socket is ready for the connection.
    fn wait(&self) -> bool {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, self.waits_to_read.load(Ordering::Relaxed));
        events.set(PollFlags::OUT, self.waits_to_write.load(Ordering::Relaxed));
        let limit = Timespec::try_from(SILENCE).expect("milliseconds fit");
        let is_ready = poll(&mut [PollFd::new(&self.socket, events)], Some(&limit));
        !events.is_empty() && is_ready.is_ok_and(|ready| ready > 0)
    }

    /// Works on a connection as long as it is worth a thread; returns it unless it ended.
    fn work(self: Arc<Self>, mut connection: Connection) -> Option<Connection> {
        let waker = Waker::from(self.clone());
        let until = Instant::now() + STINT;
        self.is_here.store(true, Ordering::Relaxed);
        loop {
            self.is_woken.store(false, Ordering::SeqCst);
            self.waits_to_read.store(false, Ordering::Relaxed);
            self.waits_to_write.store(false, Ordering::Relaxed);
            if connection
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
            {
                return None;
            }
            let stays = self.stays() && Instant::now() < until;
            if !stays || !(self.is_woken.load(Ordering::SeqCst) || self.wait()) {
                break;
            }
        }
        self.is_here.store(false, Ordering::Relaxed);
        self.lingers.store(false, Ordering::Relaxed);
        Some(connection)
    }
}

/// A wake-up from another thread is noticed at the latest when the wait for the socket ends.
impl Wake for Lane {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
    }
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a connection to its end, on whichever threads it needs.
pub async fn run(lane: Arc<Lane>, connection: impl Future<Output = ()> + Send + 'static) {
    let mut connection: Connection = Box::pin(LANE.scope(lane.clone(), connection));
    loop {
        let permit = poll_fn(|context| {
            loop {
                if connection.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                if !lane.is_called.swap(false, Ordering::Relaxed) {
                    return Poll::Pending;
                }
                if let Ok(permit) = FREE.try_acquire() {
                    return Poll::Ready(Some(permit));
                }
                // Another connection got the thread; the caller notices at the next poll.
            }
        });
        let Some(permit) = permit.await else { return };
        match on_thread(lane.clone(), connection, permit).await {
            Ok(Some(left)) => connection = left,
            Ok(None) | Err(_) => return,
        }
    }
}

async fn on_thread(
    lane: Arc<Lane>,
    connection: Connection,
    permit: SemaphorePermit<'static>,
) -> Result<Option<Connection>, JoinError> {
    spawn_blocking(move || {
        let left = lane.work(connection);
        drop(permit);
        left
    })
    .await
}

/// A request's wish to run on a thread that may block, while this value lives.
#[derive(Debug)]
pub struct LaneRequest(Option<Arc<Lane>>);

impl LaneRequest {
    /// For the request that is being answered.
    pub fn take() -> Self {
        let lane = LANE.try_with(Arc::clone).ok();
        if let Some(lane) = &lane {
            lane.is_taken.store(true, Ordering::Relaxed);
        }
        Self(lane)
    }

    /// Moves to such a thread if one is free; returns whether it runs there now.
    pub async fn reach(&self) -> bool {
        let Some(lane) = &self.0 else { return false };
        let mut has_called = false;
        poll_fn(|_| {
            if lane.is_here() || has_called || FREE.available_permits() == 0 {
                return Poll::Ready(lane.is_here());
            }
            has_called = true;
            lane.is_called.store(true, Ordering::Relaxed);
            Poll::Pending
        })
        .await
    }
}

impl Drop for LaneRequest {
    fn drop(&mut self) {
        if let Some(lane) = &self.0 {
            lane.is_taken.store(false, Ordering::Relaxed);
            lane.lingers.store(lane.is_here(), Ordering::Relaxed);
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Serving(Arc<Lane>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.is_serving.store(false, Ordering::Relaxed);
    }
}

/// Whether the connection that is being answered is on a thread that may block.
pub fn is_here() -> bool {
    LANE.try_with(|lane| lane.is_here()).unwrap_or(false)
}

/// Runs work that may block: here, if the connection is on such a thread, otherwise on one of those for short work.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    match is_here() {
        true => Ok(work()),
        false => spawn_blocking(work).await,
    }
}

#[cfg(test)]
mod tests;
