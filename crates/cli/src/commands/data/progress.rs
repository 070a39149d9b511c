//! A progress bar while a file is read: on a terminal only, on stderr only.

use crate::messages::Messages;

const WIDTH: u64 = 24;

/// The progress of some work.
pub struct Progress<'a> {
    messages: &'a mut Messages,
    what: String,
    /// The last percentage drawn.
    drawn: Option<u64>,
}

impl<'a> Progress<'a> {
    pub fn new(messages: &'a mut Messages, what: impl Into<String>) -> Self {
        Self {
            messages,
            what: what.into(),
            drawn: None,
        }
    }

    /// Redraws the bar if it would look different.
    pub fn tell(&mut self, done: u64, total: u64) {
        let percent = percent(done, total);
        if self.messages.is_terminal && self.drawn != Some(percent) {
            self.messages.progress(&self.what, &bar(percent));
            self.drawn = Some(percent);
        }
    }
}

impl Progress<'_> {
    /// All is read.
    pub fn done(mut self) {
        if self.drawn.take().is_some() {
            self.messages.done(&self.what);
        }
    }
}

impl Drop for Progress<'_> {
    /// The next message begins on a new line.
    fn drop(&mut self) {
        if self.drawn.is_some() {
            self.messages.failed(&self.what);
        }
    }
}

fn percent(done: u64, total: u64) -> u64 {
    let share = u128::from(done) * 100 / u128::from(total.max(1));
    u64::try_from(share).unwrap_or(100).min(100)
}

fn bar(percent: u64) -> String {
    let full = percent * WIDTH / 100;
    let cell = |at| if at < full { '#' } else { '-' };
    let cells: String = (0..WIDTH).map(cell).collect();
    format!("[{cells}] {percent:>3} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::written;

    fn drawn(is_terminal: bool, work: impl FnOnce(Progress<'_>)) -> String {
        written(is_terminal, |messages| work(Progress::new(messages, "Reading x")))
    }

    #[test]
    fn a_terminal_sees_each_percent_once_and_how_it_ended() {
        let whole = drawn(true, |mut progress| {
            for done in [0, 1, 500, 1000] {
                progress.tell(done, 1000);
            }
            progress.done();
        });
        let expected = "<Reading x ... [------------------------]   0 %\
            <Reading x ... [############------------]  50 %\
            <Reading x ... [########################] 100 %\
            <Reading x ... Done\n";
        assert_eq!(whole, expected);
        let broken = drawn(true, |mut progress| progress.tell(0, 1));
        assert!(broken.ends_with("<Reading x ... Failed\n"), "{broken}");
    }

    #[test]
    fn without_a_terminal_nothing_is_drawn() {
        let all = drawn(false, |mut progress| {
            progress.tell(1, 2);
            progress.done();
        });
        assert_eq!(all, "");
    }

    #[test]
    fn the_bar_is_full_at_the_end_and_never_longer() {
        assert_eq!(bar(percent(0, 10)), "[------------------------]   0 %");
        assert_eq!(bar(percent(5, 10)), "[############------------]  50 %");
        assert_eq!(bar(percent(11, 10)), "[########################] 100 %");
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(0, 0), 0);
    }
}
