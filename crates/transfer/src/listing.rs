//! A listing that is parsed line by line as it arrives, in constant memory.
//!
//! Entries are sorted, so a listing that breaks off is requested again from the last entry.

use paddlecloud_api::client::{Call, Client, ClientError};
use paddlecloud_api::files::{ListEntry, ListLine, UnreadEntry};
use paddlecloud_pfs::{PfsPath, RelPath};

use super::lines::Lines;
use super::patience::Patience;
use super::{FileClient, ListOptions};

/// A stream of entries.
pub struct Listing<'a> {
    client: &'a Client,
    folder: PfsPath,
    options: ListOptions,
    lines: Lines<'a>,
    /// The last entry that was returned.
    last: Option<RelPath>,
    /// Entries that the server could not read.
    unread: Vec<UnreadEntry>,
    patience: Patience<'a>,
    ended: bool,
}

impl<'a> Listing<'a> {
    pub(super) async fn open(
        files: FileClient<'a>,
        folder: PfsPath,
        options: ListOptions,
    ) -> Result<Listing<'a>, ClientError> {
        let client = files.client;
        let mut patience = Patience::new(client);
        let reply = loop {
            match client.open(&call(&folder, options, None)).await {
                Ok(reply) => break reply,
                // The server was not reachable in the first place.
                Err(error @ ClientError::Unreachable { .. }) => return Err(error),
                Err(error) => patience.after(error).await?,
            }
        };
        Ok(Listing {
            client,
            folder,
            options,
            lines: Lines::new(client, "a listing", reply),
            last: None,
            unread: Vec::new(),
            patience,
            ended: false,
        })
    }

    /// The next entry; `None` at the end. An unreachable server is retried. A listing that stays incomplete is an error; so is,
    /// after all other entries, an unreadable one.
    pub async fn next(&mut self) -> Result<Option<ListEntry>, ClientError> {
        match self.next_readable().await? {
            Some(entry) => Ok(Some(entry)),
            None if self.unread.is_empty() => Ok(None),
            None => Err(ClientError::Refused(self.unread.remove(0).error)),
        }
    }

    /// The unreadable entries so far, for callers of [`Listing::next_readable`].
    pub fn take_unread(&mut self) -> Vec<UnreadEntry> {
        std::mem::take(&mut self.unread)
    }

    /// The next entry; unreadable ones are only collected.
    pub async fn next_readable(&mut self) -> Result<Option<ListEntry>, ClientError> {
        while !self.ended {
            if let Some(line) = self.lines.take()? {
                match line {
                    ListLine::Entry(entry) if self.is_known(&entry.path) => {}
                    ListLine::Entry(entry) => {
                        self.last = Some(entry.path.clone());
                        self.patience.renew();
                        return Ok(Some(entry));
                    }
                    // A resumed listing reports it again.
                    ListLine::Unread(unread) if self.is_reported(&unread) => {}
                    ListLine::Unread(unread) => self.unread.push(unread),
                    ListLine::Error(error) => return Err(ClientError::Refused(error)),
                    ListLine::End(_) => {
                        self.ended = true;
                        self.lines.end().await;
                    }
                }
                continue;
            }
            match self.lines.more().await {
                Ok(true) => {}
                Ok(false) => {
                    self.reopen(self.client.broken("sent a truncated listing"))
                        .await?
                }
                Err(error) => self.reopen(error).await?,
            }
        }
        Ok(None)
    }

    fn is_reported(&self, unread: &UnreadEntry) -> bool {
        self.unread.iter().any(|known| known.path == unread.path)
    }

    fn is_known(&self, path: &RelPath) -> bool {
        self.last.as_ref().is_some_and(|last| path <= last)
    }

    /// Requests the rest, as soon as the server is reachable.
    async fn reopen(&mut self, mut error: ClientError) -> Result<(), ClientError> {
        loop {
            self.patience.after(error).await?;
            let rest = call(&self.folder, self.options, self.last.as_ref());
            match self.client.open(&rest).await {
                Ok(reply) => {
                    self.lines = Lines::new(self.client, "a listing", reply);
                    return Ok(());
                }
                Err(again) => error = again,
            }
        }
    }

    /// Reads all remaining entries.
    pub async fn collect(mut self) -> Result<Vec<ListEntry>, ClientError> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

fn call(folder: &PfsPath, options: ListOptions, after: Option<&RelPath>) -> Call {
    let target = FileClient::at("list", folder)
        .maybe("recursive", options.recursive.then_some(true))
        .maybe("digest", options.digests.then_some(true))
        .maybe("after", after);
    Call::get(target)
}
