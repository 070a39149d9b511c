//! Values that are made once and shared, such as the owner of a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// A value that many need and one makes, while it holds the lock.
pub type Turn<T, E> = Arc<Mutex<Made<T, E>>>;

/// The value, once made, or the last failure to make it.
pub struct Made<T, E> {
    pub value: Option<T>,
    failure: Option<(Instant, E)>,
}

impl<T, E> Default for Made<T, E> {
    fn default() -> Made<T, E> {
        Made {
            value: None,
            failure: None,
        }
    }
}

impl<T: Clone, E: Clone> Made<T, E> {
    /// Makes the value. A failure counts for `pause`: all who waited for it get it, instead of failing one after the
    /// other.
    pub async fn make(
        &mut self,
        pause: Duration,
        making: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if let Some((at, failure)) = &self.failure
            && at.elapsed() < pause
        {
            return Err(failure.clone());
        }
        let made = making.await;
        self.value = made.as_ref().ok().cloned();
        self.failure = made
            .as_ref()
            .err()
            .map(|failure| (Instant::now(), failure.clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_counts_for_all_who_waited_and_then_it_is_tried_again() {
        let pause = Duration::from_secs(1000);
        let mut made = Made::default();
        let fails = async { Err::<u8, _>("hangs") };
        assert_eq!(made.make(pause, fails).await, Err("hangs"));
        let second = async { panic!("the failure is known") };
        assert_eq!(made.make(pause, second).await, Err("hangs"));
        assert_eq!(made.value, None);
        let after = async { Ok(7) };
        assert_eq!(made.make(Duration::ZERO, after).await, Ok(7));
        assert_eq!(made.value, Some(7));
    }
}
