//! Which bytes of a file are there.

use std::ops::Range;

/// Ranges that never touch or overlap, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds a range, joining it with its neighbours.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let last = self.0.partition_point(|known| known.start <= range.end);
        let start = self
            .0
            .get(first)
            .map_or(range.start, |known| known.start.min(range.start));
        let end = if last > first {
            self.0[last - 1].end.max(range.end)
        } else {
            range.end
        };
        self.0.splice(first..last, std::iter::once(start..end));
    }

    /// Takes a range out, whatever part of it was there.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let kept = self.0.iter().flat_map(|known| {
            let before = known.start..known.end.min(range.start);
            let after = known.start.max(range.end)..known.end;
            [before, after].into_iter().filter(|part| !part.is_empty())
        });
        self.0 = kept.collect();
    }

    /// What is missing of the first `size` bytes.
    pub fn gaps(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for known in self.0.iter().filter(|known| known.start < size) {
            if known.start > at {
                gaps.push(at..known.start);
            }
            at = known.end;
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let mut ranges = Ranges::default();
        for range in [10..20, 30..40, 20..30, 0..5, 7..7] {
            ranges.insert(range);
        }
        assert_eq!(ranges.0, [0..5, 10..40]);
        assert_eq!(ranges.gaps(50), [5..10, 40..50]);
    }

    proptest! {
        #[test]
        fn the_same_bytes_are_there_as_in_a_plain_list(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..60, 0_u64..20), 0..20),
        ) {
            let mut ranges = Ranges::default();
            let mut plain = [false; 100];
            for (is_there, start, len) in steps {
                let range = start..start + len;
                if is_there { ranges.insert(range) } else { ranges.remove(range) }
                plain[start as usize..(start + len) as usize].fill(is_there);
            }
            let missing: Vec<u64> = ranges.gaps(100).into_iter().flatten().collect();
            let expected: Vec<u64> = (0..100).filter(|at| !plain[*at as usize]).collect();
            prop_assert_eq!(missing, expected);
        }
    }
}
