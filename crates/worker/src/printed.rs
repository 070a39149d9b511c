//! The copy of a log that a launcher prints for `kubectl logs`: the log's bytes, and now and then a line that says where
//! in the log they are. A node keeps only the latest part of what a container prints; these lines give its position.

use std::io::{self, Write};

/// How the lines begin that a launcher adds to the output of its worker.
pub const OWN_LINE: &str = "paddle launch: ";
const POSITION: &str = "paddle launch: the output continues at byte ";
const MISSING: &str = "paddle launch: missing bytes of the output: ";

/// After this many bytes, the position is printed at the end of the line.
const POSITION_EVERY: u64 = 256 << 10;

/// Prints a log from its beginning.
#[derive(Debug)]
pub struct Printer<W> {
    to: W,
    next: u64,
    /// The latest printed position.
    position: u64,
    is_in_line: bool,
}

impl<W: Write> Printer<W> {
    pub fn new(to: W) -> Printer<W> {
        Printer {
            to,
            next: 0,
            position: 0,
            is_in_line: false,
        }
    }

    /// Prints bytes of the log; those between the last call and `offset` are missing.
    pub fn print(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset != self.next {
            let from = self.next;
            if self.is_in_line {
                self.to.write_all(b"\n")?;
            }
            writeln!(self.to, "{MISSING}{from} to {offset}")?;
            (self.next, self.position, self.is_in_line) = (offset, offset, false);
        }
        let mut rest = bytes;
        if self.next - self.position >= POSITION_EVERY
            && let Some(end) = bytes.iter().position(|byte| *byte == b'\n')
        {
            let (line, after) = bytes.split_at(end + 1);
            self.to.write_all(line)?;
            self.next += line.len() as u64;
            writeln!(self.to, "{POSITION}{}", self.next)?;
            self.position = self.next;
            rest = after;
        }
        self.to.write_all(rest)?;
        self.next += rest.len() as u64;
        self.is_in_line = bytes.last().is_some_and(|byte| *byte != b'\n');
        Ok(())
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A part of a log that was printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedPart {
    /// Where in the log it begins; `None` if nothing says so.
    pub offset: Option<u64>,
    pub bytes: Vec<u8>,
}

/// Reads a printed log, whose beginning may be missing.
pub fn parts(printed: &[u8]) -> Vec<PrintedPart> {
    let mut parts: Vec<PrintedPart> = Vec::new();
    let (mut offset, mut bytes) = (None, Vec::new());
    for line in printed.split_inclusive(|byte| *byte == b'\n') {
        if let Some((end, next)) = position(line) {
            // Before the first position, the offset follows from the end.
            let begin = offset.or_else(|| end.checked_sub(bytes.len() as u64));
            parts.push(PrintedPart {
                offset: begin,
                bytes: std::mem::take(&mut bytes),
            });
            offset = Some(next);
        } else if !line.starts_with(OWN_LINE.as_bytes()) {
            bytes.extend_from_slice(line);
        }
    }
    parts.push(PrintedPart { offset, bytes });
    parts.retain(|part| !part.bytes.is_empty());
    parts
}

/// The offset after the bytes before this line, and the one of the bytes after it.
fn position(line: &[u8]) -> Option<(u64, u64)> {
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\n');
    if let Some(at) = line.strip_prefix(POSITION) {
        let at = at.parse().ok()?;
        return Some((at, at));
    }
    let (from, to) = line.strip_prefix(MISSING)?.split_once(" to ")?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbered lines, printed in chunks of this size.
    fn printed(chunk: usize) -> (Vec<u8>, Vec<u8>) {
        let log: Vec<u8> = (0..200_000)
            .flat_map(|n| format!("line {n}\n").into_bytes())
            .collect();
        let mut printer = Printer::new(Vec::new());
        for (number, bytes) in log.chunks(chunk).enumerate() {
            printer.print((number * chunk) as u64, bytes).unwrap();
        }
        (log, printer.to)
    }

    #[test]
    fn a_rotated_copy_keeps_its_offsets_in_the_log() {
        for chunk in [1, 1000, 65_536] {
            let (log, printed) = printed(chunk);
            let all: Vec<u8> = parts(&printed).into_iter().flat_map(|part| part.bytes).collect();
            assert_eq!(all, log);
            for kept in [400 << 10, 1 << 20] {
                let found = parts(&printed[printed.len() - kept..]);
                let mut next = found[0].offset.expect("there is a position in it");
                for part in found {
                    assert_eq!(part.offset, Some(next));
                    next += part.bytes.len() as u64;
                    assert_eq!(log[part.offset.unwrap() as usize..next as usize], part.bytes);
                }
                assert_eq!(next, log.len() as u64);
            }
        }
    }

    #[test]
    fn missing_bytes_and_lines_of_the_launcher_are_not_output() {
        let mut printer = Printer::new(Vec::new());
        printer.print(0, b"one\n").unwrap();
        printer
            .print(100, b"paddle launch: the link broke\nlast")
            .unwrap();
        let part = |offset, bytes: &str| PrintedPart {
            offset,
            bytes: bytes.into(),
        };
        let found = parts(&printer.to);
        assert_eq!(found, [part(Some(0), "one\n"), part(Some(100), "last")]);
        assert_eq!(parts(b"one\n"), [part(None, "one\n")], "nothing says where");
    }
}
