//! A check of all known files as it goes on: findings come while the rest is still being read.
//!
//! It is asked for once. What it found is found again by the next one until somebody says that it was told, so a
//! connection that breaks loses nothing.

use bytes::{Buf, BytesMut};

use super::FileClient;
use crate::client::call::{Call, Opened, Replay};
use crate::client::query::Target;
use crate::client::{Client, ClientError};
use crate::files::{FILES, FsckEnd, FsckFinding, FsckLine, FsckReply};

/// No line of a check is longer; what is, is not ours.
const LONGEST_LINE: usize = 1 << 20;

/// A check under way.
pub struct Fsck<'a> {
    files: FileClient<'a>,
    reply: Opened,
    buffer: BytesMut,
    end: Option<FsckEnd>,
}

impl<'a> FileClient<'a> {
    /// Begins to read every file the server knows the digest of; for administrators.
    pub async fn fsck_begin(&self) -> Result<Fsck<'a>, ClientError> {
        let call = Call::post(Target::new(FILES).word("fsck"), &serde_json::json!({}));
        Ok(Fsck {
            files: *self,
            reply: self.client.open(&call.replay(Replay::Never)).await?,
            buffer: BytesMut::new(),
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
        let client = self.files.client;
        while self.end.is_none() {
            match take_line(&mut self.buffer, client)? {
                Some(FsckLine::Found(finding)) => return Ok(Some(finding)),
                Some(FsckLine::End(end)) => {
                    self.end = Some(end);
                    // The connection is free again once its reply was read to the end. Nothing is missing if it is not.
                    drop(self.reply.piece(client).await);
                }
                None => match self.reply.piece(client).await? {
                    Some(piece) => self.buffer.extend_from_slice(&piece),
                    None => return Err(client.broken("cut the check off")),
                },
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
        self.files.message::<String>(&call).await.map(drop)
    }
}

/// The next line that says something; empty ones only say that it goes on.
fn take_line(buffer: &mut BytesMut, client: &Client) -> Result<Option<FsckLine>, ClientError> {
    while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
        let line = buffer.split_to(end);
        buffer.advance(1);
        if !line.is_empty() {
            let unreadable = |error| client.broken(format!("sent a finding that cannot be read: {error}"));
            return serde_json::from_slice(&line).map(Some).map_err(unreadable);
        }
    }
    match buffer.len() > LONGEST_LINE {
        true => Err(client.broken("sent a finding that cannot be read")),
        false => Ok(None),
    }
}
