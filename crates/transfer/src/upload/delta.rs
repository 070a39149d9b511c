//! Copies on the server what a new file shares with the one it replaces, wherever it moved to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use paddlecloud_api::client::{Call, ClientError, Replay};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{COPY_AT_ONCE, ReuseRequest, SMALL_FILE, UploadReply};
use paddlecloud_pfs::FileExt;
use paddlecloud_pfs::content::{CHUNK, ChunkName, ChunkTable, Op, Signature};
use paddlecloud_pfs::staging::StagedId;

use super::chunked::{Sending, upload_target};
use crate::error::unreadable;
use crate::mover::{Mover, blocking};
use crate::patience::Patience;
use crate::{FileClient, TransferError};

/// The most copies in one request.
const OPS_AT_ONCE: usize = 4096;
/// The slowest expected read rate of the server, in bytes per second.
const SLOWEST_READ: u64 = 20 << 20;

impl Mover<'_> {
    /// Reuses parts of the old file, if there is one and nothing was sent yet.
    ///
    /// Returns the names of chunks that were computed for this; `None` if there was nothing to reuse.
    pub(super) async fn reuse_old_parts(
        &self,
        sending: &Sending,
        reply: &UploadReply,
    ) -> Result<Option<BTreeMap<u64, ChunkName>>, TransferError> {
        let size = sending.meta.size;
        let is_fresh = reply.missing == [(0, size)];
        let old = reply
            .old_size
            .filter(|old| is_fresh && *old > SMALL_FILE && size > SMALL_FILE);
        let Some(old) = old else {
            return Ok(None);
        };
        let names = self.name_all(sending).await?;
        self.copy_matches(sending, &reply.id, old).await?;
        Ok(Some(names))
    }

    async fn name_all(&self, sending: &Sending) -> Result<BTreeMap<u64, ChunkName>, TransferError> {
        let file = sending.file.clone();
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let table = blocking(move || ChunkTable::read(&file, threads)).await;
        let table = table.map_err(unreadable)?.ok_or(TransferError::Changed)?;
        Ok((0..).zip(table.names).collect())
    }

    async fn copy_matches(&self, sending: &Sending, id: &StagedId, old: u64) -> Result<(), TransferError> {
        let call = Call::get(FileClient::at("signature", &sending.remote))
            .lasting(Duration::from_secs(old / SLOWEST_READ));
        let permit = self.permit().await;
        let bytes = match self.files.bytes(&call).await {
            Ok(bytes) => bytes,
            // The old file was removed or changed its kind meanwhile, so everything is sent.
            Err(ClientError::Refused(body)) if body.error != ErrorName::Unauthorized => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        drop(permit);
        // A keep-alive reply starts with spaces.
        let Ok(signature) = Signature::decode(bytes.trim_ascii_start()) else {
            return Err(self.files.client.broken("sent an unreadable signature").into());
        };
        let file = sending.file.clone();
        let ops = blocking(move || signature.diff(&file))
            .await
            .map_err(unreadable)?;
        self.reuse(id, &ops).await?;
        self.send_between(sending, id, &ops).await
    }

    /// Makes the server copy ranges; what it could not copy stays missing and is sent later.
    async fn reuse(&self, id: &StagedId, ops: &[Op]) -> Result<(), TransferError> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for op in split_copies(ops) {
            bytes += copied(&op);
            batch.push(op);
            if bytes >= COPY_AT_ONCE || batch.len() == OPS_AT_ONCE {
                self.reuse_some(id, std::mem::take(&mut batch)).await?;
                self.tally.reused(std::mem::take(&mut bytes));
            }
        }
        if !batch.is_empty() {
            self.reuse_some(id, batch).await?;
            self.tally.reused(bytes);
        }
        Ok(())
    }

    async fn reuse_some(&self, id: &StagedId, ops: Vec<Op>) -> Result<(), ClientError> {
        let call = Call::post(upload_target(id).word("reuse"), &ReuseRequest { ops }).replay(Replay::Safe);
        let call = call.lasting(Duration::from_secs(COPY_AT_ONCE / SLOWEST_READ));
        let _permit = self.permit().await;
        let _: UploadReply = self.files.message(&call).await?;
        Ok(())
    }

    async fn send_between(&self, sending: &Sending, id: &StagedId, ops: &[Op]) -> Result<(), TransferError> {
        for op in ops {
            let Op::Send { to, len } = *op else { continue };
            // Long ranges are sent as chunks, which are checked on arrival.
            if len >= 2 * CHUNK {
                continue;
            }
            let file = sending.file.clone();
            let bytes = blocking(move || read_stretch(&file, to, len)).await?;
            let mut patience = Patience::new(self.files.client);
            let _permit = self.permit().await;
            let mut sent = self.send_range(id, to, bytes.clone()).await;
            while let Err(error) = sent {
                patience.after(error).await?;
                sent = self.send_ranges(id, to, &bytes, &mut patience).await;
            }
        }
        Ok(())
    }
}

/// Reads a range of at most two chunks. A file that ends before it has changed since it was compared.
fn read_stretch(file: &File, offset: u64, len: u64) -> Result<Bytes, TransferError> {
    let mut bytes = vec![0; usize::try_from(len).expect("two chunks fit into memory")];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(bytes.into()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(TransferError::Changed),
        Err(error) => Err(unreadable(error)),
    }
}

fn copied(op: &Op) -> u64 {
    match op {
        Op::Copy { len, .. } => *len,
        Op::Send { .. } => 0,
    }
}

/// Only the copies, split to the limit of one request.
fn split_copies(ops: &[Op]) -> impl Iterator<Item = Op> {
    ops.iter().flat_map(|op| {
        let (to, from, len) = match *op {
            Op::Copy { to, from, len } => (to, from, len),
            Op::Send { to, .. } => (to, 0, 0),
        };
        (0..len.div_ceil(COPY_AT_ONCE)).map(move |part| {
            let done = part * COPY_AT_ONCE;
            Op::Copy {
                to: to + done,
                from: from + done,
                len: COPY_AT_ONCE.min(len - done),
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_became_shorter_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "0123456789").unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(read_stretch(&file, 4, 6).unwrap(), "456789");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(7)
            .unwrap();
        let changed = read_stretch(&file, 4, 6).unwrap_err();
        assert!(matches!(changed, TransferError::Changed), "{changed:?}");
    }

    #[test]
    fn long_copies_are_cut_and_sends_left_out() {
        let ops = [
            Op::Send { to: 0, len: 5 },
            Op::Copy {
                to: 5,
                from: 1,
                len: COPY_AT_ONCE + 1,
            },
        ];
        let cut: Vec<Op> = split_copies(&ops).collect();
        assert_eq!(
            cut,
            [
                Op::Copy {
                    to: 5,
                    from: 1,
                    len: COPY_AT_ONCE
                },
                Op::Copy {
                    to: 5 + COPY_AT_ONCE,
                    from: 1 + COPY_AT_ONCE,
                    len: 1
                },
            ]
        );
    }
}
