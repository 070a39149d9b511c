//! The events of a job and their times, for people. Bounded, so that a job that restarts forever does not grow.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many of the first events are always kept.
const FIRST: usize = 8;
/// How many events are kept in total.
const MOST: usize = 64;

/// An event worth showing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub at: Timestamp,
    pub text: String,
}

/// The first and the latest events of a job; events in between may be dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timeline {
    moments: Vec<Moment>,
    left_out: u64,
}

impl Timeline {
    pub(super) fn push(&mut self, at: Timestamp, text: String) {
        if self.moments.len() == MOST {
            self.moments.remove(FIRST);
            self.left_out += 1;
        }
        self.moments.push(Moment { at, text });
    }

    /// The first events: nothing is missing before or between them.
    pub fn first(&self) -> &[Moment] {
        &self.moments[..self.split()]
    }

    /// How many events are missing between `first` and `latest`.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The remaining events, up to now.
    pub fn latest(&self) -> &[Moment] {
        &self.moments[self.split()..]
    }

    /// All events that were kept.
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    fn split(&self) -> usize {
        self.moments.len().min(FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_latest_events_are_kept() {
        let mut timeline = Timeline::default();
        for number in 0..1000 {
            timeline.push(Timestamp::UNIX_EPOCH, number.to_string());
        }
        assert_eq!(timeline.moments().len(), MOST);
        assert_eq!(timeline.first().last().unwrap().text, "7");
        assert_eq!(timeline.latest()[0].text, "944");
        assert_eq!(timeline.left_out(), 936);
    }
}
