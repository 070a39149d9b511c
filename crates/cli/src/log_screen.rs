//! Prints a log: whole lines, and on a terminal a block below them with the progress bars that workers are writing.
//!
//! The block is redrawn in place. Which bytes are a line or a bar is decided by [`crate::log_view`].

use std::time::{Duration, Instant};

use ::console::truncate_str;
use paddlecloud_api::client::LogEvent;

use crate::error::CliError;
use crate::log_view::{LogView, Style};
use crate::printer::{Printer, Screen};
use crate::world::World;

/// How often the bars are redrawn if nothing else is printed.
const REFRESH: Duration = Duration::from_millis(100);

/// Bytes that are collected before they are printed.
const PORTION: usize = 64 << 10;

/// The log on its way to the reader.
pub struct LogScreen {
    view: LogView,
    /// Lines that are not printed yet.
    out: Vec<u8>,
    block: Block,
}

impl LogScreen {
    pub fn new(style: Style) -> LogScreen {
        LogScreen {
            view: LogView::new(style),
            out: Vec::new(),
            block: Block::default(),
        }
    }

    /// Takes an event, and prints at the latest when no other event has arrived yet.
    pub fn show(&mut self, event: &LogEvent, has_more: bool, world: &mut World) -> Result<(), CliError> {
        if let Some(message) = self.view.restart(event, &mut self.out) {
            self.note(&message, world)?;
        }
        self.view.show(event, &mut self.out);
        match has_more && self.out.len() <= PORTION && !matches!(event, LogEvent::Gap { .. }) {
            true => Ok(()),
            false => self.print(&mut world.out),
        }
    }

    /// Prints the lines, and the bars below them.
    pub fn print(&mut self, printer: &mut Printer) -> Result<(), CliError> {
        let Some(screen) = printer.screen() else {
            printer.bytes(&self.out)?;
            self.out.clear();
            return printer.flush();
        };
        if self.out.is_empty() && !self.block.may_be_redrawn() {
            return Ok(());
        }
        let bars = self.block.fitting(self.view.bars(), screen);
        if self.out.is_empty() && self.block.is_showing(&bars) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.block.erase(&mut bytes);
        bytes.append(&mut self.out);
        if !bars.is_empty() {
            self.view.end_line(&mut bytes);
        }
        self.block.draw(bars, &mut bytes);
        printer.bytes(&bytes)?;
        printer.flush()
    }

    /// Resolves when bars that changed should be printed; never if none did.
    pub async fn bars_are_due(&self) {
        match self.block.due {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Prints a message about the log below its last line, above the bars.
    pub fn note(&mut self, text: &str, world: &mut World) -> Result<(), CliError> {
        self.clear(&mut world.out)?;
        // The bytes stay unchanged; a message after them on the same screen begins on a new line.
        if self.view.is_within_line() && world.out.is_terminal {
            world.err.line("");
        }
        world.err.note(text);
        self.block.due = world.out.screen().map(|_| Instant::now());
        Ok(())
    }

    /// Prints everything that is left: bars become lines.
    pub fn end(&mut self, printer: &mut Printer) -> Result<(), CliError> {
        self.view.end(&mut self.out);
        self.clear(printer)
    }

    /// Whether a message must begin a new line.
    pub fn is_within_line(&self) -> bool {
        self.view.is_within_line()
    }

    /// Prints the lines without the bars.
    fn clear(&mut self, printer: &mut Printer) -> Result<(), CliError> {
        let mut bytes = Vec::new();
        self.block.erase(&mut bytes);
        bytes.append(&mut self.out);
        printer.bytes(&bytes)?;
        printer.flush()
    }
}

/// The bars at the end of a terminal; the cursor is on the line below them.
#[derive(Default)]
struct Block {
    shown: Vec<String>,
    drawn_at: Option<Instant>,
    /// When bars that are not drawn yet should be.
    due: Option<Instant>,
}

impl Block {
    /// Whether enough time has passed; otherwise the bars are due later.
    fn may_be_redrawn(&mut self) -> bool {
        let due = self.drawn_at.map(|drawn| drawn + REFRESH);
        self.due = due.filter(|due| *due > Instant::now());
        self.due.is_none()
    }

    fn is_showing(&self, bars: &[String]) -> bool {
        self.shown == bars
    }

    /// The bars as lines that do not wrap, and no more of them than leave room for the log.
    fn fitting(&self, mut bars: Vec<String>, screen: Screen) -> Vec<String> {
        let most = (screen.rows * 2 / 3).max(1);
        let hidden = bars.len().saturating_sub(most);
        if hidden > 0 {
            bars.truncate(most - 1);
            bars.push(format!("… and {} more", hidden + 1));
        }
        // Some terminals wrap in the last column.
        let room = screen.columns.saturating_sub(1);
        let fit = |bar: String| match truncate_str(&bar.replace('\t', " "), room, "…") {
            text if text.contains('\x1b') => format!("{text}\x1b[0m"),
            text => text.into_owned(),
        };
        bars.into_iter().map(fit).collect()
    }

    fn erase(&mut self, out: &mut Vec<u8>) {
        let rows = std::mem::take(&mut self.shown).len();
        if rows > 0 {
            out.extend_from_slice(format!("\r\x1b[{rows}A\x1b[J").as_bytes());
        }
    }

    fn draw(&mut self, bars: Vec<String>, out: &mut Vec<u8>) {
        for bar in &bars {
            out.extend_from_slice(bar.as_bytes());
            out.push(b'\n');
        }
        self.shown = bars;
        self.drawn_at = Some(Instant::now());
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Screen = Screen { rows: 6, columns: 13 };

    #[test]
    fn bars_fit_on_the_screen_and_leave_room_for_the_log() {
        let fitting = |bars: &[&str]| {
            let bars = bars.iter().map(|bar| (*bar).to_owned()).collect();
            Block::default().fitting(bars, SMALL)
        };
        assert_eq!(fitting(&["a\tb", "0123456789abc"]), ["a b", "0123456789a…"]);
        assert_eq!(
            fitting(&["\x1b[32m0123456789abc\x1b[0m"])[0],
            "\x1b[32m0123456789a…\x1b[0m\x1b[0m"
        );
        assert_eq!(fitting(&["训练训练训练训"]), ["训练训练训…"]);
        assert_eq!(fitting(&["1", "2", "3", "4"]).len(), 4);
        assert_eq!(
            fitting(&["1", "2", "3", "4", "5"]),
            ["1", "2", "3", "… and 2 more"]
        );
    }

    #[test]
    fn a_block_is_replaced_where_it_was() {
        let mut block = Block::default();
        let mut out = Vec::new();
        block.erase(&mut out);
        block.draw(vec!["10%".to_owned(), "20%".to_owned()], &mut out);
        assert_eq!(out, b"10%\n20%\n", "nothing to erase at first");
        out.clear();
        block.erase(&mut out);
        block.draw(vec!["30%".to_owned()], &mut out);
        assert_eq!(out, b"\r\x1b[2A\x1b[J30%\n");
    }
}
