//! The memory a server may use, counted before it is allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by everything that holds data. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    limit: u64,
    used: AtomicU64,
}

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

/// Counted memory, given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(Counts {
            limit,
            used: AtomicU64::new(0),
        }))
    }

    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Counts `bytes` for the tensor `what`, or says why they cannot be had.
    pub fn reserve(&self, bytes: u64, what: &str) -> Result<Reserved, OverBudget> {
        let mut reserved = Reserved {
            budget: self.clone(),
            bytes: 0,
        };
        reserved.grow(bytes, what)?;
        Ok(reserved)
    }
}

impl Reserved {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn grow(&mut self, bytes: u64, what: &str) -> Result<(), OverBudget> {
        let Counts { limit, used } = &*self.budget.0;
        let added = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| sum <= limit)
        });
        match added {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(used) => Err(OverBudget {
                what: what.to_owned(),
                wanted: bytes,
                used,
                limit: *limit,
            }),
        }
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
}
