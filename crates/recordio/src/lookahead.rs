//! The input of a stream, with lookahead and unread.
//!
//! Without lookahead it costs nothing: reads go directly to the input.

use std::io::{self, BufReader, Read};

const READ_AHEAD: usize = 64 << 10;

pub(crate) struct Lookahead<R> {
    input: BufReader<R>,
    /// bytes seen or taken back; those before `at` have been read
    seen: Vec<u8>,
    at: usize,
    /// whether anything came from the input itself since the mark
    is_fresh: bool,
    /// whether `seen` holds everything up to the end of the stream
    has_ended: bool,
}

impl<R: Read> Lookahead<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(READ_AHEAD, input),
            seen: Vec::new(),
            at: 0,
            is_fresh: false,
            has_ended: false,
        }
    }

    /// What is read from here on may be unread.
    pub(crate) fn mark(&mut self) {
        self.is_fresh = false;
    }

    /// Unreads `pieces`, which together are all that was read since the mark.
    pub(crate) fn give_back(&mut self, pieces: [&[u8]; 2]) {
        if self.is_fresh {
            self.seen.clear();
            pieces.iter().for_each(|piece| self.seen.extend_from_slice(piece));
            self.at = 0;
        } else {
            self.at -= pieces.iter().map(|piece| piece.len()).sum::<usize>();
        }
    }

    /// The next `len` bytes, or fewer at the end of the stream.
    pub(crate) fn see(&mut self, len: usize) -> io::Result<&[u8]> {
        let missing = len.saturating_sub(self.seen.len() - self.at);
        if missing > 0 && !self.has_ended {
            // Moved only when it pays: each byte once on average.
            if self.at > self.seen.len() / 2 {
                self.seen.drain(..self.at);
                self.at = 0;
            }
            let got = self
                .input
                .by_ref()
                .take(missing as u64)
                .read_to_end(&mut self.seen)?;
            self.has_ended = got < missing;
        }
        let unread = &self.seen[self.at..];
        Ok(&unread[..unread.len().min(len)])
    }

    /// How much is left, if the end has been seen.
    pub(crate) fn left(&self) -> Option<usize> {
        self.has_ended.then_some(self.seen.len() - self.at)
    }

    /// Skips bytes that have been seen.
    pub(crate) fn pass(&mut self, len: usize) {
        self.at += len;
    }

    /// Lends all seen bytes to `look`, together with the start of the unread part.
    pub(crate) fn lend<T>(&mut self, look: impl FnOnce(Vec<u8>, usize) -> (Vec<u8>, T)) -> T {
        let (seen, result) = look(std::mem::take(&mut self.seen), self.at);
        self.seen = seen;
        result
    }
}

impl<R: Read> Read for Lookahead<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let unread = &self.seen[self.at..];
        if unread.is_empty() {
            if self.has_ended {
                return Ok(0);
            }
            self.is_fresh = true;
            return self.input.read(buf);
        }
        let len = unread.len().min(buf.len());
        buf[..len].copy_from_slice(&unread[..len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut Lookahead<&[u8]>, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        input.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn peeked_and_returned_bytes_are_read_again() {
        let mut input = Lookahead::new(&b"abcdefgh"[..]);
        input.mark();
        assert_eq!(read(&mut input, 3), b"abc");
        input.give_back([b"a", b"bc"]);
        assert_eq!(input.see(5).unwrap(), b"abcde");
        assert_eq!(input.left(), None);
        input.mark();
        assert_eq!(read(&mut input, 4), b"abcd");
        input.give_back([b"ab", b"cd"]);
        input.pass(1);
        assert_eq!(input.see(100).unwrap(), b"bcdefgh");
        assert_eq!(input.left(), Some(7));
        input.mark();
        assert_eq!(read(&mut input, 7), b"bcdefgh");
        input.give_back([b"gh", b""]);
        assert_eq!(read(&mut input, 2), b"gh");
        assert_eq!(input.read(&mut [0; 4]).unwrap(), 0);
    }
}
