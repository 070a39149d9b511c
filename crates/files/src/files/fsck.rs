//! Checks every indexed file against its record, and reports findings as they occur.
//!
//! Findings are cleared when the check ends, so the check after an interrupted one reports them again.

use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::{Action, Caller};
use paddlecloud_api::files::{FsckEnd, FsckFinding, FsckLine, FsckVerdict};
use paddlecloud_pfs::Space;
use paddlecloud_pfs::check::{Checker, Finding, Verdict};
use paddlecloud_pfs::store::OpenSpace;

use super::digests::logged;
use super::{Files, FilesError};
use crate::queue::KEEP_ALIVE_INTERVAL;

/// Bytes of text that are buffered before they are sent.
const LINES: usize = 64 << 10;

/// A check in progress.
pub struct Fsck {
    files: Files,
    /// `None` once it is finished.
    checker: Option<Checker>,
    pause: Duration,
    checked: u64,
    found: Vec<Finding>,
}

impl Files {
    /// Starts to check every indexed file. For administrators.
    pub fn fsck(&self, caller: &Caller) -> Result<Fsck, FilesError> {
        if !caller.may(Action::Administer) {
            return Err(FilesError::AdminOnly);
        }
        let checker = Checker::new(self.index(), |space| self.space_to_check(space));
        let checker = checker.map_err(|error| FilesError::Disk(error, "read the file index"))?;
        Ok(Fsck {
            files: self.clone(),
            checker: Some(checker),
            pause: KEEP_ALIVE_INTERVAL,
            checked: 0,
            found: Vec::new(),
        })
    }

    /// Opens a space that the index has files of; `None` if it cannot be opened.
    fn space_to_check(&self, space: &Space) -> Option<OpenSpace> {
        let opened = self.space(space).inspect_err(|error| {
            tracing::warn!(%space, error = paddlecloud_core::error_chain::chain_of(error), "a home could not be checked");
        });
        opened.ok()
    }
}

impl Fsck {
    /// The next lines; `None` after the last. A blank, which JSON ignores before a line, if all files were sound for a while.
    pub fn next_lines(&mut self) -> Option<Vec<u8>> {
        let mut checker = self.checker.take()?;
        let mut lines = Vec::new();
        let until = Instant::now() + self.pause;
        loop {
            match checker.next(self.files.index()) {
                Some(finding) => self.note(finding, &mut lines),
                None => break self.end(&mut lines),
            }
            if lines.len() >= LINES || Instant::now() >= until {
                break self.checker = Some(checker);
            }
        }
        if lines.is_empty() {
            lines.push(b' ');
        }
        Some(lines)
    }

    fn note(&mut self, finding: Finding, lines: &mut Vec<u8>) {
        self.checked += 1;
        let Some(verdict) = reported_verdict(finding.verdict) else {
            return;
        };
        let place = &finding.indexed.place;
        let line = FsckLine::Found(FsckFinding {
            path: format!("{}/{}", place.space, place.path),
            verdict,
        });
        write(&line, lines);
        self.found.push(finding);
    }

    fn end(&mut self, lines: &mut Vec<u8>) {
        for finding in self.found.drain(..) {
            // If this fails, the next check finds the same.
            logged(finding.update_row(self.files.index()));
        }
        let checked = self.checked;
        write(&FsckLine::End(FsckEnd { checked }), lines);
    }
}

fn write(line: &FsckLine, lines: &mut Vec<u8>) {
    serde_json::to_writer(&mut *lines, line).expect("plain data becomes JSON");
    lines.push(b'\n');
}

fn reported_verdict(verdict: Verdict) -> Option<FsckVerdict> {
    match verdict {
        Verdict::Sound => None,
        Verdict::Touched => Some(FsckVerdict::Touched),
        Verdict::ChangedOutside => Some(FsckVerdict::ChangedOutside),
        Verdict::RemovedOutside => Some(FsckVerdict::RemovedOutside),
        Verdict::Damaged => Some(FsckVerdict::Damaged),
        Verdict::Unreadable => Some(FsckVerdict::Unreadable),
        Verdict::Changing => Some(FsckVerdict::Changing),
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::access::Scopes;
    use paddlecloud_pfs::{Digest, Place, Root};

    use super::*;
    use crate::files::testing;

    struct Fixture {
        folder: tempfile::TempDir,
        files: Files,
    }

    impl Fixture {
        /// A server whose index has the file `f` in a home.
        fn knowing(content: &[u8]) -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let fixture = Fixture {
                files: testing::files(folder.path()),
                folder,
            };
            std::fs::write(fixture.home().join("f"), content).unwrap();
            let place = Place {
                space: Space::Home("me".parse().unwrap()),
                path: "f".parse().unwrap(),
            };
            let root = Root::open(fixture.home()).unwrap();
            let stamp = root.stat(&place.path).unwrap().stamp;
            fixture.files.record(&place, stamp, Digest::of(content));
            fixture
        }

        fn home(&self) -> std::path::PathBuf {
            testing::home(self.folder.path())
        }

        fn fsck(&self) -> Fsck {
            self.files.fsck(&caller(true)).unwrap()
        }

        /// The findings of a check.
        fn check(&self) -> Vec<FsckVerdict> {
            let mut fsck = self.fsck();
            let lines: Vec<u8> = std::iter::from_fn(|| fsck.next_lines()).flatten().collect();
            let mut found = Vec::new();
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match serde_json::from_slice(line).unwrap() {
                    FsckLine::Found(finding) => found.push(finding.verdict),
                    FsckLine::End(_) => return found,
                }
            }
            panic!("it has no end");
        }
    }

    fn caller(admin: bool) -> Caller {
        Caller {
            scopes: match admin {
                true => Scopes::all(),
                false => Scopes::user(),
            },
            ..testing::me()
        }
    }

    #[test]
    fn findings_are_reported_again_until_a_check_completes() {
        let fixture = Fixture::knowing(b"content");
        std::fs::write(fixture.home().join("f"), "another").unwrap();
        let mut broken = fixture.fsck();
        broken.pause = Duration::ZERO;
        broken.next_lines().unwrap();
        drop(broken);
        let found = [FsckVerdict::ChangedOutside];
        assert_eq!(fixture.check(), found, "a check that broke off loses nothing");
        assert_eq!(fixture.check(), []);
    }

    #[test]
    fn only_administrators_check() {
        let fixture = Fixture::knowing(b"content");
        let refused = fixture.files.fsck(&caller(false));
        assert!(matches!(refused, Err(FilesError::AdminOnly)));
    }
}
