//! A check of all indexed files, whose findings arrive while it runs.
//!
//! It is requested once. After an interrupted check, the next one reports the same findings.

use paddlecloud_api::client::{Call, ClientError, Replay, Target};
use paddlecloud_api::files::{FILES, FsckEnd, FsckFinding, FsckLine, FsckReply};

use super::FileClient;
use super::lines::Lines;

/// A check in progress.
pub struct Fsck<'a> {
    files: FileClient<'a>,
    lines: Lines<'a>,
    end: Option<FsckEnd>,
}

impl<'a> FileClient<'a> {
    /// Starts to check every file whose digest the server knows; for administrators.
    pub async fn fsck_begin(&self) -> Result<Fsck<'a>, ClientError> {
        let call = Call::post(Target::new(FILES).word("fsck"), &serde_json::json!({}));
        let reply = self.client.open(&call.replay(Replay::Never)).await?;
        Ok(Fsck {
            files: *self,
            lines: Lines::new(self.client, "a finding", reply),
            end: None,
        })
    }

    /// Checks every file whose digest the server knows and returns those that differ; for administrators.
    pub async fn fsck(&self) -> Result<FsckReply, ClientError> {
        let mut fsck = self.fsck_begin().await?;
        let mut findings = Vec::new();
        while let Some(finding) = fsck.next().await? {
            findings.push(finding);
        }
        let checked = fsck.checked();
        Ok(FsckReply { checked, findings })
    }
}

impl Fsck<'_> {
    /// The next finding; `None` when all files were checked.
    pub async fn next(&mut self) -> Result<Option<FsckFinding>, ClientError> {
        while self.end.is_none() {
            match self.lines.take()? {
                Some(FsckLine::Found(finding)) => return Ok(Some(finding)),
                Some(FsckLine::End(end)) => {
                    self.end = Some(end);
                    self.lines.end().await;
                }
                None if self.lines.more().await? => {}
                None => return Err(self.files.client.broken("ended the check early")),
            }
        }
        Ok(None)
    }

    /// The number of checked files; known at the end.
    pub fn checked(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.checked)
    }
}
