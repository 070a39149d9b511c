//! Runs asynchronous clients from blocking code: a small runtime, and a time limit on every wait.

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Threads that drive a store's connections. They mostly wait for the network, so two are enough.
const THREADS: usize = 2;

/// The time limit of a request that does not move many bytes.
const LONGEST: Duration = Duration::from_secs(120);

/// The time limit of the first reply of a service.
const FIRST: Duration = Duration::from_secs(20);

/// Runs a client's futures.
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

    /// Blocks this thread until the work is done; `None` after the time limit.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.wait_within(LONGEST, work)
    }

    /// The same for work that moves many bytes, with `more` time.
    pub(crate) fn wait_longer<T: Send + 'static>(
        &self,
        more: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.wait_within(LONGEST + more, work)
    }

    /// The same for the first request, when the service may be unreachable.
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
                // The receiver is gone only if the waiting thread is.
                let _ = done.send(value);
            }
        });
        result.recv().ok()
    }

    /// Runs work in the background.
    pub(crate) fn leave(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(work);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // The last owner may be an asynchronous task, which must not block on a runtime's shutdown.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The error for a store that does not answer in time.
pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}
