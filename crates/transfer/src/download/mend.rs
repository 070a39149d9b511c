//! Repairs a large file that was damaged in transit: the names of its chunks tell which ones to fetch again.

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

/// How often a chunk may arrive damaged again, in case the network damages everything.
const MOST_DAMAGED: usize = 3;

/// A chunk on the server, compared with the local one.
enum There {
    Same,
    Other(Bytes),
    /// It differs, but was damaged in transit.
    Damaged,
}

impl Engine<'_> {
    /// Replaces the chunks that differ on the server, if the file does not have the digest that the server recorded. If no chunk
    /// differs, the server's disk is damaged.
    ///
    /// A chunk that arrived in ranges has no name here. Then nothing is repaired, and the commit fails.
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

    /// Returns whether the chunk differed and was replaced.
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
        // Fails as without a repair.
        let path = fetching.assembly.plan().path.clone();
        Err(AssemblyError::WrongDigest { path, found }.into())
    }

    /// Compares a chunk with the server's; transfers it only if the names differ.
    async fn chunk_there(
        &self,
        fetching: &Fetching,
        index: u64,
        here: ChunkName,
    ) -> Result<There, ClientError> {
        let layout = fetching.assembly.layout();
        let (_, len) = layout.range(index).expect("a chunk of this file");
        // The server reads the whole chunk to name it, but at least one byte must be sent.
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

    /// The bytes of a chunk after `skip`, and its name.
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
