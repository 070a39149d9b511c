//! The checkpoints in their folder: which can be loaded, and which can go.
//!
//! A file of changed rows needs the same server's file of its base. Servers need not have the same base: one that was
//! replaced, or whose last write failed, writes a complete file before the others do.

use std::path::{Path, PathBuf};

use crate::checkpoint::{self, CheckpointError, Found};

use super::header::{Header, read_header};

/// The number of checkpoints that are kept, apart from their bases.
const KEPT_CHECKPOINTS: usize = 2;

/// One server's file of a checkpoint.
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    /// The file of the complete checkpoint that this one adds to.
    pub(super) base: Option<PathBuf>,
}

pub(super) fn list(folder: &Path) -> Result<Vec<Found>, CheckpointError> {
    checkpoint::list(folder).map_err(|source| CheckpointError::Read {
        path: folder.to_owned(),
        source,
    })
}

/// What a folder has to resume from.
#[derive(Debug, Default)]
pub(super) struct Latest {
    pub(super) intact: Option<u64>,
    /// Why a later one cannot be loaded.
    pub(super) damage: Option<CheckpointError>,
}

/// Finds the latest checkpoint that is intact. Logs those that were skipped.
pub(super) fn latest(folder: &Path) -> Result<Latest, CheckpointError> {
    let mut found = Latest::default();
    for candidate in list(folder)? {
        match verify(folder, candidate.step) {
            Ok(()) => {
                found.intact = Some(candidate.step);
                break;
            }
            Err(error) => {
                eprintln!("skipped a checkpoint: {error}");
                found.damage.get_or_insert(error);
            }
        }
    }
    Ok(found)
}

/// The files of all servers of a checkpoint; there is at least one.
pub(super) fn parts(folder: &Path, step: u64) -> Result<Vec<Part>, CheckpointError> {
    let found = list(folder)?.into_iter().find(|found| found.step == step);
    let Some(Found { servers, .. }) = found.filter(|found| found.servers > 0) else {
        return Err(CheckpointError::None(checkpoint::folder_of(folder, step)));
    };
    let part = |server| {
        let path = checkpoint::file(folder, step, server, servers);
        let header = read_header(&path)?;
        let base = header.base;
        Ok(Part {
            path,
            base: base.map(|base| checkpoint::file(folder, base, server, servers)),
            header,
        })
    };
    let parts: Vec<Part> = (0..servers).map(part).collect::<Result<_, _>>()?;
    // After a rollback the same steps are saved again: until all servers have done so, the files do not fit together.
    match parts
        .iter()
        .find(|part| part.header.epoch != parts[0].header.epoch)
    {
        Some(other) => Err(CheckpointError::Damaged {
            path: other.path.clone(),
            reason: "its files were written before and after a rollback".to_owned(),
        }),
        None => Ok(parts),
    }
}

/// Checks that a checkpoint and its bases are intact.
pub(super) fn verify(folder: &Path, step: u64) -> Result<(), CheckpointError> {
    for part in parts(folder, step)? {
        checkpoint::verify(&part.path)?;
        if let Some(base) = part.base {
            checkpoint::verify(&base)?;
        }
    }
    Ok(())
}

/// Removes what is older than the latest checkpoints that can be loaded, complete or not, but not their bases. Ignores
/// failures.
pub(super) fn remove_old(folder: &Path) {
    let Ok(found) = list(folder) else { return };
    let latest: Vec<(u64, Vec<Part>)> = found
        .iter()
        .filter_map(|found| Some((found.step, parts(folder, found.step).ok()?)))
        .filter(|(_, parts)| {
            parts
                .iter()
                .all(|part| part.base.iter().all(|base| base.exists()))
        })
        .take(KEPT_CHECKPOINTS)
        .collect();
    let (Some((oldest, _)), KEPT_CHECKPOINTS) = (latest.last(), latest.len()) else {
        return;
    };
    let parts = latest.iter().flat_map(|(_, parts)| parts);
    let bases: Vec<u64> = parts.filter_map(|part| part.header.base).collect();
    for step in checkpoint::steps(folder).unwrap_or_default() {
        if step < *oldest && !bases.contains(&step) {
            let _ = std::fs::remove_dir_all(checkpoint::folder_of(folder, step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use crate::checkpoint::{FileWriter, folder_of, steps};

    /// Writes one server's file.
    fn write(folder: &Path, step: u64, server: u32, base: Option<u64>) {
        let mut file = FileWriter::create(folder, step, server, 2).unwrap();
        let header = Header {
            step,
            base,
            ..Header::start()
        };
        file.record(kind::HEADER, &header.encode(), &[]).unwrap();
        file.finish().unwrap();
    }

    fn write_both(folder: &Path, step: u64, base: Option<u64>) {
        write(folder, step, 0, base);
        write(folder, step, 1, base);
    }

    #[test]
    fn files_from_before_and_after_a_rollback_are_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_both(folder, 1, None);
        verify(folder, 1).unwrap();
        let mut file = FileWriter::create(folder, 1, 1, 2).unwrap();
        let header = Header {
            step: 1,
            epoch: 2,
            ..Header::start()
        };
        file.record(kind::HEADER, &header.encode(), &[]).unwrap();
        file.finish().unwrap();
        assert!(verify(folder, 1).is_err());
    }

    fn left(folder: &Path) -> Vec<u64> {
        remove_old(folder);
        let mut steps = steps(folder).unwrap();
        steps.sort_unstable();
        steps
    }

    #[test]
    fn checkpoints_without_their_base_do_not_displace_others() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_both(folder, 1, None);
        write_both(folder, 2, Some(1));
        write_both(folder, 4, Some(3));
        write_both(folder, 5, Some(3));
        assert_eq!(left(folder), [1, 2, 4, 5]);
        assert!(verify(folder, 5).is_err());
        write_both(folder, 6, None);
        assert_eq!(left(folder), [1, 2, 4, 5, 6]);
        write_both(folder, 7, Some(6));
        assert_eq!(left(folder), [6, 7]);
    }

    #[test]
    fn incomplete_checkpoints_are_removed_with_those_of_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, 1, 0, None);
        std::fs::create_dir(folder_of(folder, 2)).unwrap();
        write_both(folder, 3, None);
        write_both(folder, 4, Some(3));
        // It may still be on its way.
        write(folder, 5, 1, Some(3));
        assert_eq!(left(folder), [3, 4, 5]);
    }

    #[test]
    fn each_server_has_its_own_base() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // Server 0 failed to write it.
        write(folder, 1, 1, None);
        for step in [2, 3] {
            write(folder, step, 0, (step > 2).then_some(2));
            write(folder, step, 1, Some(1));
        }
        verify(folder, 3).unwrap();
        assert_eq!(left(folder), [1, 2, 3]);
        std::fs::remove_file(checkpoint::file(folder, 1, 1, 2)).unwrap();
        assert!(verify(folder, 3).is_err());
    }
}
