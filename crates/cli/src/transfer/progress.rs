//! What people see while files move: `Uploading … Done`, and on a terminal a bar with bytes, files, rate and time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use paddlecloud_transfer::{Failure, Outcome, Progress};

use crate::messages::Messages;
use crate::time_text::size;
use crate::{controls, one_line};

/// How often the bar is redrawn.
pub const REFRESH: Duration = Duration::from_millis(100);

/// A shorter bar shows nothing, a longer one no further detail.
const NARROWEST_BAR: usize = 8;
const WIDEST_BAR: usize = 40;

/// Counts what a transfer does; the transfer's threads write, the terminal's loop reads.
#[derive(Debug, Default)]
pub struct Watch {
    files: AtomicU64,
    bytes: AtomicU64,
    moved: AtomicU64,
    reused: AtomicU64,
    ended: AtomicU64,
    /// The outcome of every file; kept only if it is printed.
    outcomes: Option<Mutex<Vec<(String, Outcome)>>>,
}

impl Watch {
    /// A counter that also keeps the outcome of every file.
    pub fn remembering() -> Watch {
        Watch {
            outcomes: Some(Mutex::default()),
            ..Watch::default()
        }
    }

    /// The outcomes so far.
    pub fn take_outcomes(&self) -> Vec<(String, Outcome)> {
        let Some(outcomes) = &self.outcomes else {
            return Vec::new();
        };
        std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// Bytes done and bytes in total. A file that changed is restarted, so more bytes may have been moved than it has.
    fn done(&self) -> (u64, u64) {
        let total = Self::get(&self.bytes);
        let done = Self::get(&self.moved) + Self::get(&self.reused);
        (done.min(total), total)
    }

    /// The fraction that is done.
    fn percent(&self) -> u64 {
        match self.done() {
            (_, 0) => 0,
            (done, total) => (u128::from(done) * 100 / u128::from(total)) as u64,
        }
    }

    /// `12.0 MB of 1.2 GB, 3 of 80 files`.
    fn amounts(&self) -> String {
        let (done, total) = self.done();
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

    fn again(&self, bytes: u64) {
        self.moved.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn reused(&self, bytes: u64) {
        self.reused.fetch_add(bytes, Ordering::Relaxed);
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

/// The line of one source: started, then ended by `Done`, `Done, 1 failed` or `Failed`.
pub struct Line {
    what: String,
    bar: Option<ProgressBar>,
}

impl Line {
    /// Prints `Uploading data ... `, or shows a bar on a terminal.
    pub fn begin(what: String, messages: &mut Messages) -> Line {
        let what = match messages.is_terminal {
            true => controls::escaped_line(&what),
            false => what,
        };
        let bar = messages.is_terminal.then(|| bar(&what));
        if bar.is_none() {
            messages.begin(&what);
        }
        Line { what, bar }
    }

    /// Draws the progress, including what was already at the destination. Rate and time count only bytes that go over the
    /// wire.
    pub fn refresh(&self, watch: &Watch) {
        if let Some(bar) = &self.bar {
            let left_to_send = Watch::get(&watch.bytes).saturating_sub(Watch::get(&watch.reused));
            bar.set_length(left_to_send);
            bar.set_position(Watch::get(&watch.moved).min(left_to_send));
            let mut tails = vec![watch.amounts()];
            // The rate is unknown until something has been moved.
            if bar.position() > 0 {
                tails.push(format!("{}/s", size(bar.per_sec() as u64)));
                tails.push(format!("{:#} left", HumanDuration(bar.eta())));
            }
            bar.set_message(drawn(&self.what, watch.percent(), &tails, one_line::columns()));
        }
    }

    /// Ends the line with this word.
    pub fn end(self, how: &str, messages: &mut Messages) {
        match self.bar {
            None => messages.line(how),
            Some(bar) => {
                bar.finish_and_clear();
                messages.line(format!("{} ... {how}", self.what));
            }
        }
    }
}

fn bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is fixed"));
    bar.set_message(one_line::shortened(what, one_line::columns()));
    bar
}

/// `Uploading data ####----  42%  1.2 GB of 3.0 GB  12 MB/s  40s left` in this many columns. On a narrow terminal the figures
/// at the end are dropped first, then the bar, then the middle of the name.
fn drawn(what: &str, percent: u64, tails: &[String], columns: usize) -> String {
    let shown_width = one_line::width(what).min(columns / 3);
    let tail_of = |count: usize| {
        let percent = format!(" {percent:>3}%");
        tails[..count]
            .iter()
            .fold(percent, |tail, part| tail + "  " + part)
    };
    let fits = |count: &usize| shown_width + one_line::width(&tail_of(*count)) <= columns;
    let tail = tail_of((0..=tails.len()).rev().find(fits).unwrap_or(0));
    let room = columns.saturating_sub(one_line::width(&tail));
    let what = one_line::shortened(what, room);
    let cells = room.saturating_sub(one_line::width(&what) + 1).min(WIDEST_BAR);
    if cells < NARROWEST_BAR {
        return what + &tail;
    }
    let full = cells * percent.min(100) as usize / 100;
    format!("{what} {}{}{tail}", "#".repeat(full), "-".repeat(cells - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_already_present_count_as_done() {
        let watch = Watch::default();
        watch.planned(2, 3000);
        watch.reused(1000);
        watch.moved(500);
        watch.finished("a", Outcome::Unchanged);
        assert_eq!(watch.amounts(), "1.5 kB of 3.0 kB, 1 of 2 files");
        assert_eq!(watch.percent(), 50, "of the same whole as the bytes");
        assert!(watch.take_outcomes().is_empty());
    }

    #[test]
    fn bytes_sent_again_are_not_counted_twice() {
        let watch = Watch::default();
        watch.planned(1, 2000);
        watch.moved(1500);
        watch.again(500);
        assert_eq!(
            (watch.amounts().as_str(), watch.percent()),
            ("1.0 kB of 2.0 kB", 50)
        );
        watch.reused(1500);
        assert_eq!(
            (watch.amounts().as_str(), watch.percent()),
            ("2.0 kB of 2.0 kB", 100)
        );
    }

    #[test]
    fn the_line_fits_any_width() {
        let what = "Uploading a/very/long/folder/of/训练数据/part-00000-of-00010.rio";
        let tails = ["1.5 GB of 3.0 GB, 3 of 80 files", "12.0 MB/s", "2m left"].map(str::to_owned);
        for columns in [0, 5, 20, 40, 59, 79, 200] {
            let line = drawn(what, 50, &tails, columns);
            assert!(one_line::width(&line) <= columns.max(5), "{columns}: {line}");
        }
        assert_eq!(
            drawn("Uploading a", 50, &tails[..1], 70),
            "Uploading a ##########----------  50%  1.5 GB of 3.0 GB, 3 of 80 files"
        );
        assert!(drawn(what, 50, &tails, 79).contains("10.rio"));
    }

    #[test]
    fn a_remembering_watch_gives_every_outcome_once() {
        let watch = Watch::remembering();
        watch.finished("a", Outcome::Kept);
        assert_eq!(watch.take_outcomes(), [("a".to_owned(), Outcome::Kept)]);
        assert!(watch.take_outcomes().is_empty());
    }
}
