//! A counting semaphore for blocking code.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The number of free slots.
pub(super) struct Slots(Arc<Inner>);

struct Inner {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// One slot, released when this is dropped.
pub(super) struct Slot(Arc<Inner>);

impl Slots {
    pub(super) fn new(count: usize) -> Slots {
        Slots(Arc::new(Inner {
            free: Mutex::new(count),
            given_back: Condvar::new(),
        }))
    }

    /// Blocks until a slot is free. A holder must not take a second one: two holders could wait for each other.
    pub(super) fn take(&self) -> Slot {
        let free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.0.given_back.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Slot(Arc::clone(&self.0))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn slots_are_bounded_and_every_thread_gets_one() {
        let slots = Slots::new(3);
        let (here, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let slot = slots.take();
                        most.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        here.fetch_sub(1, Ordering::SeqCst);
                        drop(slot);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert_eq!(done.into_inner(), 8 * 200);
        let all = [slots.take(), slots.take(), slots.take()];
        assert_eq!(*slots.0.free.lock().unwrap(), 0);
        drop(all);
        assert_eq!(*slots.0.free.lock().unwrap(), 3);
    }
}
