//! Decides when to give up on an unreachable store: one request may wait for minutes, and a tree needs thousands of them.
//!
//! A single failure means little, because some stores fail like this for one file.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::relpath::RelPath;
use crate::root::RootError;

/// Gives up after this many consecutive failures.
pub(super) struct Patience {
    most: usize,
    failures: AtomicUsize,
    ended: OnceLock<(io::ErrorKind, String)>,
}

impl Patience {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            failures: AtomicUsize::new(0),
            ended: OnceLock::new(),
        }
    }

    /// Tries an operation on a path. After giving up, fails with the last error without trying.
    pub(super) fn with<R>(
        &self,
        path: impl FnOnce() -> RelPath,
        work: impl FnOnce() -> Result<R, RootError>,
    ) -> Result<R, RootError> {
        if let Some((kind, reason)) = self.ended.get() {
            return Err(RootError::Unreachable {
                path: path(),
                source: io::Error::new(*kind, reason.clone()),
            });
        }
        let done = work();
        match &done {
            Err(RootError::Unreachable { source, .. }) => {
                if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= self.most {
                    self.ended.get_or_init(|| (source.kind(), source.to_string()));
                }
            }
            _ => self.failures.store(0, Ordering::Relaxed),
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rel;

    fn refused() -> Result<(), RootError> {
        Err(RootError::Unreachable {
            path: rel("first"),
            source: io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        })
    }

    #[test]
    fn patience_ends_only_after_consecutive_failures() {
        let patience = Patience::new(2);
        let with = |work: fn() -> Result<(), RootError>| patience.with(|| rel("later"), work);
        assert!(with(refused).is_err());
        with(|| Ok(())).unwrap();
        assert!(with(refused).is_err());
        assert!(
            with(|| Err(RootError::Exists(rel("x")))).is_err(),
            "an answer, too"
        );
        assert!(with(refused).is_err());
        with(|| Ok(())).unwrap();
        assert!(with(refused).is_err());
        assert!(with(refused).is_err());
        let Err(RootError::Unreachable { path, source }) = with(|| panic!("it is not tried")) else {
            panic!("it fails as the others");
        };
        assert_eq!(path, rel("later"));
        assert_eq!(
            (source.kind(), source.to_string()),
            (io::ErrorKind::TimedOut, "no answer in time".to_owned())
        );
    }
}
