//! What ended an upload for want of room, so that all who are at the same upload are told the same.

use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::root::KeptQuota;
use paddlecloud_pfs::{Place, RootError};

use crate::files::FilesError;

/// Why there was no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    Disk,
    /// By a quota that the storage itself keeps; with limit and use where they are known.
    Quota(Option<KeptQuota>),
}

impl Full {
    /// Whether a failure is of this kind.
    pub(super) fn of(error: &FilesError) -> Option<Full> {
        match error {
            FilesError::Storage { source, .. } | FilesError::Assembly(AssemblyError::Storage(source)) => {
                match source {
                    RootError::NoSpace(_) => Some(Full::Disk),
                    RootError::FsQuota { kept, .. } => Some(Full::Quota(*kept)),
                    _ => None,
                }
            }
            other => other.is_full().then_some(Full::Disk),
        }
    }

    /// The same failure of whoever comes later.
    pub(super) fn told(self, place: &Place) -> FilesError {
        let path = place.path.clone();
        let error = match self {
            Full::Disk => RootError::NoSpace(path),
            Full::Quota(kept) => RootError::FsQuota { path, kept },
        };
        AssemblyError::Storage(error).into()
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_api::error::ErrorName;
    use paddlecloud_pfs::Space;
    use paddlecloud_pfs::root::Counted;

    use super::*;

    #[test]
    fn who_comes_later_is_told_the_same() {
        let place = Place {
            space: Space::Public,
            path: "f".parse().unwrap(),
        };
        let kept = Some(KeptQuota {
            used: 7,
            limit: 9,
            counted: Counted::Bytes,
            beside: "",
        });
        let told = |source: RootError| {
            let first = FilesError::from(AssemblyError::Storage(source));
            let later = Full::of(&first).map(|full| full.told(&place).refusal());
            (first.refusal(), later)
        };
        let path = || place.path.clone();
        for (source, name) in [
            (RootError::NoSpace(path()), ErrorName::StorageFull),
            (
                RootError::FsQuota { path: path(), kept },
                ErrorName::QuotaExceeded,
            ),
        ] {
            let (first, later) = told(source);
            let later = later.expect("there was no room");
            assert_eq!(later.error, name);
            assert_eq!((later.msg, later.hints), (first.msg, first.hints));
        }
        assert!(told(RootError::Denied(path())).1.is_none());
    }
}
