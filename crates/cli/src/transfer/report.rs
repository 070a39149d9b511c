//! The end of a transfer: how much was done, what was not and why, and the exit code.

use paddlecloud_api::client::ClientError;
use paddlecloud_pfs::PfsPath;
use paddlecloud_transfer::{Failure, Summary, TransferError};

use super::remote::is_about_one_path;
use crate::error::{CliError, DONE, chain};
use crate::time_text::size;
use crate::world::World;

/// A terminal lists this many failures and counts the others; a file gets all of them.
const LISTED: usize = 50;

/// Something that could not be copied, or for which another operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub path: String,
    pub reason: String,
    /// The operation that failed, if it was not the command's main one.
    aside: Option<Aside>,
}

/// Operations other than copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aside {
    Look,
    Remove,
}

impl Aside {
    fn verb(self) -> &'static str {
        match self {
            Aside::Look => "list",
            Aside::Remove => "remove",
        }
    }
}

impl Lost {
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Lost {
        Lost {
            path: path.into(),
            reason: reason.into(),
            aside: None,
        }
    }

    /// The same for another operation than a copy.
    pub fn aside(aside: Aside, path: impl Into<String>, reason: impl Into<String>) -> Lost {
        Lost {
            aside: Some(aside),
            ..Lost::new(path, reason)
        }
    }

    /// A line of a list.
    fn line(&self) -> String {
        match self.aside {
            Some(aside) => format!("  cannot {} {}", aside.verb(), self.words("")),
            None => format!("  {}", self.words("")),
        }
    }

    /// Path and reason; only the reason if it already names the path.
    fn words(&self, quote: &str) -> String {
        let reason = match self.reason.strip_prefix(&format!("`{}`", self.path)) {
            Some(rest) if rest.starts_with(" itself ") => format!("the folder{rest}"),
            Some(rest) => format!("it{rest}"),
            None => self.reason.clone(),
        };
        format!("{quote}{}{quote}: {reason}", self.path)
    }
}

/// The totals over all sources of a command.
#[derive(Debug, Default)]
pub struct TransferTotals {
    pub transferred: u64,
    pub unchanged: u64,
    pub kept: u64,
    pub removed: u64,
    pub moved: u64,
    /// Bytes of failed attempts, which had to be sent again.
    again: u64,
    lost: Vec<Lost>,
    /// Files that were never tried because the transfer had to end.
    broken_off: u64,
    hints: Vec<String>,
}

impl TransferTotals {
    pub fn add(&mut self, summary: Summary) {
        self.transferred += summary.transferred;
        self.unchanged += summary.unchanged;
        self.kept += summary.kept;
        self.moved += summary.moved;
        self.again += summary.again;
        summary
            .failures
            .into_iter()
            .for_each(|failure| self.fail(failure));
    }

    pub fn lose(&mut self, lost: Lost) {
        self.lost.push(lost);
    }

    /// Forgets unreadable entries inside these paths: they are removed with them, or the paths themselves are reported as
    /// not removed.
    pub fn forget_unseen(&mut self, removed: &[String]) {
        let is_in = |path: &str, folder: &String| {
            path.strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.lost.retain(|lost| {
            lost.aside != Some(Aside::Look) || !removed.iter().any(|folder| is_in(&lost.path, folder))
        });
    }

    /// Records another failure reported by the server.
    pub fn refuse(&mut self, path: impl Into<String>, error: &ClientError) {
        self.keep_hints(error);
        self.lost.push(Lost::new(path, chain(error)));
    }

    /// The result of a request; `None`, after a report, if it failed for this path only. After other failures nothing more can
    /// succeed.
    pub fn pass<T>(
        &mut self,
        path: &PfsPath,
        result: Result<T, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_about_one_path(&error) => {
                self.refuse(path.to_string(), &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the hint that is printed at the end; the first one is kept.
    pub fn hint(&mut self, hint: &str) {
        if self.hints.is_empty() {
            self.hints.push(hint.to_owned());
        }
    }

    fn fail(&mut self, failure: Failure) {
        match &failure.error {
            TransferError::BrokenOff => return self.broken_off += 1,
            TransferError::Server(error) => self.keep_hints(error),
            _ => {}
        }
        self.lost.push(Lost::new(failure.path, chain(&failure.error)));
    }

    fn keep_hints(&mut self, error: &ClientError) {
        if let ClientError::Refused(body) = error
            && self.hints.is_empty()
        {
            self.hints.clone_from(&body.hints);
        }
    }

    /// How many things failed so far.
    pub fn failures(&self) -> u64 {
        self.lost.len() as u64 + self.broken_off
    }

    /// How many of them could not be copied.
    pub fn left_out(&self) -> u64 {
        self.count(None) + self.broken_off
    }

    fn count(&self, aside: Option<Aside>) -> u64 {
        self.lost.iter().filter(|lost| lost.aside == aside).count() as u64
    }

    /// `3 files copied, 97 unchanged, 1 failed; 12.3 kB sent`, and after broken connections `, 4.0 MB sent twice`.
    pub fn words(&self, moved: &str) -> String {
        let copied = format!("{} copied", counted(self.transferred));
        let words = self.list(copied, "removed", "failed");
        let resent = match self.again {
            0 => String::new(),
            again => format!(", {} sent twice", size(again)),
        };
        format!("{words}; {} {moved}{resent}", size(self.moved))
    }

    /// `3 files would be copied, 97 unchanged, 1 would fail`.
    pub fn foreseen(&self) -> String {
        let copied = format!("{} would be copied", counted(self.transferred));
        self.list(copied, "would be removed", "would fail")
    }

    fn list(&self, copied: String, removed: &str, left_out: &str) -> String {
        let mut words = vec![copied];
        for (count, what) in [
            (self.unchanged, "unchanged"),
            (self.kept, "kept"),
            (self.removed, removed),
            (self.count(Some(Aside::Remove)), "not removed"),
            (self.count(Some(Aside::Look)), "not listed"),
            (self.left_out(), left_out),
        ] {
            if count > 0 {
                words.push(format!("{count} {what}"));
            }
        }
        words.join(", ")
    }

    /// `copy 2 files, remove 1`: what could not be done, and how often.
    fn deeds(&self, what: &str) -> String {
        let asides = [Aside::Look, Aside::Remove].map(|aside| (aside.verb(), self.count(Some(aside))));
        let deeds = [(what, self.left_out())].into_iter().chain(asides);
        let mut failed = deeds.filter(|(_, count)| *count > 0);
        let first = failed
            .next()
            .map(|(verb, count)| format!("{verb} {}", counted(count)));
        let others = failed.map(|(verb, count)| format!("{verb} {count}"));
        first
            .into_iter()
            .chain(others)
            .collect::<Vec<String>>()
            .join(", ")
    }

    /// Reports what failed, file by file, and returns the exit code.
    pub fn end(self, what: &str, world: &mut World) -> Result<u8, CliError> {
        let count = self.failures();
        if count == 0 {
            return Ok(DONE);
        }
        if let ([lost], 0) = (self.lost.as_slice(), self.broken_off) {
            let what = match lost.aside {
                Some(aside) => aside.verb(),
                None => what,
            };
            let error = CliError::refused(format!("cannot {what} {}", lost.words("`")));
            return Err(self.hints.into_iter().fold(error, CliError::with_hint));
        }
        self.list_lost(world);
        let error = CliError::refused(format!("cannot {}", self.deeds(what)));
        Err(self.hints.into_iter().fold(error, CliError::with_hint))
    }

    /// Reports what failed, file by file.
    pub fn list_lost(&self, world: &mut World) {
        for line in listed(&self.lost, world.err.is_terminal) {
            world.err.line(line);
        }
        if self.broken_off > 0 {
            let left = counted(self.broken_off);
            world.err.line(format!("  {left} not attempted after that"));
        }
    }
}

/// The last line of a dry run.
pub fn foreseen(words: &str) -> String {
    format!("Dry run, nothing was changed: {words}")
}

/// Prints a line for each, on a terminal only up to a limit.
fn listed(lost: &[Lost], is_terminal: bool) -> Vec<String> {
    let shown = match is_terminal {
        true => lost.len().min(LISTED),
        false => lost.len(),
    };
    let mut lines: Vec<String> = lost[..shown].iter().map(Lost::line).collect();
    if shown < lost.len() {
        let more = lost.len() - shown;
        lines.push(format!(
            "  and {more} more; append `2> FILE` to the command to list all of them"
        ));
    }
    lines
}

/// `1 file`, `12 files`.
pub fn counted(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}

/// `1 folder in it is unreadable, its contents are not counted`; `None` if everything was read.
pub fn uncounted(unread: u64) -> Option<String> {
    match unread {
        0 => None,
        1 => Some("1 folder in it is unreadable, its contents are not counted".to_owned()),
        count => Some(format!(
            "{count} folders in it are unreadable, their contents are not counted"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_only_what_happened() {
        let tally = TransferTotals {
            transferred: 1,
            moved: 12_300,
            ..TransferTotals::default()
        };
        assert_eq!(tally.words("sent"), "1 file copied; 12.3 kB sent");
        let tally = TransferTotals {
            unchanged: 97,
            removed: 2,
            ..TransferTotals::default()
        };
        assert_eq!(
            tally.words("received"),
            "0 files copied, 97 unchanged, 2 removed; 0 bytes received"
        );
        assert_eq!(
            tally.foreseen(),
            "0 files would be copied, 97 unchanged, 2 would be removed"
        );
        let mut tally = TransferTotals {
            transferred: 300,
            ..TransferTotals::default()
        };
        tally.lose(Lost::new("link", "it leads out of the folder"));
        assert_eq!(tally.words("sent"), "300 files copied, 1 failed; 0 bytes sent");
        let tally = TransferTotals {
            transferred: 1,
            moved: 12_300,
            again: 4_000,
            ..TransferTotals::default()
        };
        assert_eq!(
            tally.words("sent"),
            "1 file copied; 12.3 kB sent, 4.0 kB sent twice"
        );
    }

    #[test]
    fn failed_listings_and_removals_are_not_reported_as_copies() {
        let mut tally = TransferTotals {
            transferred: 1,
            ..TransferTotals::default()
        };
        tally.lose(Lost::aside(Aside::Look, "d", "permission is denied"));
        assert_eq!(tally.words("sent"), "1 file copied, 1 not listed; 0 bytes sent");
        assert_eq!(tally.deeds("copy"), "list 1 file");
        tally.lose(Lost::aside(Aside::Remove, "d", "permission is denied"));
        tally.lose(Lost::new("f", "no"));
        assert_eq!(tally.deeds("copy"), "copy 1 file, list 1, remove 1");
        assert_eq!(
            listed(&tally.lost, false),
            [
                "  cannot list d: permission is denied",
                "  cannot remove d: permission is denied",
                "  f: no"
            ]
        );
    }

    #[test]
    fn kept_files_are_counted() {
        let kept = |kept| TransferTotals {
            kept,
            ..TransferTotals::default()
        };
        assert_eq!(kept(1).foreseen(), "0 files would be copied, 1 kept");
        assert_eq!(kept(2).foreseen(), "0 files would be copied, 2 kept");
    }

    #[test]
    fn unreadable_folders_are_reported() {
        assert_eq!(uncounted(0), None);
        assert_eq!(
            uncounted(1).as_deref(),
            Some("1 folder in it is unreadable, its contents are not counted")
        );
        assert_eq!(
            uncounted(2).as_deref(),
            Some("2 folders in it are unreadable, their contents are not counted")
        );
    }

    #[test]
    fn a_path_is_not_named_twice() {
        let lost = Lost::new("/pfs/x", "`/pfs/x` does not exist");
        assert_eq!(lost.words("`"), "`/pfs/x`: it does not exist");
        assert_eq!(Lost::new("a", "it is a folder").words(""), "a: it is a folder");
        let home = Lost::new("/pfs/x", "`/pfs/x` itself cannot be changed, only what is in it");
        assert_eq!(
            home.words("`"),
            "`/pfs/x`: the folder itself cannot be changed, only what is in it"
        );
    }

    #[test]
    fn a_file_takes_all_failures_and_a_terminal_the_first_ones() {
        let lost: Vec<Lost> = (0..LISTED + 2)
            .map(|at| Lost::new(format!("f{at}"), "no"))
            .collect();
        assert_eq!(listed(&lost, false).len(), LISTED + 2);
        let shown = listed(&lost, true);
        assert_eq!(shown.len(), LISTED + 1);
        assert_eq!(
            shown[LISTED],
            "  and 2 more; append `2> FILE` to the command to list all of them"
        );
        assert_eq!(listed(&lost[..LISTED], true).last().unwrap(), "  f49: no");
    }

    #[test]
    fn files_that_were_never_tried_are_counted_not_listed() {
        let mut tally = TransferTotals::default();
        let broken_off = |path: &str| Failure {
            path: path.to_owned(),
            error: TransferError::BrokenOff,
        };
        tally.add(Summary {
            failures: vec![broken_off("a"), broken_off("b")],
            ..Summary::default()
        });
        assert_eq!((tally.failures(), tally.lost.len()), (2, 0));
    }
}
