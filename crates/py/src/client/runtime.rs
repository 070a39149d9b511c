//! The threads that talk to servers: two for the whole process, created at first use and again after a fork.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

const THREADS: usize = 2;
/// How long it may take to notice Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// The runtime and the process whose threads it has. Locked only while the GIL is held, so no fork copies it locked.
static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

/// The handle on which work is started.
pub fn handle() -> PyResult<Handle> {
    let mut place = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, runtime)) = place.as_ref()
        && *owner == process
    {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("paddlecloud")
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start the client's threads: {error}")))?;
    let handle = runtime.handle().clone();
    // The parent's runtime has no threads in a forked child: shutting it down would wait for them forever.
    std::mem::forget(place.replace((process, runtime)));
    Ok(handle)
}

/// Runs `work` without the GIL until it is done, or until a signal handler raises: then the work is cancelled.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let handle = handle()?;
    let mut task = handle.spawn(work);
    loop {
        let ended = py.detach(|| handle.block_on(async { tokio::time::timeout(TICK, &mut task).await }));
        match ended {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => return Err(PyRuntimeError::new_err(format!("the client failed: {error}"))),
            Err(_) => py.check_signals().inspect_err(|_| task.abort())?,
        }
    }
}
