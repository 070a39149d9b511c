//! Compares files with what is remembered of them.
//!
//! A file whose stamp changed was changed by someone; one whose bytes changed under the same stamp is damaged. Nothing is
//! forgotten by looking: what was found is remembered instead once somebody was told ([`Finding::mend`]).

use std::sync::Arc;
use std::time::Instant;

use crate::content::{Hashing, Hint, HintStore};
use crate::digest::Digest;
use crate::path::Space;
use crate::relpath::RelPath;
use crate::root::{RootError, Stamp};
use crate::store::{OpenSpace, ReadAt};

/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// What became of a file that was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Content as remembered.
    Sound,
    /// Same content, but touched, moved over or rewritten in place.
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

/// A known file and how it fares.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What was known when the check began.
    pub hint: Hint,
    pub verdict: Verdict,
    /// What is there, where it could be read.
    found: Option<(Stamp, Digest)>,
}

impl Finding {
    /// Remembers what is there instead of what was known, unless the file has become known anew meanwhile. Damage stays
    /// remembered as such: the bytes that were stored are the right ones.
    pub fn mend(&self, hints: &HintStore) {
        if !hints.is_latest(&self.hint) {
            return;
        }
        let place = &self.hint.place;
        match (self.verdict, self.found) {
            (Verdict::RemovedOutside, _) => hints.forget(place),
            (Verdict::Touched | Verdict::ChangedOutside, Some((stamp, digest))) => hints.record(Hint {
                place: place.clone(),
                stamp,
                digest,
            }),
            _ => {}
        }
    }
}

/// How far a check has come.
#[derive(Debug)]
pub enum Step {
    /// A file was read to its end, or cannot be.
    Checked(Box<Finding>),
    /// The time is up in the middle of a file.
    Busy,
}

/// Reads known files one after the other, in the order of their places. Every file gets its verdict, whatever is wrong
/// with another.
pub struct Checker {
    hints: std::vec::IntoIter<Hint>,
    /// With nothing where a space cannot be opened.
    spaces: Vec<(Space, Option<OpenSpace>)>,
    reading: Option<Reading>,
}

impl Checker {
    /// Begins to check all files that are known in these spaces. Files of a space that cannot be opened are unreadable.
    pub fn new(hints: &HintStore, spaces: Vec<(Space, Option<OpenSpace>)>) -> Self {
        let mut known = hints.all();
        known.retain(|hint| spaces.iter().any(|(space, _)| *space == hint.place.space));
        known.sort_by(|one, other| one.place.cmp(&other.place));
        Self {
            hints: known.into_iter(),
            spaces,
            reading: None,
        }
    }

    /// Goes on until a file is checked or the time is up, if only by a little; `None` after the last file.
    pub fn next(&mut self, hints: &HintStore, until: Instant) -> Option<Step> {
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.next_known(hints)?,
        };
        let Some((verdict, found)) = reading.go_on(until) else {
            self.reading = Some(reading);
            return Some(Step::Busy);
        };
        Some(Step::Checked(Box::new(Finding {
            hint: reading.hint,
            verdict,
            found,
        })))
    }

    fn next_known(&mut self, hints: &HintStore) -> Option<Reading> {
        loop {
            let hint = self.hints.next()?;
            let (_, space) = self.spaces.iter().find(|(space, _)| *space == hint.place.space)?;
            match space {
                // Links lead elsewhere tomorrow; what lies there has its own name.
                Some(space) if lies_behind_a_link(space, &hint.place.path) => hints.forget(&hint.place),
                space => return Some(Reading::new(hint, space.clone())),
            }
        }
    }
}

/// Whether a folder on the way to it is a link.
fn lies_behind_a_link(root: &OpenSpace, path: &RelPath) -> bool {
    let opened = root.open_no_links(path);
    matches!(opened, Err(RootError::ThroughLink(_))) && root.stat_link(path).is_ok_and(|meta| meta.is_file())
}

/// A file that is being read.
struct Reading {
    hint: Hint,
    /// Nothing where it cannot be opened.
    space: Option<OpenSpace>,
    attempts: usize,
    open: Option<Open>,
}

struct Open {
    file: Arc<dyn ReadAt>,
    hashing: Box<Hashing>,
}

type Outcome = (Verdict, Option<(Stamp, Digest)>);

impl Reading {
    fn new(hint: Hint, space: Option<OpenSpace>) -> Self {
        Self {
            hint,
            space,
            attempts: ATTEMPTS,
            open: None,
        }
    }

    /// Reads on until it is clear how the file fares; `None` when the time is up before.
    fn go_on(&mut self, until: Instant) -> Option<Outcome> {
        loop {
            if let Some(outcome) = self.read_on() {
                return Some(outcome);
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }

    /// Reads one stretch.
    fn read_on(&mut self) -> Option<Outcome> {
        let Some(space) = &self.space else {
            return Some((Verdict::Unreadable, None));
        };
        let path = &self.hint.place.path;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => match space.open_no_links(path) {
                Ok(file) => Open {
                    file,
                    hashing: Box::default(),
                },
                Err(error) if is_no_file(&error) => return Some((Verdict::RemovedOutside, None)),
                Err(_) => return Some((Verdict::Unreadable, None)),
            },
        };
        let digest = match open.hashing.read_on(&*open.file) {
            Err(_) => return Some((Verdict::Unreadable, None)),
            Ok(None) => {
                self.open = Some(open);
                return None;
            }
            Ok(Some(digest)) => digest,
        };
        let stamp = open.file.meta().stamp;
        // Stamp and digest belong together only if nobody wrote meanwhile.
        if space.stat_link(path).is_ok_and(|after| after.stamp == stamp) {
            return Some(self.compare(stamp, digest));
        }
        self.attempts -= 1;
        (self.attempts == 0).then_some((Verdict::Changing, None))
    }

    fn compare(&self, stamp: Stamp, digest: Digest) -> Outcome {
        let verdict = match (stamp == self.hint.stamp, digest == self.hint.digest) {
            (true, true) => Verdict::Sound,
            (true, false) => Verdict::Damaged,
            (false, true) => Verdict::Touched,
            (false, false) => Verdict::ChangedOutside,
        };
        (verdict, Some((stamp, digest)))
    }
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
    use std::time::Duration;

    use super::*;
    use crate::path::Place;
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

    fn findings(hints: &HintStore, root: Option<&Root>) -> Vec<Finding> {
        let root = root.map(|root| root.clone().into());
        let mut checker = Checker::new(hints, vec![(space(), root)]);
        let long = Instant::now() + Duration::from_secs(3600);
        let steps = std::iter::from_fn(|| checker.next(hints, long));
        let checked = steps.map(|step| match step {
            Step::Checked(finding) => *finding,
            Step::Busy => panic!("an hour is not over"),
        });
        checked.collect()
    }

    fn told(findings: &[Finding]) -> Vec<(String, Verdict)> {
        let one = |finding: &Finding| (finding.hint.place.path.to_string(), finding.verdict);
        findings.iter().map(one).collect()
    }

    #[test]
    fn what_was_seen_behind_a_link_is_not_missed_when_the_link_leads_elsewhere() {
        let (folder, root) = scratch();
        plant(folder.path(), &[("run/f", "1"), ("link -> run", "")]);
        let hints = HintStore::new();
        let place = known(&hints, &root, "link/f", b"1");
        assert!(findings(&hints, Some(&root)).is_empty());
        assert!(hints.all().iter().all(|hint| hint.place != place));
    }

    #[test]
    fn changed_outside_and_damaged_are_told_apart_until_somebody_has_heard_of_it() {
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

        let expected = [
            ("changed", Verdict::ChangedOutside),
            ("damaged", Verdict::Damaged),
            ("removed", Verdict::RemovedOutside),
            ("sound", Verdict::Sound),
            ("touched", Verdict::Touched),
        ];
        let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict));
        assert_eq!(told(&findings(&hints, Some(&root))), expected);
        let again = findings(&hints, Some(&root));
        assert_eq!(told(&again), expected, "looking alone changes nothing");

        again.iter().for_each(|finding| finding.mend(&hints));
        let mut unsound = told(&findings(&hints, Some(&root)));
        unsound.retain(|(_, verdict)| *verdict != Verdict::Sound);
        let damaged = ("damaged".to_owned(), Verdict::Damaged);
        assert_eq!(unsound, [damaged], "damage stays reported, the rest is mended");
    }

    #[test]
    fn what_became_known_anew_is_not_mended_by_what_was_found_before() {
        let (folder, root) = scratch();
        let hints = HintStore::new();
        root.write_file(&rel("f"), b"content", Existing::Keep).unwrap();
        known(&hints, &root, "f", b"content");
        fs::remove_file(folder.path().join("f")).unwrap();
        let found = findings(&hints, Some(&root));
        assert_eq!(found[0].verdict, Verdict::RemovedOutside);
        root.write_file(&rel("f"), b"sent anew", Existing::Keep).unwrap();
        known(&hints, &root, "f", b"sent anew");
        found[0].mend(&hints);
        assert_eq!(hints.len(), 1, "the new file stays known");
    }

    #[test]
    fn a_large_file_is_read_in_stretches_between_which_others_can_be_told_that_it_goes_on() {
        let (_folder, root) = scratch();
        let hints = HintStore::new();
        let content = vec![7; 9 << 20];
        root.write_file(&rel("large"), &content, Existing::Keep).unwrap();
        known(&hints, &root, "large", &content);
        let mut checker = Checker::new(&hints, vec![(space(), Some(root.clone().into()))]);
        let mut busy = 0;
        let verdict = loop {
            match checker.next(&hints, Instant::now()) {
                Some(Step::Busy) => busy += 1,
                Some(Step::Checked(finding)) => break finding.verdict,
                None => panic!("it was known"),
            }
        };
        assert!(busy >= 2, "{busy} stretches before the last");
        assert_eq!(verdict, Verdict::Sound);
        assert!(checker.next(&hints, Instant::now()).is_none());
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
            let found = findings(&hints, Some(root));
            let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, [Verdict::Sound, Verdict::Unreadable, Verdict::Sound]);
            found.iter().for_each(|finding| finding.mend(&hints));
            assert_eq!(hints.len(), 3, "it is not forgotten for that");
        });
    }

    #[test]
    fn files_of_a_space_that_cannot_be_opened_are_unreadable() {
        let (_folder, root) = scratch();
        let hints = HintStore::new();
        root.write_file(&rel("f"), b"content", Existing::Keep).unwrap();
        known(&hints, &root, "f", b"content");
        let found = findings(&hints, None);
        assert_eq!(told(&found), [("f".to_owned(), Verdict::Unreadable)]);
    }
}
