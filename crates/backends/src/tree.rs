//! Operations on whole trees that the stores cannot do themselves: many files at a time, returning the first error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use paddlecloud_pfs::RootError;

/// Calls a function for each item on several threads. After an error no further item is started.
pub(crate) fn for_each<T: Sync>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<(), RootError> + Sync,
) -> Result<(), RootError> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<RootError>> = Mutex::new(None);
    let lock = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if lock().is_some() {
                return;
            }
            if let Err(error) = work(item) {
                lock().get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(run);
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_and_a_failure_is_reported() {
        let items: Vec<usize> = (0..100).collect();
        let sum = AtomicUsize::new(0);
        for_each(&items, 7, |item| {
            sum.fetch_add(*item, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert_eq!(sum.into_inner(), 4950);
        let refused = for_each(&items, 3, |item| match item {
            50 => Err(RootError::NotFound("x".parse().unwrap())),
            _ => Ok(()),
        });
        assert!(refused.is_err_and(|error| error.is_not_found()));
    }
}
