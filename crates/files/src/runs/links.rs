//! The links to packages and outputs: replaced atomically, and never in place of a user's own file.

use paddlecloud_core::job::Job;
use paddlecloud_pfs::root::Kind;
use paddlecloud_pfs::{Existing, LinkTarget, RelPath, Root};

use crate::homes::{OURS, StorageError};

/// Makes the package appear at `shown`, without touching the user's own files.
pub(super) fn show(home: &Root, shown: &RelPath, key: &str) -> Result<(), StorageError> {
    let link = format!("{OURS}/latest/{key}");
    match home.stat_link(shown) {
        Err(error) if error.is_not_found() => point(home, shown, &link),
        Err(error) => Err(error.into()),
        // The user's own folder, for example with data, only gets a link to the results. A run contains what was submitted, and
        // writes nowhere else.
        Ok(meta) if meta.is_dir() => {
            let output = shown.child(b"output").map_err(bad_name)?;
            lead(home, &output, &format!("../{link}/output"))
        }
        // The link is there, or the user's own file or link has the name: then the run is still found by its id.
        Ok(_) => Ok(()),
    }
}

/// Makes `place` point to the latest output. The user's own `output` is renamed, never lost.
pub(super) fn lead(home: &Root, place: &RelPath, target: &str) -> Result<(), StorageError> {
    match home.stat_link(place) {
        Ok(meta) if matches!(&meta.kind, Kind::Symlink(found) if found.as_bytes() == target.as_bytes()) => {
            return Ok(());
        }
        // A link of the server, from a run that was submitted in another way.
        Ok(meta) if matches!(&meta.kind, Kind::Symlink(found) if leads_to_latest(found.as_bytes())) => {}
        Ok(_) => move_aside(home, place)?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    point(home, place, target)
}

fn leads_to_latest(target: &[u8]) -> bool {
    let target = String::from_utf8_lossy(target);
    let below = target.trim_start_matches("../");
    below.len() < target.len() && below.starts_with(&format!("{OURS}/latest/"))
}

fn move_aside(home: &Root, place: &RelPath) -> Result<(), StorageError> {
    let (parent, name) = place.split_last().expect("an output lies in a package");
    for number in 1u32.. {
        let aside = parent
            .child(format!("{}.{number}", String::from_utf8_lossy(name)).as_bytes())
            .map_err(bad_name)?;
        match home.rename(place, &aside, Existing::Keep) {
            Err(paddlecloud_pfs::RootError::Exists(_)) => {}
            other => return Ok(other?),
        }
    }
    unreachable!("some number is free")
}

/// Replaces a link atomically: a reader sees the old target or the new one.
pub(super) fn point(home: &Root, place: &RelPath, target: &str) -> Result<(), StorageError> {
    let target = target
        .parse::<LinkTarget>()
        .map_err(|_| StorageError::BadName(target.to_owned()))?;
    Ok(home.publish_link(&target, place, Existing::Replace)?)
}

/// The target of `.paddlecloud/latest/<key>` for a part of a run.
pub(super) fn run_link(job: &Job, name: &str) -> String {
    format!("../runs/{}/{name}", job.id)
}

/// A short name for a path: readable and unique.
pub(super) fn latest_key(path: &RelPath) -> String {
    let name = String::from_utf8_lossy(path.name().unwrap_or_default()).into_owned();
    let readable: String = name.chars().take(40).collect();
    format!("{readable}-{}", &blake3::hash(path.as_bytes()).to_hex()[..12])
}

pub(super) fn bad_name(error: paddlecloud_pfs::RelPathError) -> StorageError {
    StorageError::Storage(error.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn replacing_a_link_shows_no_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let home = Root::open(folder.path())
            .unwrap()
            .with_durability(paddlecloud_pfs::root::Durability::Relaxed);
        let place: RelPath = "d/link".parse().unwrap();
        point(&home, &place, "0").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..500 {
                    point(&home, &place, &number.to_string()).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                for entry in std::fs::read_dir(folder.path().join("d")).unwrap() {
                    assert_eq!(entry.unwrap().file_name(), "link");
                }
            }
        });
        let last = std::fs::read_link(folder.path().join("d/link")).unwrap();
        assert_eq!(last, std::path::Path::new("499"));
    }
}
