//! Remembers which uploads ran out of space, so that all requests for such an upload get the same error.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::root::OwnQuota;
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Place, RootError, Space};

use crate::files::FilesError;

/// Why there was no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    Disk,
    /// A quota of the storage itself; with limit and usage if they are known.
    Quota(Option<OwnQuota>),
}

impl Full {
    /// The cause, if an error is of this kind.
    pub(super) fn of(error: &FilesError) -> Option<Full> {
        match error.storage() {
            Some(RootError::FsQuota { kept, .. }) => Some(Full::Quota(*kept)),
            _ => error.is_full().then_some(Full::Disk),
        }
    }

    /// The same error for a later request.
    pub(super) fn told(self, place: &Place) -> FilesError {
        let path = place.path.clone();
        let error = match self {
            Full::Disk => RootError::NoSpace(path),
            Full::Quota(kept) => RootError::FsQuota { path, kept },
        };
        AssemblyError::Storage(error).into()
    }
}

/// The most uploads that are remembered.
const MOST: usize = 100;

/// Uploads that ran out of space, the latest last: requests in flight get that error.
#[derive(Default)]
pub(super) struct EndedFull(Mutex<VecDeque<(StagedId, Place, Full)>>);

impl EndedFull {
    pub(super) fn note(&self, id: &StagedId, place: &Place, by: Full) {
        let mut ended = self.lock();
        if ended.len() == MOST {
            ended.pop_front();
        }
        ended.push_back((id.clone(), place.clone(), by));
    }

    /// Why an upload does not exist in these spaces.
    pub(super) fn not_there(&self, id: &StagedId, spaces: &[Space]) -> FilesError {
        let ended = self.lock();
        let found = ended
            .iter()
            .find(|(known, place, _)| known == id && spaces.contains(&place.space));
        match found {
            Some((_, place, full)) => full.told(place),
            None => FilesError::NoUpload(id.to_string()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(StagedId, Place, Full)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_api::error::ErrorName;
    use paddlecloud_pfs::root::Counted;

    use super::*;

    #[test]
    fn who_comes_later_is_told_the_same() {
        let place = Place {
            space: Space::Public,
            path: "f".parse().unwrap(),
        };
        let kept = Some(OwnQuota {
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
