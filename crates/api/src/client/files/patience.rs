//! Trying again: as long as something moves now and then, a broken connection is only a pause.

use std::time::{Duration, Instant};

use crate::client::{Client, ClientError};
use crate::error::ErrorName;

const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How long one piece of work goes on trying.
pub(super) struct Patience<'a> {
    client: &'a Client,
    since: Instant,
    pause: Duration,
    tries: u32,
}

impl<'a> Patience<'a> {
    pub(super) fn new(client: &'a Client) -> Patience<'a> {
        Patience {
            client,
            since: Instant::now(),
            pause: Duration::ZERO,
            tries: 0,
        }
    }

    /// Something got through: patience is as fresh as at the beginning.
    pub(super) fn renew(&mut self) {
        *self = Patience::new(self.client);
    }

    /// How often it was tried again since something got through.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Waits before the next try; gives the error back when there is no point in another one.
    pub(super) async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        let limit = self.client.limits.give_up;
        if !may_pass(&error) || self.since.elapsed() + self.pause > limit {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).clamp(self.client.limits.pause, LONGEST_PAUSE);
        self.tries += 1;
        Ok(())
    }
}

/// Whether the same request can succeed later.
pub(super) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Broken { .. } | ClientError::Unreachable { .. } => true,
        ClientError::Refused(body) => matches!(body.error, ErrorName::Unavailable | ErrorName::Damaged),
        ClientError::Tls(_) | ClientError::Upload(_) => false,
    }
}
