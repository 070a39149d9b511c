//! Waiting for a server that does not answer: how long, and which time counts.
//!
//! A server that accepts bytes, sends some or signals that it is working is available, however long that takes. Only
//! the time without any sign of it counts, and the pauses between retries. Bytes count as accepted when the server's
//! system has confirmed them, if this system can tell (see `unsent`): on a slow link they wait in local buffers for a
//! long time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, ClientError};

const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// When the server last showed a sign of life; shared by all its connections.
#[derive(Clone, Default)]
pub(super) struct LastSeen(Arc<Mutex<Option<Instant>>>);

impl LastSeen {
    /// The server accepted or sent something, or closed the connection: it was alive until now.
    pub(super) fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long there was no sign of it; at most `limit`.
    fn ago(&self, limit: Duration) -> Duration {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map_or(limit, |seen| seen.elapsed().min(limit))
    }
}

/// How long one piece of work has waited for the server.
pub struct Waiting {
    /// When the current attempt began.
    trying: Instant,
    waited: Duration,
    pause: Duration,
}

impl Waiting {
    /// The first try begins.
    pub fn begin() -> Waiting {
        Waiting {
            trying: Instant::now(),
            waited: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }

    /// Pauses after a failed attempt: as long as the server asked for, and longer each time. `false` if the server was away for
    /// too long, or asks for more patience than there is.
    pub async fn pause_after(&mut self, client: &Client, error: &ClientError) -> bool {
        self.pause = self.pause.max(error.retry_after().unwrap_or_default());
        self.pause(client).await
    }

    async fn pause(&mut self, client: &Client) -> bool {
        self.waited += client.seen.ago(self.trying.elapsed()) + self.pause;
        if self.waited > client.limits.give_up {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).clamp(client.limits.pause, LONGEST_PAUSE);
        self.trying = Instant::now();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new("unix:/nowhere".parse().unwrap())
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_bytes_move_does_not_count() {
        let client = client();
        let mut waiting = Waiting::begin();
        for _ in 0..5 {
            pass(67).await;
            client.seen.now();
            assert!(waiting.pause(&client).await, "it broke while it moved");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_silent_server_ends() {
        let client = client();
        client.seen.now();
        pass(1000).await;
        let mut waiting = Waiting::begin();
        pass(40).await;
        assert!(
            waiting.pause(&client).await,
            "silence before it began counts for nothing"
        );
        pass(40).await;
        assert!(
            !waiting.pause(&client).await,
            "40 s and 40 s are more than a minute"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_asked_again_when_it_said() {
        use crate::error::{ErrorBody, ErrorName};
        let client = client();
        let busy = |seconds| {
            let body = ErrorBody::new(ErrorName::TooManyRequests, "busy");
            ClientError::Refused(body.after(Duration::from_secs(seconds)))
        };
        let (mut waiting, began) = (Waiting::begin(), Instant::now());
        assert!(waiting.pause_after(&client, &busy(7)).await);
        assert_eq!(began.elapsed(), Duration::from_secs(7));
        assert!(!waiting.pause_after(&client, &busy(90)).await, "too long");
        assert_eq!(began.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_server_that_keeps_hanging_up_ends() {
        let client = client();
        let mut waiting = Waiting::begin();
        let began = Instant::now();
        let mut tries = 0;
        while waiting.pause(&client).await {
            client.seen.now();
            tries += 1;
            assert!(tries < 1000, "it never ends");
        }
        assert!(began.elapsed() <= client.limits.give_up);
        assert!(tries > 10, "{tries}");
    }
}
