//! The time of day, and detection of clock changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// The largest difference to the elapsed time that does not count as a jump.
const TOLERANCE: Duration = Duration::from_secs(5);
/// A clock being slewed runs faster or slower by less than one part in this many.
const SLEW_DIVISOR: u32 = 1000;

/// The source of time: the machine, or a test that sets it.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's own clock.
    pub fn machine() -> Clock {
        Clock::new(Timestamp::now)
    }

    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// Compares the clock with a monotonic counter.
///
/// A machine that was suspended looks like one whose clock was set forward, which is what its jobs' time limits need.
pub(super) struct Watch {
    clock: Clock,
    seen: (Timestamp, Instant),
}

impl Watch {
    pub fn new(clock: Clock) -> Watch {
        let seen = (clock.now(), Instant::now());
        Watch { clock, seen }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time, and by how much the clock was changed since the last call.
    pub fn look(&mut self) -> (Timestamp, Option<SignedDuration>) {
        let (clock, counter) = (self.clock.now(), Instant::now());
        let (before, counted) = std::mem::replace(&mut self.seen, (clock, counter));
        let passed = counter.duration_since(counted);
        (clock, jump(clock.duration_since(before), passed))
    }
}

fn jump(by_clock: SignedDuration, passed: Duration) -> Option<SignedDuration> {
    let set = by_clock - SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
    (set.unsigned_abs() > TOLERANCE + passed / SLEW_DIVISOR).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradual_clock_correction_is_not_a_jump() {
        let seconds = SignedDuration::from_secs;
        let hour = Duration::from_secs(3600);
        assert_eq!(jump(seconds(3600), hour), None);
        assert_eq!(jump(seconds(3608), hour), None);
        assert_eq!(jump(seconds(3592), hour), None);
        assert_eq!(jump(seconds(7200), hour), Some(seconds(3600)));
        assert_eq!(jump(seconds(-7200), hour), Some(seconds(-10_800)));
    }
}
