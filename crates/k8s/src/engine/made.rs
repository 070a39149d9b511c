//! What many launches need and one of them creates: the owner of a run, the namespace of a user.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::launch::NotCreated;

/// A lock for creating a value, and the value once created.
pub type Turn<T> = Arc<Mutex<Made<T>>>;

/// The value, once created, or the last failure to create it.
pub struct Made<T> {
    pub value: Option<T>,
    failure: Option<(Instant, NotCreated)>,
}

impl<T> Default for Made<T> {
    fn default() -> Made<T> {
        Made {
            value: None,
            failure: None,
        }
    }
}

impl<T: Clone> Made<T> {
    /// Creates the value. A failure counts for all who `asked` before it, so that they do not fail one after the other.
    /// Those who ask later try again.
    pub async fn make(
        &mut self,
        asked: Instant,
        making: impl Future<Output = Result<T, NotCreated>>,
    ) -> Result<T, NotCreated> {
        if let Some((at, failure)) = &self.failure
            && asked <= *at
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
    async fn a_failure_is_shared_by_waiting_callers_and_not_by_later_ones() {
        let hangs = || NotCreated::NoRoom("the webhook hangs".into());
        let (first, waits) = (Instant::now(), Instant::now());
        let mut made = Made::default();
        assert_eq!(made.make(first, async { Err(hangs()) }).await, Err(hangs()));
        let tries_again = async { panic!("the failure is known") };
        assert_eq!(made.make(waits, tries_again).await, Err(hangs()));
        assert_eq!(made.value, None::<u8>);
        // A clock may not advance between two looks at it.
        let later = Instant::now() + std::time::Duration::from_nanos(1);
        assert_eq!(made.make(later, async { Ok(7) }).await, Ok(7));
        assert_eq!(made.value, Some(7));
    }
}
