//! The checkpoints in their folder: which can be loaded, and which can go.

use std::path::{Path, PathBuf};

use crate::checkpoint::{self, CheckpointError, Found};

use super::header::read_header;

/// The number of complete checkpoints that are kept.
const KEPT_CHECKPOINTS: usize = 2;

/// All files of a complete checkpoint.
pub(super) fn files(folder: &Path, step: u64) -> Result<Vec<PathBuf>, CheckpointError> {
    let found = list(folder)?.into_iter().find(|found| found.step == step);
    let servers = found.map_or(0, |found| found.servers);
    Ok((0..servers)
        .map(|server| checkpoint::file(folder, step, server, servers))
        .collect())
}

pub(super) fn list(folder: &Path) -> Result<Vec<Found>, CheckpointError> {
    checkpoint::list(folder).map_err(|source| CheckpointError::Read {
        path: folder.to_owned(),
        source,
    })
}

/// Checks that a checkpoint and its base are intact.
pub(super) fn verify(folder: &Path, step: u64) -> Result<(), CheckpointError> {
    let header = read_header(folder, step)?;
    for step in [Some(step), header.base].into_iter().flatten() {
        let files = files(folder, step)?;
        if files.is_empty() {
            return Err(CheckpointError::None(folder.join(format!("step-{step:012}"))));
        }
        for path in files {
            checkpoint::verify(&path)?;
        }
    }
    Ok(())
}

/// Removes checkpoints that are neither among the latest nor a base of these. Ignores failures.
pub(super) fn remove_old(folder: &Path) {
    let Ok(found) = list(folder) else { return };
    let latest: Vec<u64> = found.iter().map(|found| found.step).collect();
    let Some(oldest) = latest.get(KEPT_CHECKPOINTS - 1).copied() else {
        return;
    };
    let bases: Vec<u64> = latest[..KEPT_CHECKPOINTS]
        .iter()
        .filter_map(|step| read_header(folder, *step).ok()?.base)
        .collect();
    for step in latest {
        if step < oldest && !bases.contains(&step) {
            let _ = std::fs::remove_dir_all(folder.join(format!("step-{step:012}")));
        }
    }
}
