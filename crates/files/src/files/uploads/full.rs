//! Why an upload ran out of space, so that all its requests get the same error.

use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::{Place, RootError};

use crate::files::FilesError;

/// Why there was no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum Full {
    Disk,
    /// A quota of the storage itself.
    Quota,
}

impl Full {
    /// The cause, if an error is of this kind.
    pub(in crate::files) fn of(error: &FilesError) -> Option<Full> {
        match error.storage() {
            Some(RootError::FsQuota(_)) => Some(Full::Quota),
            _ => error.is_full().then_some(Full::Disk),
        }
    }

    /// The same error for a later request.
    pub(super) fn error_for(self, place: &Place) -> FilesError {
        let path = place.path.clone();
        let error = match self {
            Full::Disk => RootError::NoSpace(path),
            Full::Quota => RootError::FsQuota(path),
        };
        AssemblyError::Storage(error).into()
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::Space;

    use super::*;

    #[test]
    fn later_writes_get_the_same_error() {
        let place = Place {
            space: Space::Public,
            path: "f".parse().unwrap(),
        };
        let errors = |source: RootError| {
            let first = FilesError::from(AssemblyError::Storage(source));
            let later = Full::of(&first).map(|full| full.error_for(&place).to_string());
            (first.to_string(), later)
        };
        let path = || place.path.clone();
        for source in [RootError::NoSpace(path()), RootError::FsQuota(path())] {
            let (first, later) = errors(source);
            assert_eq!(later, Some(first));
        }
        assert!(errors(RootError::Denied(path())).1.is_none());
    }
}
