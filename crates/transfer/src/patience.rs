//! Retries: after a broken connection, a transfer is retried as long as it makes some progress.

use paddlecloud_api::client::{Client, ClientError, Waiting};
use paddlecloud_api::error::ErrorName;

/// How long one piece of work is retried.
pub struct Patience<'a> {
    client: &'a Client,
    waiting: Waiting,
    tries: u32,
}

impl<'a> Patience<'a> {
    pub fn new(client: &'a Client) -> Patience<'a> {
        Patience {
            client,
            waiting: Waiting::begin(),
            tries: 0,
        }
    }

    /// Called after progress: starts over with full patience.
    pub fn renew(&mut self) {
        *self = Patience::new(self.client);
    }

    /// The number of retries since the last progress.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Waits before the next attempt; returns the error if a retry is pointless.
    pub async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !may_pass(&error) || !self.waiting.pause_after(self.client, &error).await {
            return Err(error);
        }
        self.tries += 1;
        Ok(())
    }
}

/// Whether the same request may succeed later.
pub(super) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Broken { .. } | ClientError::Unreachable { .. } => true,
        ClientError::Refused(body) => body.error.is_temporary() || body.error == ErrorName::Damaged,
        ClientError::Tls(_) | ClientError::Upload(_) => false,
    }
}
