//! The set of byte ranges of a file that have been received.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch, as a map from start to end.
///
/// Every operation is cheap in any order, because the ranges may come from an untrusted file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range and joins it with its neighbours.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // The last range that begins at or before `end`, as long as it reaches `start`.
        while let Some((known, until)) = self.last_up_to(end).filter(|(_, until)| *until >= start) {
            self.0.remove(&known);
            (start, end) = (start.min(known), end.max(until));
        }
        self.0.insert(start, end);
    }

    fn last_up_to(&self, at: u64) -> Option<(u64, u64)> {
        let (start, end) = self.0.range(..=at).next_back()?;
        Some((*start, *end))
    }

    /// How many of the first `size` bytes are in the set.
    pub fn covered(&self, size: u64) -> u64 {
        let known = self.0.range(..size);
        known.map(|(start, end)| (*end).min(size) - start).sum()
    }

    /// The ranges of the first `size` bytes that are missing.
    pub fn gaps(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (start, end) in self.0.range(..size) {
            if *start > at {
                gaps.push(at..*start);
            }
            at = *end;
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
        assert_eq!(ranges.0, BTreeMap::from([(0, 5), (10, 40)]));
        assert_eq!(ranges.gaps(50), [5..10, 40..50]);
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_plain_list(
            steps in proptest::collection::vec((0_u64..60, 0_u64..20), 0..20),
        ) {
            let mut ranges = Ranges::default();
            let mut plain = [false; 100];
            for (start, len) in steps {
                ranges.insert(start..start + len);
                plain[start as usize..(start + len) as usize].fill(true);
            }
            let missing: Vec<u64> = ranges.gaps(100).into_iter().flatten().collect();
            let expected: Vec<u64> = (0..100).filter(|at| !plain[*at as usize]).collect();
            prop_assert_eq!(missing, expected);
        }
    }
}
