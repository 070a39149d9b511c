//! The memory a server may use, counted before it is allocated.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers with at least this many elements are kept for reuse: fresh memory costs more than reading data into it.
const KEPT_FROM: usize = 16 * 1024;

/// Shared by everything that holds data. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    limit: u64,
    used: AtomicU64,
    kept: Mutex<Kept>,
}

/// Unused buffers by size; counted as used until the memory is needed elsewhere.
type Kept = BTreeMap<usize, Vec<Vec<f32>>>;

/// Why memory was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{what}` needs {wanted} more bytes, but {used} of the {limit} bytes of this parameter server are in use"
)]
pub struct OverBudget {
    pub what: String,
    pub wanted: u64,
    pub used: u64,
    pub limit: u64,
}

/// Counted memory, released on drop.
#[derive(Debug)]
pub struct Reserved {
    budget: Budget,
    bytes: u64,
}

/// A counted buffer that is about to be overwritten: its initial values are arbitrary.
#[derive(Debug)]
pub struct Buffer {
    budget: Budget,
    /// At least as long as requested.
    values: Vec<f32>,
    length: usize,
}

impl Budget {
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(Counts {
            limit,
            used: AtomicU64::new(0),
            kept: Mutex::default(),
        }))
    }

    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Counts `bytes` for the tensor `what`; fails if they exceed the budget.
    pub fn reserve(&self, bytes: u64, what: &str) -> Result<Reserved, OverBudget> {
        let mut reserved = Reserved {
            budget: self.clone(),
            bytes: 0,
        };
        reserved.grow(bytes, what)?;
        Ok(reserved)
    }

    /// A buffer for the tensor `what`, reused if possible.
    pub fn buffer(&self, length: usize, what: &str) -> Result<Buffer, OverBudget> {
        let values = match self.take_kept(length) {
            Some(values) => values,
            None => {
                self.count(4 * length as u64, what)?;
                vec![0.0; length]
            }
        };
        Ok(Buffer {
            budget: self.clone(),
            values,
            length,
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_kept(&self, length: usize) -> Option<Vec<f32>> {
        if length < KEPT_FROM {
            return None;
        }
        let mut kept = self.kept();
        let (size, buffers) = kept.range_mut(length..=2 * length).next()?;
        let (size, found) = (*size, buffers.pop());
        if buffers.is_empty() {
            kept.remove(&size);
        }
        found
    }

    fn count(&self, bytes: u64, what: &str) -> Result<(), OverBudget> {
        let Counts { limit, used, .. } = &*self.0;
        let add = || {
            used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| sum <= limit)
            })
        };
        let over = |used| OverBudget {
            what: what.to_owned(),
            wanted: bytes,
            used,
            limit: *limit,
        };
        if add().is_ok() {
            return Ok(());
        }
        let kept = std::mem::take(&mut *self.kept());
        let freed: usize = kept.iter().map(|(size, buffers)| size * buffers.len()).sum();
        drop(kept);
        used.fetch_sub(4 * freed as u64, Ordering::Relaxed);
        add().map(drop).map_err(over)
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.length]
    }
}

impl Buffer {
    /// Frees the memory instead of keeping it: for a buffer that is needed once.
    pub fn discard(mut self) {
        let values = std::mem::take(&mut self.values);
        let bytes = 4 * values.len() as u64;
        drop(values);
        self.budget.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        let size = values.len();
        if size >= KEPT_FROM {
            self.budget.kept().entry(size).or_default().push(values);
        } else {
            self.budget.0.used.fetch_sub(4 * size as u64, Ordering::Relaxed);
        }
    }
}

impl Reserved {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn grow(&mut self, bytes: u64, what: &str) -> Result<(), OverBudget> {
        self.budget.count(bytes, what)?;
        self.bytes += bytes;
        Ok(())
    }

    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_buffer_is_not_kept() {
        let budget = Budget::new(8 * KEPT_FROM as u64);
        let kept = budget.buffer(KEPT_FROM, "w").unwrap();
        let once = budget.buffer(KEPT_FROM, "w").unwrap();
        once.discard();
        assert_eq!(budget.used(), 4 * KEPT_FROM as u64);
        drop(kept);
        assert_eq!(budget.used(), 4 * KEPT_FROM as u64);
    }

    #[test]
    fn memory_is_refused_by_name_and_given_back() {
        let budget = Budget::new(100);
        let held = budget.reserve(60, "w").unwrap();
        let error = budget.reserve(50, "emb").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`emb` needs 50 more bytes, but 60 of the 100 bytes of this parameter server are in use"
        );
        drop(held);
        assert_eq!(budget.used(), 0);
        budget.reserve(100, "emb").unwrap();
        assert!(budget.reserve(u64::MAX, "emb").is_err());
    }

    #[test]
    fn a_large_buffer_is_used_again_until_its_memory_is_needed() {
        let budget = Budget::new(4 * 100_000);
        let mut first = budget.buffer(50_000, "w").unwrap();
        first[49_999] = 1.0;
        let address = first.as_ptr();
        drop(first);
        let second = budget.buffer(40_000, "w").unwrap();
        assert_eq!((second.as_ptr(), second.len()), (address, 40_000));
        assert_eq!(budget.used(), 200_000);
        drop(second);
        // A much smaller buffer does not reuse it: that would waste memory.
        let small = budget.buffer(20_000, "w").unwrap();
        assert_ne!(small.as_ptr(), address);
        let tensor = budget.reserve(320_000, "emb").unwrap();
        assert_eq!(budget.used(), 400_000);
        assert!(budget.buffer(1, "w").is_err());
        drop((small, tensor));
        assert_eq!(budget.used(), 80_000, "the small one is kept in turn");
    }
}
