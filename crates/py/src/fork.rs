//! A lock that cannot deadlock a forked child.
//!
//! A fork copies all locks, but only the thread that forked: a lock held by another thread is never released
//! in the child. Counting forks distinguishes such a lock from one that is merely in use.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::IntoPyDict;

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the first process and this one: differs between parent and child.
pub fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Makes Python count forks from now on.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let count = wrap_pyfunction!(count_fork, module)?;
    let when = [("after_in_child", count)].into_py_dict(module.py())?;
    module
        .py()
        .import("os")?
        .call_method("register_at_fork", (), Some(&when))?;
    Ok(())
}

#[pyfunction]
fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

pub struct ForkLock<T> {
    value: Mutex<T>,
    /// the generation that took the lock last
    taken_in: AtomicU32,
}

impl<T> ForkLock<T> {
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            taken_in: AtomicU32::new(generation()),
        }
    }

    /// Waits for the lock with the GIL released, unless the lock can never be released.
    ///
    /// A panic while it was held is ignored: the locked value is usable at any time.
    pub fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, T>> {
        let guard = match self.value.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait(py)?,
        };
        self.taken_in.store(generation(), Ordering::Relaxed);
        Ok(guard)
    }

    fn wait(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, T>> {
        if self.taken_in.load(Ordering::Relaxed) != generation() {
            let message =
                "another thread was using this when the process was forked; open a new one in this process";
            return Err(PyRuntimeError::new_err(message));
        }
        Ok(self
            .value
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
