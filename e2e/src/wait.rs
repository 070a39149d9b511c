//! Waits for a condition, with a limit.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine of two cores; a test that passes never waits for it.
pub const LIMIT: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Asks again, at growing intervals, until `condition` gives a value.
///
/// # Panics
/// When the limit passes; the message says what was waited for.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {LIMIT:?} in vain: {what}");
        thread::park_timeout(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
