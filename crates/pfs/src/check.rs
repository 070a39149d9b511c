//! Compares stored files with their rows in the file index.
//!
//! A file with a new stamp was changed by a user or a job; a file with other bytes under the same stamp is damaged. A check does
//! not change rows, except that it removes the row of a file behind a link. After a finding is reported, [`Finding::update_row`]
//! updates the row.

use std::collections::BTreeMap;
use std::io;

use crate::content::{FileIndex, IndexedFile, hash_file};
use crate::digest::Digest;
use crate::path::Space;
use crate::relpath::RelPath;
use crate::root::{RootError, Stamp};
use crate::store::OpenSpace;

/// How often to read a file that changes during the read.
const ATTEMPTS: usize = 3;

/// The state of an indexed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The content is as recorded.
    Sound,
    /// The content is the same, but the file was touched, moved over or rewritten in place.
    Touched,
    /// The content was changed without the service, which is allowed.
    ChangedOutside,
    /// The file was removed without the service.
    RemovedOutside,
    /// The stamp is unchanged but the bytes differ: the disk is corrupt.
    Damaged,
    /// The file exists and cannot be read.
    Unreadable,
    /// The file changed during every attempt to read it.
    Changing,
}

/// An indexed file and its state.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The row at the start of the check.
    pub indexed: IndexedFile,
    pub verdict: Verdict,
    /// The stamp and digest on disk, if the file could be read.
    found: Option<(Stamp, Digest)>,
}

impl Finding {
    /// Replaces the row by what was found, unless the row has changed since. The row of a damaged file stays: it has the digest
    /// of the correct bytes.
    pub fn update_row(&self, index: &dyn FileIndex) -> io::Result<()> {
        match self.verdict {
            Verdict::RemovedOutside | Verdict::Touched | Verdict::ChangedOutside => {
                index.replace(&self.indexed, self.found)
            }
            Verdict::Sound | Verdict::Damaged | Verdict::Unreadable | Verdict::Changing => Ok(()),
        }
    }
}

/// Reads indexed files one after the other, ordered by their places. An error in one file does not affect the others.
pub struct Checker {
    files: std::vec::IntoIter<IndexedFile>,
    /// `None` for a space that cannot be opened.
    spaces: BTreeMap<Space, Option<OpenSpace>>,
}

impl Checker {
    /// Starts a check of all indexed files. Files in a space that cannot be opened are unreadable.
    pub fn new(index: &dyn FileIndex, mut open: impl FnMut(&Space) -> Option<OpenSpace>) -> io::Result<Self> {
        let mut files = index.all()?;
        files.sort_by(|one, other| one.place.cmp(&other.place));
        let of_spaces = files.chunk_by(|one, other| one.place.space == other.place.space);
        let spaces = of_spaces.map(|files| files[0].place.space.clone());
        let spaces = spaces.map(|space| {
            let opened = open(&space);
            (space, opened)
        });
        Ok(Self {
            spaces: spaces.collect(),
            files: files.into_iter(),
        })
    }

    /// Reads the next file; `None` after the last.
    pub fn next(&mut self, index: &dyn FileIndex) -> Option<Finding> {
        loop {
            let indexed = self.files.next()?;
            let (verdict, found) = match self.spaces.get(&indexed.place.space)? {
                // A link may point elsewhere later, and its target has its own row.
                Some(space) if lies_behind_a_link(space, &indexed.place.path) => {
                    // If removing the row fails, the next check removes it.
                    let _ = index.replace(&indexed, None);
                    continue;
                }
                Some(space) => read(space, &indexed),
                None => (Verdict::Unreadable, None),
            };
            return Some(Finding {
                indexed,
                verdict,
                found,
            });
        }
    }
}

/// Whether a folder on the path is a symbolic link.
fn lies_behind_a_link(root: &OpenSpace, path: &RelPath) -> bool {
    let opened = root.open_no_links(path);
    matches!(opened, Err(RootError::ThroughLink(_))) && root.stat_link(path).is_ok_and(|meta| meta.is_file())
}

fn read(space: &OpenSpace, indexed: &IndexedFile) -> (Verdict, Option<(Stamp, Digest)>) {
    let path = &indexed.place.path;
    for _ in 0..ATTEMPTS {
        let file = match space.open_no_links(path) {
            Ok(file) => file,
            Err(error) if is_no_file(&error) => return (Verdict::RemovedOutside, None),
            Err(_) => return (Verdict::Unreadable, None),
        };
        let Ok(digest) = hash_file(&*file) else {
            return (Verdict::Unreadable, None);
        };
        let stamp = file.meta().stamp;
        // Stamp and digest belong together only if the file was not written during the read.
        if space.stat_link(path).is_ok_and(|after| after.stamp == stamp) {
            let verdict = match (stamp == indexed.stamp, digest == indexed.digest) {
                (true, true) => Verdict::Sound,
                (true, false) => Verdict::Damaged,
                (false, true) => Verdict::Touched,
                (false, false) => Verdict::ChangedOutside,
            };
            return (verdict, Some((stamp, digest)));
        }
    }
    (Verdict::Changing, None)
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::path::Place;
    use crate::root::{Existing, Root};
    use crate::testing::{MemoryIndex, as_ordinary_user, plant, rel, scratch};

    fn space() -> Space {
        Space::Home("ann".parse().unwrap())
    }

    fn known(index: &MemoryIndex, root: &Root, name: &str, remembered: &[u8]) -> Place {
        let place = Place {
            space: space(),
            path: rel(name),
        };
        let stamp = root.stat(&rel(name)).unwrap().stamp;
        let file = IndexedFile {
            place: place.clone(),
            stamp,
            digest: Digest::of(remembered),
        };
        index.record(&[file]).unwrap();
        place
    }

    fn findings(index: &MemoryIndex, root: Option<&Root>) -> Vec<Finding> {
        let mut checker = Checker::new(index, |_| root.map(|root| OpenSpace::Folder(root.clone()))).unwrap();
        std::iter::from_fn(|| checker.next(index)).collect()
    }

    fn verdicts(findings: &[Finding]) -> Vec<(String, Verdict)> {
        let one = |finding: &Finding| (finding.indexed.place.path.to_string(), finding.verdict);
        findings.iter().map(one).collect()
    }

    #[test]
    fn a_file_recorded_behind_a_link_is_not_reported_missing() {
        let (folder, root) = scratch();
        plant(folder.path(), &[("run/f", "1"), ("link -> run", "")]);
        let index = MemoryIndex::default();
        let place = known(&index, &root, "link/f", b"1");
        assert!(findings(&index, Some(&root)).is_empty());
        assert!(index.all().unwrap().iter().all(|file| file.place != place));
    }

    #[test]
    fn changed_outside_and_damaged_files_are_distinguished_until_settled() {
        let (folder, root) = scratch();
        let index = MemoryIndex::default();
        for name in ["sound", "touched", "changed", "removed", "damaged"] {
            root.write_file(&rel(name), b"content", Existing::Keep).unwrap();
            known(&index, &root, name, b"content");
        }
        fs::write(folder.path().join("touched"), "content").unwrap();
        fs::write(folder.path().join("changed"), "another").unwrap();
        fs::remove_file(folder.path().join("removed")).unwrap();
        // Other bytes under the recorded stamp, like a flipped bit on the disk.
        fs::write(folder.path().join("damaged"), "cOntent").unwrap();
        known(&index, &root, "damaged", b"content");

        let expected = [
            ("changed", Verdict::ChangedOutside),
            ("damaged", Verdict::Damaged),
            ("removed", Verdict::RemovedOutside),
            ("sound", Verdict::Sound),
            ("touched", Verdict::Touched),
        ];
        let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict));
        assert_eq!(verdicts(&findings(&index, Some(&root))), expected);
        let again = findings(&index, Some(&root));
        assert_eq!(verdicts(&again), expected, "looking alone changes nothing");

        again
            .iter()
            .for_each(|finding| finding.update_row(&index).unwrap());
        let mut unsound = verdicts(&findings(&index, Some(&root)));
        unsound.retain(|(_, verdict)| *verdict != Verdict::Sound);
        let damaged = ("damaged".to_owned(), Verdict::Damaged);
        assert_eq!(unsound, [damaged], "damage stays reported, the rest is mended");
    }

    #[test]
    fn settling_an_old_finding_keeps_a_newer_record() {
        let (folder, root) = scratch();
        let index = MemoryIndex::default();
        root.write_file(&rel("f"), b"content", Existing::Keep).unwrap();
        known(&index, &root, "f", b"content");
        fs::remove_file(folder.path().join("f")).unwrap();
        let found = findings(&index, Some(&root));
        assert_eq!(found[0].verdict, Verdict::RemovedOutside);
        root.write_file(&rel("f"), b"sent again", Existing::Keep).unwrap();
        known(&index, &root, "f", b"sent again");
        found[0].update_row(&index).unwrap();
        assert_eq!(index.all().unwrap().len(), 1, "the new file stays known");
    }

    #[test]
    fn files_in_a_folder_that_replaced_a_file_stay_indexed() {
        let (folder, root) = scratch();
        let index = MemoryIndex::default();
        root.write_file(&rel("x"), b"old", Existing::Keep).unwrap();
        known(&index, &root, "x", b"old");
        fs::remove_file(folder.path().join("x")).unwrap();
        plant(folder.path(), &[("x/y", "new")]);
        let inside = known(&index, &root, "x/y", b"new");
        let found = findings(&index, Some(&root));
        found
            .iter()
            .for_each(|finding| finding.update_row(&index).unwrap());
        let left: Vec<Place> = index.all().unwrap().into_iter().map(|file| file.place).collect();
        assert_eq!(left, [inside]);
    }

    #[test]
    fn an_unreadable_file_does_not_affect_other_verdicts() {
        as_ordinary_user(|folder, root| {
            let index = MemoryIndex::default();
            for name in ["a", "b", "c"] {
                root.write_file(&rel(name), b"content", Existing::Keep).unwrap();
            }
            fs::set_permissions(folder.join("b"), fs::Permissions::from_mode(0o000)).unwrap();
            for name in ["a", "b", "c"] {
                known(&index, root, name, b"content");
            }
            let found = findings(&index, Some(root));
            let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, [Verdict::Sound, Verdict::Unreadable, Verdict::Sound]);
            found
                .iter()
                .for_each(|finding| finding.update_row(&index).unwrap());
            assert_eq!(index.all().unwrap().len(), 3, "it is not forgotten for that");
        });
    }

    #[test]
    fn files_of_a_space_that_cannot_be_opened_are_unreadable() {
        let (_folder, root) = scratch();
        let index = MemoryIndex::default();
        root.write_file(&rel("f"), b"content", Existing::Keep).unwrap();
        known(&index, &root, "f", b"content");
        let found = findings(&index, None);
        assert_eq!(verdicts(&found), [("f".to_owned(), Verdict::Unreadable)]);
    }
}
