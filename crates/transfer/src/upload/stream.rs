//! Uploads an open file without a name, such as buffered pipe input: nobody else can change it, and its upload cannot be resumed.

use std::fs::File;
use std::sync::Arc;

use paddlecloud_pfs::PfsPath;
use paddlecloud_pfs::content::Layout;
use paddlecloud_pfs::root::Meta;

use super::chunked::{Sending, should_restart};
use crate::error::unreadable;
use crate::mover::{Mover, attempts};
use crate::tally::Tally;
use crate::{FileClient, Outcome, Progress, Summary, TransferError, TransferOptions};

impl FileClient<'_> {
    /// Uploads an open file, which need not have a name; `shown` is its name for display.
    pub async fn upload_open(
        &self,
        file: File,
        shown: &str,
        remote: &PfsPath,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let tally = Tally::new(progress);
        let mover = Mover::new(self.patient(), options, &tally);
        match mover.send_open(file, remote).await {
            Ok((outcome, size)) => tally.finished(shown, outcome, size),
            Err(error) => tally.failed(shown.to_owned(), error),
        }
        tally.into_summary()
    }
}

impl Mover<'_> {
    async fn send_open(&self, file: File, remote: &PfsPath) -> Result<(Outcome, u64), TransferError> {
        let meta = Meta::of_file(&file).map_err(unreadable)?;
        let size = meta.size;
        self.tally.planned(1, size);
        let sending = Sending {
            layout: Layout::of(size),
            file: Arc::new(file),
            meta,
            remote: remote.clone(),
        };
        let sent = attempts(|| self.send_state(&sending, None), should_restart);
        Ok((sent.await?, size))
    }
}
