//! A reply of many lines of JSON as it comes in, in memory that does not grow with it.

use bytes::{Buf, BytesMut};
use paddlecloud_api::client::{Client, ClientError, Opened};
use serde::de::DeserializeOwned;

/// No line is longer; what is, is not ours.
const LONGEST: usize = 1 << 20;

/// Lines on their way.
pub(super) struct Lines<'a> {
    client: &'a Client,
    /// What they are, for people.
    what: &'static str,
    reply: Opened,
    buffer: BytesMut,
}

impl<'a> Lines<'a> {
    pub(super) fn new(client: &'a Client, what: &'static str, reply: Opened) -> Lines<'a> {
        Lines {
            client,
            what,
            reply,
            buffer: BytesMut::new(),
        }
    }

    /// The next line that says something, if it is here. Empty ones only say that the server is at it.
    pub(super) fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                let unreadable = |error| self.unreadable(&format!(": {error}"));
                return serde_json::from_slice(&line).map(Some).map_err(unreadable);
            }
        }
        match self.buffer.len() > LONGEST {
            true => Err(self.unreadable("")),
            false => Ok(None),
        }
    }

    /// Waits for more of them; `false` when there is no more.
    pub(super) async fn more(&mut self) -> Result<bool, ClientError> {
        let piece = self.reply.piece(self.client).await?;
        if let Some(piece) = &piece {
            self.buffer.extend_from_slice(piece);
        }
        Ok(piece.is_some())
    }

    /// The last line was read. The connection is free again once its reply was read to the end; nothing is missing if it
    /// is not.
    pub(super) async fn end(&mut self) {
        drop(self.reply.piece(self.client).await);
    }

    fn unreadable(&self, why: &str) -> ClientError {
        self.client
            .broken(format!("sent {} that cannot be read{why}", self.what))
    }
}
