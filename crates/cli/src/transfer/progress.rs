//! What people see while files move: `Uploading … Done`, and on a terminal a bar with bytes, files, rate and time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use paddlecloud_api::client::files::{Failure, Outcome, Progress};

use crate::messages::Messages;
use crate::time_text::size;

/// How often the bar is drawn anew.
pub const REFRESH: Duration = Duration::from_millis(100);

/// Counts what a transfer does; the transfer's threads write, the terminal's loop reads.
#[derive(Debug, Default)]
pub struct Watch {
    files: AtomicU64,
    bytes: AtomicU64,
    moved: AtomicU64,
    spared: AtomicU64,
    ended: AtomicU64,
    /// What became of every file; kept only where it is printed.
    outcomes: Option<Mutex<Vec<(String, Outcome)>>>,
}

impl Watch {
    /// One that remembers what became of every file.
    pub fn remembering() -> Watch {
        Watch {
            outcomes: Some(Mutex::default()),
            ..Watch::default()
        }
    }

    /// What became of the files so far.
    pub fn take_outcomes(&self) -> Vec<(String, Outcome)> {
        let Some(outcomes) = &self.outcomes else {
            return Vec::new();
        };
        std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// `12.0 MB of 1.2 GB, 3 of 80 files`.
    fn amounts(&self) -> String {
        let done = Self::get(&self.moved) + Self::get(&self.spared);
        let total = Self::get(&self.bytes).max(done);
        let (ended, files) = (Self::get(&self.ended), Self::get(&self.files));
        let bytes = format!("{} of {}", size(done), size(total));
        match files {
            0 | 1 => bytes,
            files => format!("{bytes}, {ended} of {files} files"),
        }
    }
}

impl Progress for Watch {
    fn planned(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    fn spared(&self, bytes: u64) {
        self.spared.fetch_add(bytes, Ordering::Relaxed);
    }

    fn finished(&self, path: &str, outcome: Outcome) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if let Some(outcomes) = &self.outcomes {
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.push((path.to_owned(), outcome));
        }
    }

    fn failed(&self, _: &Failure) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The line of one source: begun, then ended by `Done`, `Done, 1 left out` or `Failed`.
pub struct Line {
    what: String,
    bar: Option<ProgressBar>,
}

impl Line {
    /// Says `Uploading data ... `, or shows a bar on a terminal.
    pub fn begin(what: String, messages: &mut Messages) -> Line {
        let bar = messages.is_terminal.then(|| bar(&what));
        if bar.is_none() {
            messages.begin(&what);
        }
        Line { what, bar }
    }

    /// Draws how far it is. The bar counts only what goes over the wire, so that rate and time are true.
    pub fn refresh(&self, watch: &Watch) {
        if let Some(bar) = &self.bar {
            let left_to_send = Watch::get(&watch.bytes).saturating_sub(Watch::get(&watch.spared));
            bar.set_message(watch.amounts());
            bar.set_length(left_to_send);
            bar.set_position(Watch::get(&watch.moved).min(left_to_send));
        }
    }

    pub fn done(self, messages: &mut Messages) {
        match self.bar {
            None => messages.done(&self.what),
            Some(bar) => {
                bar.finish_and_clear();
                messages.line(format!("{} ... Done", self.what));
            }
        }
    }

    /// Done, but for some; which and why is told at the end.
    pub fn done_but(self, left_out: usize, messages: &mut Messages) {
        match self.bar {
            None => messages.done_but(left_out),
            Some(bar) => {
                bar.finish_and_clear();
                messages.line(format!("{} ... Done, {left_out} left out", self.what));
            }
        }
    }

    pub fn failed(self, messages: &mut Messages) {
        match self.bar {
            None => messages.failed(),
            Some(bar) => {
                bar.finish_and_clear();
                messages.line(format!("{} ... Failed", self.what));
            }
        }
    }
}

fn bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A bar that cannot be drawn is nobody's loss.
        let _ = write!(out, "{}/s", size(state.per_sec() as u64));
    };
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}%  {msg}  {rate}  {eta} left")
        .expect("the template is fixed")
        .with_key("rate", rate);
    bar.set_style(style);
    bar.set_prefix(what.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_amounts_count_what_was_there_already_as_done() {
        let watch = Watch::default();
        watch.planned(2, 3000);
        watch.spared(1000);
        watch.moved(500);
        watch.finished("a", Outcome::Unchanged);
        assert_eq!(watch.amounts(), "1.5 kB of 3.0 kB, 1 of 2 files");
        assert!(watch.take_outcomes().is_empty());
    }

    #[test]
    fn a_remembering_watch_gives_every_outcome_once() {
        let watch = Watch::remembering();
        watch.finished("a", Outcome::Kept);
        assert_eq!(watch.take_outcomes(), [("a".to_owned(), Outcome::Kept)]);
        assert!(watch.take_outcomes().is_empty());
    }
}
