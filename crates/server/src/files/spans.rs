//! Sets of byte ranges of a file, and their gaps.

/// Sorted and disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spans(Vec<(u64, u64)>);

impl Spans {
    pub(super) fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.0.push((from, to));
            self.0.sort_unstable();
            let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
            for (from, to) in self.0.drain(..) {
                match joined.last_mut() {
                    Some((_, end)) if from <= *end => *end = to.max(*end),
                    _ => joined.push((from, to)),
                }
            }
            self.0 = joined;
        }
    }

    pub(super) fn remove(&mut self, from: u64, to: u64) {
        let around = |(start, end): &(u64, u64)| [(*start, *end.min(&from)), (*start.max(&to), *end)];
        let left = self.0.iter().flat_map(around);
        self.0 = left.filter(|(start, end)| start < end).collect();
    }

    /// The number of bytes.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// The ranges of a file of this size that are missing.
    pub(super) fn gaps(&self, size: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut here = 0;
        for (from, to) in &self.0 {
            if *from > here {
                gaps.push((here, *from));
            }
            here = *to;
        }
        if here < size {
            gaps.push((here, size));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(all: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        all.iter().for_each(|(from, to)| spans.add(*from, *to));
        spans
    }

    #[test]
    fn spans_are_joined_and_their_gaps_found() {
        let joined = spans(&[(10, 20), (0, 5), (20, 25), (3, 7)]);
        assert_eq!(joined.0, [(0, 7), (10, 25)]);
        assert_eq!(joined.gaps(30), [(7, 10), (25, 30)]);
        assert_eq!((joined.total(), Spans::default().total()), (22, 0));
        assert_eq!(Spans::default().gaps(0), []);
    }

    #[test]
    fn what_is_taken_out_leaves_what_is_around_it() {
        for (from, to, left) in [
            (3, 12, vec![(0, 3), (12, 25)]),
            (1, 2, vec![(0, 1), (2, 7), (10, 25)]),
            (0, 30, vec![]),
            (7, 10, vec![(0, 7), (10, 25)]),
        ] {
            let mut some = spans(&[(0, 7), (10, 25)]);
            some.remove(from, to);
            assert_eq!(some.0, left, "{from}..{to}");
        }
    }
}
