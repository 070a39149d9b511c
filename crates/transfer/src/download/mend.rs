//! What the wire has damaged of a large file: found by the names of its chunks, and only that is fetched again.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::content::{AssemblyError, ChunkName};

use super::chunked::Fetching;
use crate::engine::{Engine, blocking};
use crate::patience::Patience;
use crate::{FileClient, TransferError};

/// How often a chunk may arrive damaged once more: a wire that damages everything mends nothing.
const MOST_DAMAGED: usize = 3;

/// A chunk as it is on the server.
enum There {
    Same,
    Other(Bytes),
    /// Another, and not what the server sent either.
    Damaged,
}

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
            .map(|chunk| self.mend_chunk(fetching, chunk, found))
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
        (index, here): (u64, ChunkName),
        found: Digest,
    ) -> Result<bool, TransferError> {
        let _permit = self.permit().await;
        let mut patience = Patience::new(self.files.client);
        let mut damaged = 0;
        while damaged < MOST_DAMAGED {
            let error = match self.chunk_there(fetching, index, here).await {
                Ok(There::Same) => return Ok(false),
                Ok(There::Other(bytes)) => {
                    self.replace(fetching, index, bytes).await?;
                    return Ok(true);
                }
                Ok(There::Damaged) => {
                    damaged += 1;
                    continue;
                }
                Err(error) => error,
            };
            match error.refusal() {
                Some(ErrorName::Conflict) => return Err(TransferError::ChangedThere),
                Some(ErrorName::Damaged) => return Err(TransferError::Damaged),
                _ => patience.after(error).await?,
            }
        }
        // As if nobody had tried to mend it.
        let path = fetching.assembly.plan().path.clone();
        Err(AssemblyError::WrongDigest { path, found }.into())
    }

    /// A chunk as it is there; it travels only if it has not the name it has here.
    async fn chunk_there(
        &self,
        fetching: &Fetching,
        index: u64,
        here: ChunkName,
    ) -> Result<There, ClientError> {
        let layout = fetching.assembly.layout();
        let (_, len) = layout.range(index).expect("a chunk of this file");
        // The server reads all of it for its name; one byte must travel.
        let (_, there) = self.part(fetching, index, len.saturating_sub(1)).await?;
        if there == here {
            return Ok(There::Same);
        }
        let (bytes, there) = self.part(fetching, index, 0).await?;
        let mut hasher = layout.hasher(index);
        hasher.update(&bytes);
        Ok(match hasher.finish() == there {
            true => There::Other(bytes),
            false => There::Damaged,
        })
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
