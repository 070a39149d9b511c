//! Waits for a condition, with a limit.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine of two cores; a test that passes never waits for it.
pub const LIMIT: Duration = Duration::from_secs(180);

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Polls at growing intervals until `condition` returns a value.
///
/// # Panics
/// After the limit; the message says what was awaited.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out after {LIMIT:?}: {what}");
        thread::park_timeout(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
