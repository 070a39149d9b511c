//! Shows log bytes: whole lines, a prefix if there are several workers, times if requested.
//!
//! Bytes that are not UTF-8 stay unchanged. Without prefix and times all bytes are printed unchanged, except those of another user's
//! job on a terminal. There, and where several workers share a terminal, control sequences are filtered.

use std::collections::HashMap;
use std::sync::Arc;

use paddlecloud_api::client::LogEvent;
use paddlecloud_api::logs::{LogWorker, REMARK, Stream};
use paddlecloud_core::quantity::counted;

use crate::controls::OutputFilter;
use crate::printer::Paint;
use crate::time_text::rfc3339_millis;

/// A line that never ends is broken here, to limit memory.
const LONGEST_LINE: usize = 1 << 20;

/// Who reads the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reader {
    /// A pipe, a file, or a terminal whose user wants the bytes as they are.
    #[default]
    Raw,
    /// The job's owner, on a terminal.
    Owner,
    /// Another user, on a terminal.
    Other,
}

/// How lines are shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    pub reader: Reader,
    /// Plain lines, also where there are several workers.
    pub raw: bool,
    pub timestamps: bool,
    pub colour: bool,
}

/// Turns events into bytes for the printer.
pub struct LogView {
    style: Style,
    workers: Vec<Arc<LogWorker>>,
    /// The prefix of each worker's lines, in the order of `workers`.
    prefixes: Vec<Vec<u8>>,
    /// By the worker's index.
    partial: HashMap<usize, Partial>,
    /// Bytes were printed unchanged, and the last of them did not end a line.
    is_within_line: bool,
    /// The latest attempt whose bytes were shown.
    attempt: u32,
    /// The latest attempt whose preamble was shown as one line.
    introduced: u32,
    /// Of the bytes that another user's only worker writes.
    filter: OutputFilter,
}

/// A line that has not ended yet. Of a progress bar, only its last step.
struct Partial {
    bytes: Vec<u8>,
    unix_nanos: u64,
    worker: Arc<LogWorker>,
    /// A `\r` has replaced an earlier step.
    is_bar: bool,
}

impl Partial {
    /// The text of the line so far, without the `\r` that may replace it.
    fn text(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes)
    }

    /// Whether a terminal would show it as a progress bar; one that was erased with spaces is none.
    fn shows_bar(&self) -> bool {
        (self.is_bar || self.bytes.ends_with(b"\r")) && !self.text().trim_ascii().is_empty()
    }
}

impl LogView {
    pub fn new(style: Style) -> LogView {
        LogView {
            style,
            workers: Vec::new(),
            prefixes: Vec::new(),
            partial: HashMap::new(),
            is_within_line: false,
            attempt: 0,
            introduced: 0,
            filter: OutputFilter::default(),
        }
    }

    /// Whether the last output did not end a line, so that a message must begin a new one.
    pub fn is_within_line(&self) -> bool {
        self.is_within_line
    }

    /// The message before the first bytes of a later attempt, unless a prefix names it; ends the line of the attempt before.
    pub fn restart(&mut self, event: &LogEvent, out: &mut Vec<u8>) -> Option<String> {
        let LogEvent::Data { worker, .. } = event else {
            return None;
        };
        let shown = self.attempt;
        self.attempt = shown.max(worker.attempt);
        if shown == 0 || worker.attempt <= shown || self.has_several_workers() {
            return None;
        }
        self.end(out);
        self.end_line(out);
        Some(format!(
            "{}-{} was restarted (attempt {})",
            worker.role, worker.index, worker.attempt
        ))
    }

    /// Takes one event and appends what can be shown now to `out`.
    pub fn show(&mut self, event: &LogEvent, out: &mut Vec<u8>) {
        match event {
            LogEvent::Workers(workers) => self.meet(workers),
            LogEvent::Data {
                worker,
                stream: Stream::Launcher,
                unix_nanos,
                bytes,
                ..
            } if self.shortens_preambles() => self.launcher(worker, *unix_nanos, bytes, out),
            LogEvent::Data {
                worker,
                unix_nanos,
                bytes,
                ..
            } => self.data(worker, *unix_nanos, bytes, out),
            // Missing bytes are not data: they are reported beside the stream.
            LogEvent::Gap { worker, .. } => self.end_of(worker, out),
            LogEvent::End(_) => self.end(out),
            LogEvent::Lost(_) => {}
        }
    }

    fn meet(&mut self, workers: &[Arc<LogWorker>]) {
        self.workers = workers.to_vec();
        let width = workers.iter().map(|worker| label(worker).len()).max();
        let width = width.unwrap_or(0);
        let prefix = |worker: &Arc<LogWorker>| {
            let padded = format!("{:<width$} |", label(worker));
            let first = workers.iter().position(|known| known.name == worker.name);
            let paint = Paint::cycle(first.unwrap_or(0));
            let shown = if self.style.colour {
                paint.around(&padded)
            } else {
                padded
            };
            format!("{shown} ").into_bytes()
        };
        self.prefixes = workers.iter().map(prefix).collect();
    }

    /// Workers are shared, so the same worker has the same address in memory.
    fn place(&self, worker: &Arc<LogWorker>) -> usize {
        let same = |known: &Arc<LogWorker>| Arc::ptr_eq(known, worker);
        self.workers.iter().position(same).unwrap_or(usize::MAX)
    }

    /// Several workers print, so each line needs a name.
    fn has_prefix(&self) -> bool {
        self.has_several_workers() && !self.style.raw
    }

    fn has_several_workers(&self) -> bool {
        self.workers
            .iter()
            .any(|worker| worker.name != self.workers[0].name)
    }

    /// Whether the reader's terminal is kept from what the workers write.
    fn is_filtered(&self) -> bool {
        match self.style.reader {
            Reader::Raw => false,
            Reader::Owner => self.has_several_workers(),
            Reader::Other => true,
        }
    }

    /// Lines must be kept whole if they get a prefix or if several workers share the output.
    fn works_by_line(&self) -> bool {
        self.style.timestamps || self.workers.len() > 1
    }

    /// Several preambles fill a terminal.
    fn shortens_preambles(&self) -> bool {
        self.style.reader != Reader::Raw && !self.style.raw && self.has_several_workers()
    }

    /// Shows the launcher's remarks, and the preambles of all workers as one line.
    fn launcher(&mut self, worker: &Arc<LogWorker>, unix_nanos: u64, bytes: &[u8], out: &mut Vec<u8>) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(REMARK.as_bytes()) {
                self.data(worker, unix_nanos, line, out);
            } else if self.introduced < worker.attempt {
                self.introduced = worker.attempt;
                self.end_line(out);
                out.extend_from_slice(self.introduction(worker.attempt).as_bytes());
            }
        }
    }

    /// `Starting training job: 4 trainers, 2 parameter servers`
    fn introduction(&self, attempt: u32) -> String {
        let count = |role: &str| {
            let starting = self.workers.iter().filter(|worker| worker.attempt == attempt);
            starting.filter(|worker| worker.role == role).count() as u128
        };
        let roles = [("trainer", "trainer"), ("pserver", "parameter server")];
        let counts: Vec<String> = roles
            .into_iter()
            .filter(|(role, _)| count(role) > 0)
            .map(|(role, what)| counted(count(role), what))
            .collect();
        let again = match attempt {
            1 => "",
            _ => " again",
        };
        format!("Starting training job{again}: {}\n", counts.join(", "))
    }

    fn data(&mut self, worker: &Arc<LogWorker>, unix_nanos: u64, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.works_by_line() && self.partial.is_empty() {
            match self.is_filtered() {
                true => self.filter.push(bytes, out),
                false => out.extend_from_slice(bytes),
            }
            self.is_within_line = bytes.last().map_or(self.is_within_line, |last| *last != b'\n');
            return;
        }
        self.end_of_attempts_before(worker, out);
        let key = self.place(worker);
        let mut partial = self.partial.remove(&key).unwrap_or_else(|| Partial {
            bytes: Vec::new(),
            unix_nanos,
            worker: worker.clone(),
            is_bar: false,
        });
        for piece in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            if partial.bytes.is_empty() {
                partial.unix_nanos = unix_nanos;
            }
            // The `\n` of a `\r\n` that arrived in two pieces ends the line already printed.
            if piece == b"\n" && partial.bytes.last() == Some(&b'\r') {
                partial.bytes.pop();
            }
            if partial.bytes.last() == Some(&b'\r') {
                partial.bytes.clear();
                partial.unix_nanos = unix_nanos;
                partial.is_bar = true;
            }
            partial.bytes.extend_from_slice(piece);
            let ended = piece.last() == Some(&b'\n');
            if ended {
                partial.bytes.pop();
            }
            if ended || partial.bytes.len() >= LONGEST_LINE {
                self.line(&partial, out);
                partial.bytes.clear();
                partial.is_bar = false;
            }
        }
        if !partial.bytes.is_empty() {
            self.partial.insert(key, partial);
        }
    }

    fn line(&mut self, partial: &Partial, out: &mut Vec<u8>) {
        self.end_line(out);
        self.head(&partial.worker, partial.unix_nanos, out);
        match self.is_filtered() {
            true => OutputFilter::line(&partial.bytes, out),
            false => out.extend_from_slice(&partial.bytes),
        }
        // The next line may be another worker's, which must not inherit this colour.
        if self.style.colour && leaves_colour(&partial.bytes) {
            out.extend_from_slice(b"\x1b[0m");
        }
        out.push(b'\n');
    }

    /// Begins a new line, unless the last output ended one.
    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_within_line) {
            out.push(b'\n');
        }
    }

    /// The progress bars that workers are writing, in the order of the workers, without anything that moves the cursor.
    pub fn bars(&self) -> Vec<String> {
        let bars = self.partial.iter().filter(|(_, partial)| partial.shows_bar());
        let mut bars: Vec<(usize, &Partial)> = bars.map(|(place, partial)| (*place, partial)).collect();
        bars.sort_by_key(|(place, _)| *place);
        let text = |(_, partial): (usize, &Partial)| {
            let mut line = Vec::new();
            self.head(&partial.worker, partial.unix_nanos, &mut line);
            OutputFilter::line(partial.text(), &mut line);
            String::from_utf8_lossy(&line).into_owned()
        };
        bars.into_iter().map(text).collect()
    }

    fn head(&self, worker: &Arc<LogWorker>, unix_nanos: u64, out: &mut Vec<u8>) {
        if self.style.timestamps && unix_nanos > 0 {
            out.extend_from_slice(rfc3339_millis(unix_nanos).as_bytes());
            out.push(b' ');
        }
        if self.has_prefix()
            && let Some(prefix) = self.prefixes.get(self.place(worker))
        {
            out.extend_from_slice(prefix);
        }
    }

    fn end_of(&mut self, worker: &Arc<LogWorker>, out: &mut Vec<u8>) {
        let place = self.place(worker);
        if let Some(partial) = self.partial.remove(&place) {
            self.unfinished(partial, out);
        }
    }

    fn unfinished(&mut self, mut partial: Partial, out: &mut Vec<u8>) {
        partial.bytes.truncate(partial.text().len());
        self.line(&partial, out);
    }

    /// A worker that was restarted does not continue the line of its attempt before.
    fn end_of_attempts_before(&mut self, worker: &LogWorker, out: &mut Vec<u8>) {
        if worker.attempt == 1 {
            return;
        }
        let is_before = |known: &LogWorker| known.name == worker.name && known.attempt < worker.attempt;
        let ended: Vec<Arc<LogWorker>> = self
            .partial
            .values()
            .filter(|partial| is_before(&partial.worker))
            .map(|partial| partial.worker.clone())
            .collect();
        ended.iter().for_each(|worker| self.end_of(worker, out));
    }

    /// Prints unfinished lines. Called when the reading ends, for any reason.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.filter.end(out);
        let mut rest: Vec<Partial> = self.partial.drain().map(|(_, partial)| partial).collect();
        rest.sort_by_key(|partial| partial.unix_nanos);
        rest.into_iter().for_each(|partial| self.unfinished(partial, out));
    }
}

/// Whether the last colour code in the line sets a colour.
fn leaves_colour(line: &[u8]) -> bool {
    let codes = line.windows(2).enumerate().filter(|(_, pair)| *pair == b"\x1b[");
    let mut colours = codes.filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        let end = rest
            .iter()
            .position(|byte| !(byte.is_ascii_digit() || *byte == b';'))?;
        (rest[end] == b'm').then_some(&rest[..end])
    });
    colours
        .next_back()
        .is_some_and(|code| !matches!(code, b"" | b"0" | b"00"))
}

/// A progress bar's `\r` ends a step, which the next one replaces or follows.
fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// `trainer-0`, and `trainer-0#2` for its second attempt.
fn label(worker: &LogWorker) -> String {
    let attempt = if worker.attempt > 1 {
        format!("#{}", worker.attempt)
    } else {
        String::new()
    };
    format!("{}-{}{attempt}", worker.role, worker.index)
}

#[cfg(test)]
mod tests;
