//! Decides how much one request fetches: little for random reads, more and more for sequential ones.

use std::io;
use std::ops::Range;

/// The smallest fetch that is worth a round trip.
const FIRST_REACH: usize = 4 << 10;
/// The most that is kept.
const LAST_REACH: usize = 8 << 20;
/// A read this far after the last one still counts as sequential. Chunk headers are further apart, and the data between
/// them is not needed.
const NEAR: u64 = 16 << 10;

/// The bytes of the last fetch.
#[derive(Debug)]
pub struct Window {
    start: u64,
    bytes: Vec<u8>,
    reach: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            start: 0,
            bytes: Vec::new(),
            reach: FIRST_REACH / 2,
        }
    }
}

impl Window {
    /// Fills `buf` from a file of `len` bytes; `fetch` gets missing bytes.
    pub fn read(
        &mut self,
        buf: &mut [u8],
        offset: u64,
        len: u64,
        fetch: impl Fn(Range<u64>) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = self.copy(buf, offset);
        while done < buf.len() {
            let at = offset + done as u64;
            self.adapt_reach(at);
            let want = (buf.len() - done).max(self.reach) as u64;
            self.bytes = fetch(at..len.min(at.saturating_add(want)))?;
            self.start = at;
            done += self.copy(&mut buf[done..], at);
        }
        Ok(())
    }

    /// Copies available bytes from `offset` on, and returns how many.
    fn copy(&self, buf: &mut [u8], offset: u64) -> usize {
        let at = offset
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        let here = at.and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        let len = here.len().min(buf.len());
        buf[..len].copy_from_slice(&here[..len]);
        len
    }

    fn adapt_reach(&mut self, at: u64) {
        let end = self.start + self.bytes.len() as u64;
        let is_sequential = (self.start..=end.saturating_add(NEAR)).contains(&at);
        self.reach = match is_sequential {
            true => (self.reach * 2).min(LAST_REACH),
            false => FIRST_REACH,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const LEN: u64 = 64 << 20;

    /// The fetches for reads of `len` bytes at these offsets.
    fn fetched(offsets: impl Iterator<Item = u64>, len: usize) -> Vec<Range<u64>> {
        let fetches = RefCell::new(Vec::new());
        let mut window = Window::default();
        for offset in offsets {
            let mut buf = vec![0; len];
            let fetch = |range: Range<u64>| {
                fetches.borrow_mut().push(range.clone());
                Ok(range.map(|at| (at % 251) as u8).collect())
            };
            window.read(&mut buf, offset, LEN, fetch).unwrap();
            let expected: Vec<u8> = (offset..offset + len as u64).map(|at| (at % 251) as u8).collect();
            assert_eq!(buf, expected, "at {offset}");
        }
        fetches.into_inner()
    }

    #[test]
    fn the_beginning_of_a_file_costs_little() {
        let first = 0..4 << 10;
        assert_eq!(
            fetched([0, 20, 4000].into_iter(), 20),
            std::slice::from_ref(&first)
        );
    }

    #[test]
    fn reading_on_fetches_more_each_time_up_to_a_bound() {
        let step = 64 << 10;
        let fetches = fetched((0..LEN / step).map(|n| n * step), step as usize);
        assert!(fetches.len() < 25, "{} journeys", fetches.len());
        assert!(
            fetches
                .iter()
                .all(|range| range.end - range.start <= LAST_REACH as u64)
        );
        let all: u64 = fetches.iter().map(|range| range.end - range.start).sum();
        assert_eq!(all, LEN, "nothing is fetched twice");
    }

    #[test]
    fn jumping_about_fetches_little_each_time() {
        for distance in [64 << 10, 1 << 20] {
            let fetches = fetched((0..50).map(|n| n * distance), 20);
            let all: u64 = fetches.iter().map(|range| range.end - range.start).sum();
            assert_eq!((fetches.len(), all), (50, 50 * FIRST_REACH as u64));
        }
    }

    #[test]
    fn reading_beyond_the_end_fails() {
        let fetch = |_: Range<u64>| panic!("nothing is asked for");
        let error = Window::default()
            .read(&mut [0; 2], LEN - 1, LEN, fetch)
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
