//! A check of all known files as it goes on: findings come while the rest is still being read.
//!
//! It is asked for once. What it found is found again by the next one until somebody says that it was told, so a
//! connection that breaks loses nothing.

use paddlecloud_api::client::{Call, ClientError, Replay, TREES, Target};
use paddlecloud_api::files::{FILES, FsckEnd, FsckFinding, FsckLine, FsckReply};

use super::FileClient;
use super::lines::Lines;

/// A check under way.
pub struct Fsck<'a> {
    files: FileClient<'a>,
    lines: Lines<'a>,
    end: Option<FsckEnd>,
}

impl<'a> FileClient<'a> {
    /// Begins to read every file the server knows the digest of; for administrators.
    pub async fn fsck_begin(&self) -> Result<Fsck<'a>, ClientError> {
        let call = Call::post(Target::new(FILES).word("fsck"), &serde_json::json!({}));
        let reply = self.client.open(&call.replay(Replay::Never)).await?;
        Ok(Fsck {
            files: *self,
            lines: Lines::new(self.client, "a finding", reply),
            end: None,
        })
    }

    /// Reads every file the server knows the digest of and says which are not as they were; for administrators.
    pub async fn fsck(&self) -> Result<FsckReply, ClientError> {
        let mut fsck = self.fsck_begin().await?;
        let mut findings = Vec::new();
        while let Some(finding) = fsck.next().await? {
            findings.push(finding);
        }
        let checked = fsck.checked();
        // Where that does not get there, the next check finds the same again. Nothing is lost, as these would be.
        let _ = fsck.told().await;
        Ok(FsckReply { checked, findings })
    }
}

impl Fsck<'_> {
    /// The next file that is not as it was; `None` when all were read.
    pub async fn next(&mut self) -> Result<Option<FsckFinding>, ClientError> {
        while self.end.is_none() {
            match self.lines.take()? {
                Some(FsckLine::Found(finding)) => return Ok(Some(finding)),
                Some(FsckLine::End(end)) => {
                    self.end = Some(end);
                    self.lines.end().await;
                }
                None if self.lines.more().await? => {}
                None => return Err(self.files.client.broken("cut the check off")),
            }
        }
        Ok(None)
    }

    /// How many files were read; known at the end.
    pub fn checked(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.checked)
    }

    /// Says that people know: what changed or went past the service is not found again. Damage is.
    pub async fn told(self) -> Result<(), ClientError> {
        let Some(end) = self.end else { return Ok(()) };
        let target = Target::new(FILES).word("fsck").word(&end.id).word("told");
        let call = Call::post(target, &serde_json::json!({})).replay(Replay::Safe);
        let call = call.lasting(TREES);
        self.files.message::<String>(&call).await.map(drop)
    }
}
