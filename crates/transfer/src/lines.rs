//! A reply of many JSON lines, parsed as it arrives, in constant memory.

use bytes::{Buf, BytesMut};
use paddlecloud_api::client::{Client, ClientError, Opened};
use serde::de::DeserializeOwned;

/// The longest valid line.
const LONGEST: usize = 1 << 20;

/// Lines of a reply that is being received.
pub(super) struct Lines<'a> {
    client: &'a Client,
    /// What the lines contain, for messages.
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

    /// The next non-empty line, if it has arrived. Empty lines only show that the server is still working.
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

    /// Waits for more bytes; `false` at the end of the reply.
    pub(super) async fn more(&mut self) -> Result<bool, ClientError> {
        let piece = self.reply.piece(self.client).await?;
        if let Some(piece) = &piece {
            self.buffer.extend_from_slice(piece);
        }
        Ok(piece.is_some())
    }

    /// Called after the last line. Reading a reply to its end frees the connection; an error here loses nothing.
    pub(super) async fn end(&mut self) {
        drop(self.reply.piece(self.client).await);
    }

    fn unreadable(&self, why: &str) -> ClientError {
        self.client.broken(format!("sent unreadable {}{why}", self.what))
    }
}
