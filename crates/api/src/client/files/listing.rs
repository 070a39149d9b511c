//! A listing as it comes in: line by line, in memory that does not grow with the folder.

use bytes::{Buf, BytesMut};

use crate::client::call::{Call, Opened};
use crate::client::{Client, ClientError};
use crate::files::{ListEntry, ListLine};

/// No line of a listing is longer; what is, is not ours.
const LONGEST_LINE: usize = 1 << 20;

/// A stream of entries.
pub struct Listing<'a> {
    client: &'a Client,
    reply: Opened,
    buffer: BytesMut,
    ended: bool,
}

impl<'a> Listing<'a> {
    pub(super) async fn open(client: &'a Client, call: &Call) -> Result<Listing<'a>, ClientError> {
        Ok(Listing {
            client,
            reply: client.open(call).await?,
            buffer: BytesMut::new(),
            ended: false,
        })
    }

    /// The next entry; `None` when there are no more. A listing that was cut is an error.
    pub async fn next(&mut self) -> Result<Option<ListEntry>, ClientError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            if let Some(line) = self.take_line()? {
                return match line {
                    ListLine::Entry(entry) => Ok(Some(entry)),
                    ListLine::Error(error) => Err(ClientError::Refused(error)),
                    ListLine::End(_) => {
                        self.ended = true;
                        // The connection is free again once its reply was read to the end.
                        self.reply.piece(self.client).await?;
                        Ok(None)
                    }
                };
            }
            match self.reply.piece(self.client).await? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => return Err(self.client.broken("cut a listing off")),
            }
        }
    }

    /// Reads all that is left.
    pub async fn collect(mut self) -> Result<Vec<ListEntry>, ClientError> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    fn take_line(&mut self) -> Result<Option<ListLine>, ClientError> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            if self.buffer.len() > LONGEST_LINE {
                return Err(self.client.broken("sent a listing that cannot be read"));
            }
            return Ok(None);
        };
        let line = serde_json::from_slice(&self.buffer[..end]);
        self.buffer.advance(end + 1);
        line.map(Some).map_err(|error| {
            self.client
                .broken(format!("sent a listing that cannot be read: {error}"))
        })
    }
}
