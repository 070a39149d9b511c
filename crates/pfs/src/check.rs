//! Compares files with what is remembered of them, and trees with each other.
//!
//! A file whose stamp changed was changed by someone; one whose bytes changed under the same stamp is damaged.

use std::collections::BTreeMap;

use crate::content::{Hint, HintStore, hash_file};
use crate::digest::Digest;
use crate::package::Manifest;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{RootError, Stamp};
use crate::store::OpenSpace;

/// What became of a file that was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Content as remembered.
    Sound,
    /// Same content, but touched, moved over or rewritten in place; the memory is brought up to date.
    Touched,
    /// Someone gave it other content past the service: his right.
    ChangedOutside,
    /// Someone removed it past the service.
    RemovedOutside,
    /// Nobody changed it, and yet its bytes are others: the disk lies.
    Damaged,
    /// It is there and cannot be read.
    Unreadable,
    /// Somebody writes to it all the time.
    Changing,
}

/// Reads every known file of the given spaces and says how it fares. Hints that no longer hold are mended.
///
/// Every file gets its verdict, whatever is wrong with another.
pub fn check_files(hints: &HintStore, spaces: &[(Space, OpenSpace)]) -> BTreeMap<Place, Verdict> {
    let mut verdicts = BTreeMap::new();
    for hint in hints.all() {
        let Some((_, root)) = spaces.iter().find(|(space, _)| *space == hint.place.space) else {
            continue;
        };
        if lies_behind_a_link(root, &hint.place.path) {
            // Links lead elsewhere tomorrow; what lies there has its own name.
            hints.forget(&hint.place);
            continue;
        }
        let verdict = check_file(hints, root, &hint);
        verdicts.insert(hint.place, verdict);
    }
    verdicts
}

/// Whether a folder on the way to it is a link.
fn lies_behind_a_link(root: &OpenSpace, path: &RelPath) -> bool {
    let opened = root.open_no_links(path);
    matches!(opened, Err(RootError::ThroughLink(_))) && root.stat_link(path).is_ok_and(|meta| meta.is_file())
}

fn check_file(hints: &HintStore, root: &OpenSpace, hint: &Hint) -> Verdict {
    let (stamp, digest) = match read_stable(root, &hint.place.path) {
        Ok(Some(found)) => found,
        Ok(None) => {
            hints.forget(&hint.place);
            return Verdict::RemovedOutside;
        }
        Err(RootError::Changing(_)) => return Verdict::Changing,
        Err(_) => return Verdict::Unreadable,
    };
    match (stamp == hint.stamp, digest == hint.digest) {
        (true, true) => Verdict::Sound,
        (true, false) => Verdict::Damaged,
        (false, same) => {
            hints.record(Hint {
                stamp,
                digest,
                place: hint.place.clone(),
            });
            if same {
                Verdict::Touched
            } else {
                Verdict::ChangedOutside
            }
        }
    }
}

/// Stamp and digest that belong together; `None` when it is no file (any more).
fn read_stable(root: &OpenSpace, path: &RelPath) -> Result<Option<(Stamp, Digest)>, RootError> {
    const ATTEMPTS: usize = 3;
    for _ in 0..ATTEMPTS {
        let file = match root.open_no_links(path) {
            Ok(open) => open,
            Err(error) if is_no_file(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let before = file.meta();
        let digest = hash_file(&*file).map_err(|error| RootError::io("read", path, error))?;
        match root.stat_link(path) {
            Ok(after) if after.stamp == before.stamp => return Ok(Some((before.stamp, digest))),
            _ => {}
        }
    }
    Err(RootError::Changing(path.clone()))
}

fn is_no_file(error: &RootError) -> bool {
    error.is_not_found()
        || matches!(
            error,
            RootError::NotAFolder(_)
                | RootError::IsAFolder(_)
                | RootError::NotAFile(_)
                | RootError::ThroughLink(_)
        )
}

/// How two trees differ, by content and not by time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    pub only_left: Vec<RelPath>,
    pub only_right: Vec<RelPath>,
    pub different: Vec<RelPath>,
}

impl Difference {
    /// Whether the trees are the same.
    pub fn is_empty(&self) -> bool {
        self.only_left.is_empty() && self.only_right.is_empty() && self.different.is_empty()
    }
}

/// Compares two trees by their manifests.
pub fn compare(left: &Manifest, right: &Manifest) -> Difference {
    let mut difference = Difference::default();
    for entry in left.entries() {
        match right.get(&entry.path) {
            None => difference.only_left.push(entry.path.clone()),
            Some(other) if other.node != entry.node => difference.different.push(entry.path.clone()),
            Some(_) => {}
        }
    }
    let missing = right
        .entries()
        .iter()
        .filter(|entry| left.get(&entry.path).is_none());
    difference.only_right = missing.map(|entry| entry.path.clone()).collect();
    difference
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::package::{ScanOptions, scan};
    use crate::root::{Existing, Root};
    use crate::testing::{as_ordinary_user, plant, rel, scratch};

    fn space() -> Space {
        Space::Home("ann".parse().unwrap())
    }

    fn known(hints: &HintStore, root: &Root, name: &str, remembered: &[u8]) -> Place {
        let place = Place {
            space: space(),
            path: rel(name),
        };
        let stamp = root.stat(&rel(name)).unwrap().stamp;
        hints.record(Hint {
            place: place.clone(),
            stamp,
            digest: Digest::of(remembered),
        });
        place
    }

    #[test]
    fn what_was_seen_behind_a_link_is_not_missed_when_the_link_leads_elsewhere() {
        let (folder, root) = scratch();
        plant(folder.path(), &[("run/f", "1"), ("link -> run", "")]);
        let hints = HintStore::new();
        let place = known(&hints, &root, "link/f", b"1");
        assert!(check_files(&hints, &[(space(), root.into())]).is_empty());
        assert!(hints.all().iter().all(|hint| hint.place != place));
    }

    #[test]
    fn changed_outside_and_damaged_are_told_apart() {
        let (folder, root) = scratch();
        let hints = HintStore::new();
        for name in ["sound", "touched", "changed", "removed", "damaged"] {
            root.write_file(&rel(name), b"content", Existing::Keep).unwrap();
            known(&hints, &root, name, b"content");
        }
        fs::write(folder.path().join("touched"), "content").unwrap();
        fs::write(folder.path().join("changed"), "another").unwrap();
        fs::remove_file(folder.path().join("removed")).unwrap();
        // Bytes that do not fit a stamp that does: what a flipped bit on the disk looks like.
        fs::write(folder.path().join("damaged"), "cOntent").unwrap();
        known(&hints, &root, "damaged", b"content");

        let verdicts = check_files(&hints, &[(space(), root.clone().into())]);
        let told: Vec<_> = verdicts
            .iter()
            .map(|(place, v)| (place.path.to_string(), *v))
            .collect();
        let expected = [
            ("changed", Verdict::ChangedOutside),
            ("damaged", Verdict::Damaged),
            ("removed", Verdict::RemovedOutside),
            ("sound", Verdict::Sound),
            ("touched", Verdict::Touched),
        ];
        assert_eq!(told, expected.map(|(name, verdict)| (name.to_owned(), verdict)));

        let again = check_files(&hints, &[(space(), root.into())]);
        let unsound: Vec<_> = again
            .values()
            .filter(|verdict| **verdict != Verdict::Sound)
            .collect();
        assert_eq!(
            unsound,
            [&Verdict::Damaged],
            "damage stays reported, the rest is mended"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_has_its_verdict_and_the_others_theirs() {
        as_ordinary_user(|folder, root| {
            let hints = HintStore::new();
            for name in ["a", "b", "c"] {
                root.write_file(&rel(name), b"content", Existing::Keep).unwrap();
            }
            fs::set_permissions(folder.join("b"), fs::Permissions::from_mode(0o000)).unwrap();
            for name in ["a", "b", "c"] {
                known(&hints, root, name, b"content");
            }
            let verdicts = check_files(&hints, &[(space(), root.clone().into())]);
            let told: Vec<Verdict> = verdicts.into_values().collect();
            assert_eq!(told, [Verdict::Sound, Verdict::Unreadable, Verdict::Sound]);
            assert_eq!(hints.len(), 3, "it is not forgotten for that");
        });
    }

    #[test]
    fn trees_are_compared_by_content() {
        let manifest = |nodes: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            plant(folder.path(), nodes);
            scan(folder.path(), &ScanOptions::default())
                .unwrap()
                .manifest()
                .unwrap()
        };
        let left = manifest(&[("a", "1"), ("b", "2"), ("l", "x")]);
        let right = manifest(&[("a", "1"), ("b", "3"), ("r", "x")]);
        let difference = compare(&left, &right);
        assert_eq!(difference.only_left, [rel("l")]);
        assert_eq!(difference.only_right, [rel("r")]);
        assert_eq!(difference.different, [rel("b")]);
        assert!(compare(&left, &left).is_empty());
    }
}
