//! Room on the file systems that uploads lie on: what those under way still miss is free no more.
//!
//! Only those count that somebody works at, or did a moment ago: what was broken off keeps nobody else from writing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddlecloud_pfs::content::AssemblyPlan;
use paddlecloud_pfs::{RelPath, Root, RootError};

use super::presence::is_used;
use super::{Live, Uploads};

/// A sender that is still there comes again within this time, also after its connection broke.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Bytes of each file system that were promised to uploads that are just being begun.
#[derive(Default)]
pub(super) struct Promised(Mutex<HashMap<u64, u64>>);

/// Room on a file system, until the upload itself counts.
pub(super) struct Promise<'a> {
    promised: &'a Promised,
    device: u64,
    bytes: u64,
}

impl Promised {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut promised = self.promised.lock();
        let left = promised.get(&self.device).copied().unwrap_or_default();
        match left.saturating_sub(self.bytes) {
            0 => drop(promised.remove(&self.device)),
            left => drop(promised.insert(self.device, left)),
        }
    }
}

impl Uploads {
    /// Sets room aside for a new upload where it will be gathered.
    pub(super) fn promise(&self, staging: &Root, plan: &AssemblyPlan) -> Result<Promise<'_>, RootError> {
        let device = device_of(staging)?;
        let mut promised = self.promised.lock();
        let begun = promised.get(&device).copied().unwrap_or_default();
        let taken = begun.saturating_add(self.missing_on(device));
        let (free, size) = staging.free_space()?;
        // A file system without a size does not say what is free either: CephFS in its first seconds.
        if size > 0 && free < plan.size.saturating_add(taken) {
            return Err(RootError::NoSpace(plan.path.clone()));
        }
        promised.insert(device, begun.saturating_add(plan.size));
        Ok(Promise {
            promised: &self.promised,
            device,
            bytes: plan.size,
        })
    }

    /// What uploads under way will still write to a file system.
    fn missing_on(&self, device: u64) -> u64 {
        let live = self.lock();
        let there = live
            .values()
            .filter(|live| live.device == Some(device) && is_used(live, A_MOMENT));
        there.map(|live| live.missing()).sum()
    }
}

impl Live {
    fn missing(&self) -> u64 {
        let gaps = self.assembly.missing();
        gaps.iter().map(|gap| gap.end - gap.start).sum()
    }
}

/// The file system a folder lies on.
pub(super) fn device_of(folder: &Root) -> Result<u64, RootError> {
    Ok(folder.stat(&RelPath::root())?.stamp.device)
}
