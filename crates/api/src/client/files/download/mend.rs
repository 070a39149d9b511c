//! What the wire has damaged of a large file: found by the names of its chunks, and only that is fetched again.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::content::ChunkName;

use super::chunked::Fetching;
use crate::client::ClientError;
use crate::client::files::engine::{Engine, blocking};
use crate::client::files::patience::Patience;
use crate::client::files::{FileClient, TransferError};
use crate::error::ErrorName;

impl Engine<'_> {
    /// Replaces the chunks that are others on the server, where what came is not what the server has known before. If all
    /// are as it reads them, it reads something else than it stored.
    ///
    /// A chunk that came in pieces has no name here; then the file is left as it is, and found to be wrong in the end.
    pub(super) async fn mend(&self, fetching: &Arc<Fetching>) -> Result<(), TransferError> {
        let said = *fetching.digest.lock().expect("nobody panics with it");
        let here = fetching.assembly.checked();
        let names: Vec<ChunkName> = here.iter().map(|(_, name)| *name).collect();
        let (Some(found), Some(said)) = (fetching.assembly.layout().combine(&names), said) else {
            return Ok(());
        };
        if fetching.is_named || found == said {
            return Ok(());
        }
        let mended: Vec<bool> = futures_util::stream::iter(here)
            .map(|(index, name)| self.mend_chunk(fetching, index, name))
            .buffer_unordered(self.options.transfers.get())
            .try_collect()
            .await?;
        match mended.contains(&true) {
            true => Ok(()),
            false => Err(TransferError::Damaged),
        }
    }

    /// Whether a chunk was another there, and is the same now.
    async fn mend_chunk(
        &self,
        fetching: &Arc<Fetching>,
        index: u64,
        here: ChunkName,
    ) -> Result<bool, TransferError> {
        let _permit = self.permit().await;
        let mut patience = Patience::new(self.files.client);
        loop {
            let error = match self.chunk_if_other(fetching, index, here).await {
                Ok(None) => return Ok(false),
                Ok(Some(bytes)) => {
                    self.replace(fetching, index, bytes).await?;
                    return Ok(true);
                }
                Err(error) => error,
            };
            match error.refusal() {
                Some(ErrorName::Conflict) => return Err(TransferError::ChangedThere),
                Some(ErrorName::Damaged) => return Err(TransferError::Damaged),
                _ => patience.after(error).await?,
            }
        }
    }

    /// A chunk as it is there, unless it has this name.
    async fn chunk_if_other(
        &self,
        fetching: &Fetching,
        index: u64,
        here: ChunkName,
    ) -> Result<Option<Bytes>, ClientError> {
        let layout = fetching.assembly.layout();
        let (_, len) = layout.range(index).expect("a chunk of this file");
        // The server reads all of it for its name; one byte must travel.
        let (_, there) = self.part(fetching, index, len.saturating_sub(1)).await?;
        if there == here {
            return Ok(None);
        }
        let (bytes, there) = self.part(fetching, index, 0).await?;
        let mut hasher = layout.hasher(index);
        hasher.update(&bytes);
        match hasher.finish() == there {
            true => Ok(Some(bytes)),
            false => Err(self.files.client.broken("sent a chunk that arrived damaged")),
        }
    }

    /// The bytes of a chunk behind those to skip, and the name of the chunk.
    async fn part(
        &self,
        fetching: &Fetching,
        index: u64,
        skip: u64,
    ) -> Result<(Bytes, ChunkName), ClientError> {
        let client = self.files.client;
        let target = FileClient::at("parts", &fetching.remote)
            .pair("first", index)
            .pair("count", 1)
            .maybe("skip", (skip > 0).then_some(skip));
        let mut reply = client.open(&fetching.call(target)).await?;
        let mut bytes = BytesMut::new();
        while let Some(piece) = reply.piece(client).await? {
            bytes.extend_from_slice(&piece);
        }
        let range = fetching.assembly.layout().range(index);
        let len = range.and_then(|(_, len)| usize::try_from(len - skip).ok());
        let name = len.and_then(|len| bytes.get(len..)?.try_into().ok());
        let name: [u8; Digest::LEN] = name.ok_or_else(|| client.broken("cut a file off"))?;
        bytes.truncate(bytes.len() - Digest::LEN);
        Ok((bytes.freeze(), ChunkName::from_bytes(name)))
    }

    async fn replace(&self, fetching: &Fetching, index: u64, bytes: Bytes) -> Result<(), TransferError> {
        let len = bytes.len() as u64;
        self.tally.again(len);
        self.tally.flow(len).passed(len);
        let assembly = fetching.assembly.clone();
        let (offset, _) = assembly.layout().range(index).expect("a chunk of this file");
        blocking(move || assembly.put_range(offset, &bytes)).await?;
        Ok(())
    }
}
