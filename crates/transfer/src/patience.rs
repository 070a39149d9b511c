//! Trying again: as long as something moves now and then, a broken connection is only a pause.

use paddlecloud_api::client::{Client, ClientError, Waiting};
use paddlecloud_api::error::ErrorName;

/// How long one piece of work goes on trying.
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

    /// Something got through: patience is as fresh as at the beginning.
    pub fn renew(&mut self) {
        *self = Patience::new(self.client);
    }

    /// How often it was tried again since something got through.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Waits before the next try; gives the error back when there is no point in another one.
    pub async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !may_pass(&error) || !self.waiting.pause(self.client).await {
            return Err(error);
        }
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
