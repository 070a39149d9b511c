//! Lines of bytes, with a limit on their length.

use std::io::{self, BufRead, Read};

/// Longer than any line of text; detects a binary file without line ends.
pub(crate) const MAX_LINE: u64 = 256 << 20;

/// Some programs write a byte order mark before the first line; it is not part of it.
pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the next line into `line`, including its end; false at the end of the input.
pub(crate) fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let got = input.take(MAX_LINE).read_until(b'\n', line)?;
    if got as u64 == MAX_LINE && line.last() != Some(&b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a line is longer than {} MiB: this is not text", MAX_LINE >> 20),
        ));
    }
    Ok(got > 0)
}

/// The line without its end, in the style of any system.
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_their_ends_and_the_last_as_it_is() {
        let mut input: &[u8] = b"a\r\n\nb";
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while read_line(&mut input, &mut line).unwrap() {
            lines.push(line.clone());
        }
        assert_eq!(lines, [&b"a\r\n"[..], b"\n", b"b"]);
        assert_eq!(without_end(&lines[0]), b"a");
        assert_eq!(without_end(b"b\r"), b"b\r", "no line ended here");
    }
}
