//! Waits for asynchronous clients from plain blocking code: a small runtime of its own, a limit on every wait.

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Threads that drive a store's connections. They wait for the network; two are plenty.
const THREADS: usize = 2;

/// No single request to a store takes longer, unless it moves many bytes, or the store does not answer.
const LONGEST: Duration = Duration::from_secs(120);

/// How long a service may take to answer for the first time.
const FIRST: Duration = Duration::from_secs(20);

/// Runs what a client does.
pub(crate) struct Waiter(Option<Runtime>);

impl Waiter {
    pub(crate) fn new(name: &str) -> io::Result<Waiter> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Waiter(Some(runtime)))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken only when the waiter goes")
    }

    /// Blocks this thread until the work is done; `None` when that takes too long.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.wait_within(LONGEST, work)
    }

    /// The same for what moves many bytes, which may take so much longer.
    pub(crate) fn wait_longer<T: Send + 'static>(
        &self,
        more: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.wait_within(LONGEST + more, work)
    }

    /// The same when it is not known whether anybody is there.
    pub(crate) fn wait_first<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.wait_within(FIRST, work)
    }

    fn wait_within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            if let Ok(value) = tokio::time::timeout(limit, work).await {
                // Nobody listens any more only when the thread that asked is gone.
                let _ = done.send(value);
            }
        });
        result.recv().ok()
    }

    /// Lets work go on without anybody waiting for it.
    pub(crate) fn leave(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(work);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // The last owner may be an asynchronous task, where a runtime must not be waited for.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What is said of a store that keeps us waiting.
pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}
