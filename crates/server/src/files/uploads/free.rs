//! Free space on the file systems of uploads: what active uploads still miss is not free.
//!
//! Only uploads with a recent request count: an interrupted upload blocks nobody else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddlecloud_pfs::content::AssemblyPlan;
use paddlecloud_pfs::{RelPath, Root, RootError};

use super::presence::is_used;
use super::{Live, Uploads};

/// An active client sends its next request within this time, also after its connection broke.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Bytes promised to uploads that are being created, by file system.
#[derive(Default)]
pub(super) struct Promised(Mutex<HashMap<u64, u64>>);

/// Space on a file system, held until the upload itself counts.
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
    /// Reserves disk space for a new upload where it is staged.
    pub(super) fn promise(&self, staging: &Root, plan: &AssemblyPlan) -> Result<Promise<'_>, RootError> {
        let device = device_of(staging)?;
        let mut promised = self.promised.lock();
        let begun = promised.get(&device).copied().unwrap_or_default();
        let taken = begun.saturating_add(self.missing_on(device));
        let (free, size) = staging.free_space()?;
        // A file system of size 0 does not report its free space: CephFS in its first seconds.
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

    /// What active uploads will still write to a file system.
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

/// The file system of a folder.
pub(super) fn device_of(folder: &Root) -> Result<u64, RootError> {
    Ok(folder.stat(&RelPath::root())?.stamp.device)
}
