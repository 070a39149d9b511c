//! A file without a name, such as what a pipe held: nobody but us can change it, and nobody can come back for it.

use std::fs::File;
use std::sync::Arc;

use paddlecloud_pfs::PfsPath;
use paddlecloud_pfs::content::Layout;
use paddlecloud_pfs::root::Meta;

use super::chunked::{Sending, unreadable};
use crate::client::ClientError;
use crate::client::files::engine::Engine;
use crate::client::files::tally::Tally;
use crate::client::files::{FileClient, Outcome, Progress, Summary, TransferError, TransferOptions};
use crate::error::ErrorName;

/// How often it is begun anew because what arrived was not what was sent.
const ATTEMPTS: usize = 3;

impl FileClient<'_> {
    /// Sends an open file, whatever its name, if it has one; people know it as `shown`.
    pub async fn upload_open(
        &self,
        file: File,
        shown: &str,
        remote: &PfsPath,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let tally = Tally::new(progress);
        let engine = Engine::new(self.patient(), options, &tally);
        match engine.send_open(file, shown, remote).await {
            Ok((outcome, size)) => tally.finished(shown, outcome, size),
            Err(error) => tally.failed(shown.to_owned(), error),
        }
        tally.into_summary()
    }
}

impl Engine<'_> {
    async fn send_open(
        &self,
        file: File,
        shown: &str,
        remote: &PfsPath,
    ) -> Result<(Outcome, u64), TransferError> {
        let meta = Meta::of_file(&file).map_err(unreadable)?;
        let size = meta.size;
        self.tally.planned(1, size);
        self.tally.started(shown);
        let sending = Sending {
            layout: Layout::of(size),
            file: Arc::new(file),
            meta,
            remote: remote.clone(),
        };
        let mut sent = Err(TransferError::BrokenOff);
        for _ in 0..ATTEMPTS {
            sent = self.send_sending(&sending).await;
            match &sent {
                Err(TransferError::Server(ClientError::Refused(body)))
                    if body.error == ErrorName::Damaged => {}
                _ => break,
            }
        }
        Ok((sent?, size))
    }

    async fn send_sending(&self, sending: &Sending) -> Result<Outcome, TransferError> {
        let reply = match self.begin(&self.upload_request(sending)).await {
            Err(ClientError::Refused(body))
                if body.error == ErrorName::Conflict && self.options.no_overwrite =>
            {
                return Ok(Outcome::Kept);
            }
            other => other?,
        };
        let Some(id) = reply.id.clone() else {
            self.tally.spared(sending.meta.size);
            return Ok(Outcome::Transferred);
        };
        let known = self.spare_what_is_there(sending, &id, &reply).await?;
        let digest = self.send_missing(sending, &id, known).await?;
        self.commit(sending, &id, digest).await
    }
}
