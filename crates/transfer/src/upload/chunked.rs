//! Uploads one large file in chunks, several at a time; received chunks are kept when something breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use hyper::Method;
use paddlecloud_api::client::{Call, ClientError, Replay, TREES, Target};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{CommitRequest, FILES, FileMeta, UploadReply, UploadRequest, version_of};
use paddlecloud_pfs::content::{Buffers, CHUNK, ChunkName, Layout, name_chunk};
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Digest, FileExt, PfsPath};

use super::source;
use crate::error::unreadable;
use crate::item::Item;
use crate::mover::{Mover, attempts, blocking};
use crate::paced::PacedBody;
use crate::patience::Patience;
use crate::{Outcome, TransferError};

/// After this many failed attempts, a chunk is sent in small ranges, each of which is kept.
const WHOLE_CHUNK_TRIES: u32 = 2;
/// Bytes of such a range.
const RANGE: usize = 64 << 10;
/// Bytes that are read and then hashed: few enough to stay in a core's own cache.
const READ_AT_ONCE: usize = 256 << 10;

/// An upload of one state of a file.
pub(super) struct Sending {
    pub(super) file: Arc<File>,
    pub(super) meta: Meta,
    pub(super) remote: PfsPath,
    pub(super) layout: Layout,
}

impl Sending {
    /// Chunk names from an earlier attempt that are still valid, so that these chunks are not read again.
    ///
    /// The upload belongs to a file with the same stamp. That implies the same content if the file had not been modified for a
    /// while when its first byte was read.
    fn named_before(&self, reply: &UploadReply) -> Vec<(u64, ChunkName)> {
        let age = reply.age_ms.map(Duration::from_millis);
        let began = age.and_then(|age| SystemTime::now().checked_sub(age));
        match began {
            Some(began) if self.meta.stamp.is_settled(began.into()) => reply.names.clone(),
            _ => Vec::new(),
        }
    }

    /// The length of a chunk.
    fn len_of(&self, index: u64) -> u64 {
        self.layout.range(index).map_or(0, |(_, len)| len)
    }
}

impl Mover<'_> {
    /// Uploads one file and reports the outcome.
    pub(crate) async fn send_chunked(&self, item: Item) {
        if self.tally.is_over() {
            return self.give_up([&item], source);
        }
        match attempts(|| self.send_once(&item), should_restart).await {
            Ok(outcome) => self.tally.finished(&source(&item), outcome, item.size()),
            Err(error) => self.tally.failed(source(&item), error),
        }
    }

    async fn send_once(&self, item: &Item) -> Result<Outcome, TransferError> {
        let sending = open(item).await?;
        self.send_state(&sending, Some(item)).await
    }

    /// Sends one state of a file; without an item, the file cannot change.
    pub(super) async fn send_state(
        &self,
        sending: &Sending,
        item: Option<&Item>,
    ) -> Result<Outcome, TransferError> {
        let reply = match self.begin(&self.upload_request(sending)).await {
            Err(ClientError::Refused(body))
                if body.error == ErrorName::Conflict && self.options.no_overwrite =>
            {
                return Ok(Outcome::Kept);
            }
            other => other?,
        };
        let sent = self.send_content(item, sending, &reply).await;
        let sent = sent.map_err(|error| match error {
            // The upload was discarded, or another writer of the same file finished while this one was still reading.
            TransferError::Server(ClientError::Refused(body)) if body.error == ErrorName::NotFound => {
                TransferError::UploadGone
            }
            error => error,
        });
        if matches!(sent, Err(TransferError::Changed)) {
            // It cannot be resumed and holds its reservation. If it cannot be discarded now, it expires.
            let _ = self.files.give_up(&reply.id).await;
        }
        self.commit(sending, &reply.id, sent?).await
    }

    /// Sends all missing chunks of one state of the file and returns the digest of the whole.
    async fn send_content(
        &self,
        item: Option<&Item>,
        sending: &Sending,
        reply: &UploadReply,
    ) -> Result<Digest, TransferError> {
        let (mut names, missing) = match self.reuse_old_parts(sending, reply).await? {
            Some(names) => (names, self.missing(&reply.id).await?),
            None => (BTreeMap::new(), reply.missing.clone()),
        };
        for (index, name) in sending.named_before(reply) {
            self.tally.reused(sending.len_of(index));
            names.insert(index, name);
        }
        let digest = self.send_missing(sending, &reply.id, &missing, names).await?;
        if let Some(item) = item {
            self.check_unchanged(item, sending).await?;
        }
        Ok(digest)
    }

    fn upload_request(&self, sending: &Sending) -> UploadRequest {
        let mut key = blake3::Hasher::new();
        key.update(sending.remote.to_string().as_bytes());
        key.update(version_of(&sending.meta.stamp).as_bytes());
        UploadRequest {
            path: (&sending.remote).into(),
            size: sending.meta.size,
            executable: sending.meta.executable,
            mtime: Some(sending.meta.mtime),
            key: key.finalize().to_hex()[..32].to_owned(),
            no_overwrite: self.options.no_overwrite,
        }
    }

    async fn begin(&self, request: &UploadRequest) -> Result<UploadReply, ClientError> {
        let _permit = self.permit().await;
        // The same key gives the same upload, so a repeated request is harmless.
        self.files.post("uploads", request, Replay::Safe).await
    }

    /// Sends every missing chunk and returns the digest of the whole file.
    ///
    /// Chunks that the server has are only read to name them; known names are not computed again.
    pub(super) async fn send_missing(
        &self,
        sending: &Sending,
        id: &StagedId,
        missing: &[(u64, u64)],
        known: BTreeMap<u64, ChunkName>,
    ) -> Result<Digest, TransferError> {
        let missing_chunks: BTreeSet<u64> = missing
            .iter()
            .flat_map(|(from, to)| from / CHUNK..to.div_ceil(CHUNK))
            .collect();
        let names = Mutex::new(known);
        let work = (0..sending.layout.count()).map(|index| {
            let (names, missing_chunks) = (&names, &missing_chunks);
            async move {
                if missing_chunks.contains(&index) {
                    let name = self.send_chunk(sending, id, index).await?;
                    names.lock().expect("nobody panics with it").insert(index, name);
                } else {
                    let is_known = names.lock().expect("nobody panics with it").contains_key(&index);
                    if !is_known {
                        let name = self.name(sending, index).await?;
                        names.lock().expect("nobody panics with it").insert(index, name);
                    }
                }
                Ok::<(), TransferError>(())
            }
        });
        futures_util::stream::iter(work)
            .buffer_unordered(self.options.transfers.get())
            .try_collect::<()>()
            .await?;
        let names: Vec<ChunkName> = names
            .into_inner()
            .expect("nobody panics with it")
            .into_values()
            .collect();
        sending.layout.combine(&names).ok_or(TransferError::Changed)
    }

    async fn name(&self, sending: &Sending, index: u64) -> Result<ChunkName, TransferError> {
        let _permit = self.permit().await;
        let (file, layout) = (sending.file.clone(), sending.layout);
        let named = blocking(move || name_chunk(&file, layout, index)).await;
        let name = named.map_err(unreadable)?.ok_or(TransferError::Changed)?;
        self.tally.reused(sending.len_of(index));
        Ok(name)
    }

    async fn send_chunk(
        &self,
        sending: &Sending,
        id: &StagedId,
        index: u64,
    ) -> Result<ChunkName, TransferError> {
        let _permit = self.permit().await;
        let mut patience = Patience::new(self.files.client);
        let (mut chunk, mut sent) = self.send_whole(sending, id, index, None).await?;
        let mut whole_chunk = true;
        while let Err(error) = sent {
            patience.after(error).await?;
            // Ranges that arrive renew the patience, but the network has not become better.
            whole_chunk &= patience.tries() <= WHOLE_CHUNK_TRIES;
            if whole_chunk {
                (chunk, sent) = self.send_whole(sending, id, index, Some(chunk)).await?;
            } else {
                let (offset, _) = sending.layout.range(index).expect("a chunk of this file");
                sent = self.send_ranges(id, offset, &chunk.bytes, &mut patience).await;
            }
        }
        Ok(chunk.name)
    }

    /// Sends a chunk once. One thread reads, hashes and sends it.
    async fn send_whole(
        &self,
        sending: &Sending,
        id: &StagedId,
        index: u64,
        chunk: Option<Chunk>,
    ) -> Result<(Chunk, Result<(), ClientError>), TransferError> {
        let (file, layout, throttle) = (sending.file.clone(), sending.layout, self.throttle.clone());
        let target = upload_target(id).word("chunks").word(&index.to_string());
        let mut flow = self.tally.flow(sending.len_of(index));
        let done = self.aside(&mut flow, async move |client, moved| {
            let chunk = match chunk {
                Some(chunk) => chunk,
                None => read_chunk(&file, layout, index)?,
            };
            let call = Call::new(Method::PUT, target.pair("name", chunk.name).into_string());
            let body = PacedBody::whole(chunk.bytes.clone(), throttle).counted_by(moved);
            let sent = client.send_body(&call, body.boxed_unsync(), moved).await;
            Ok::<_, TransferError>((chunk, sent.map(drop)))
        });
        let (chunk, sent) = done.await??;
        if sent.is_err() {
            flow.broke_but(0);
        }
        Ok((chunk, sent))
    }

    /// Sends the missing parts of a range in pieces small enough for any connection.
    pub(super) async fn send_ranges(
        &self,
        id: &StagedId,
        offset: u64,
        bytes: &Bytes,
        patience: &mut Patience<'_>,
    ) -> Result<(), ClientError> {
        let end = offset + bytes.len() as u64;
        for (from, to) in self.missing(id).await? {
            let (mut from, to) = (from.max(offset), to.min(end));
            while from < to {
                let next = to.min(from + RANGE as u64);
                let slice = bytes.slice((from - offset) as usize..(next - offset) as usize);
                self.send_range(id, from, slice).await?;
                patience.renew();
                from = next;
            }
        }
        Ok(())
    }

    pub(super) async fn send_range(
        &self,
        id: &StagedId,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), ClientError> {
        let target = upload_target(id)
            .word("ranges")
            .pair("offset", offset)
            .pair("len", bytes.len());
        let call = Call::new(Method::PUT, target.into_string());
        let body = PacedBody::whole(bytes, self.throttle.clone());
        self.send(&call, body).await.map(drop)
    }

    pub(super) async fn missing(&self, id: &StagedId) -> Result<Vec<(u64, u64)>, ClientError> {
        let reply: UploadReply = self.files.get(upload_target(id)).await?;
        Ok(reply.missing)
    }

    /// Checks that the file is still in the state that was sent.
    async fn check_unchanged(&self, item: &Item, sending: &Sending) -> Result<(), TransferError> {
        let (root, path) = (item.tree.local.clone(), item.local.clone());
        let now = blocking(move || root.stat(&path)).await?;
        match now.stamp == sending.meta.stamp {
            true => Ok(()),
            false => Err(TransferError::Changed),
        }
    }

    async fn commit(
        &self,
        sending: &Sending,
        id: &StagedId,
        digest: Digest,
    ) -> Result<Outcome, TransferError> {
        let body = CommitRequest {
            digest,
            no_overwrite: self.options.no_overwrite,
        };
        let call = Call::post(upload_target(id).word("commit"), &body).replay(Replay::Safe);
        // Syncing a large file to a slow disk takes a while, and sending it on to a remote store longer.
        let call = call.lasting(TREES);
        let _permit = self.permit().await;
        match self.files.message::<FileMeta>(&call).await {
            Ok(_) => Ok(Outcome::Transferred),
            Err(ClientError::Refused(body))
                if body.error == ErrorName::Conflict && self.options.no_overwrite =>
            {
                Ok(Outcome::Kept)
            }
            // Either the reply to an earlier attempt was lost and the file was published, or the upload was discarded.
            Err(ClientError::Refused(body)) if body.error == ErrorName::NotFound => {
                match self.has_content(&sending.remote, digest).await {
                    true => Ok(Outcome::Transferred),
                    false => Err(TransferError::UploadGone),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a file has this content. The server knows the digest of a file it has just stored without reading it.
    async fn has_content(&self, path: &PfsPath, digest: Digest) -> bool {
        let has_it =
            |there: Result<FileMeta, ClientError>| there.is_ok_and(|there| there.digest == Some(digest));
        has_it(self.files.stat_known(path).await) || has_it(self.files.stat_digest(path).await)
    }
}

/// Whether starting over may help.
pub(super) fn should_restart(error: &TransferError) -> bool {
    match error {
        TransferError::Changed | TransferError::UploadGone => true,
        TransferError::Server(error) => {
            matches!(error.refusal(), Some(ErrorName::Damaged | ErrorName::Changing))
        }
        _ => false,
    }
}

pub(super) fn upload_target(id: &StagedId) -> Target {
    Target::new(FILES).word("uploads").word(&id.to_string())
}

async fn open(item: &Item) -> Result<Sending, TransferError> {
    let (root, path) = (item.tree.local.clone(), item.local.clone());
    let (file, meta) = blocking(move || root.open_file_no_links(&path)).await?;
    Ok(Sending {
        layout: Layout::of(meta.size),
        file: Arc::new(file),
        meta,
        remote: item.remote_path()?,
    })
}

/// Buffers for outgoing chunks; as many are kept as requests usually run at a time.
static CHUNKS: Buffers = Buffers::new(CHUNK as usize, 4);

/// A chunk in memory.
struct Chunk {
    bytes: Bytes,
    name: ChunkName,
}

/// Reads a chunk and names it. Each part is hashed while it is in the core's cache.
fn read_chunk(file: &File, layout: Layout, index: u64) -> Result<Chunk, TransferError> {
    let (offset, len) = layout.range(index).ok_or(TransferError::Changed)?;
    let mut hasher = layout.hasher(index);
    let mut chunk = CHUNKS.take();
    let mut done = 0;
    while done < len {
        let step = READ_AT_ONCE.min(usize::try_from(len - done).unwrap_or(READ_AT_ONCE));
        let read = chunk.fill(step, |space| file.read_at(space, offset + done));
        match read {
            Ok([]) => return Err(TransferError::Changed),
            Ok(bytes) => {
                hasher.update(bytes);
                done += bytes.len() as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    Ok(Chunk {
        bytes: Bytes::from_owner(chunk),
        name: hasher.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(folder: &tempfile::TempDir) -> Sending {
        std::fs::write(folder.path().join("file"), b"content").unwrap();
        let root = paddlecloud_pfs::Root::open(folder.path()).unwrap();
        let (file, meta) = root.open_file_no_links(&"file".parse().unwrap()).unwrap();
        Sending {
            layout: Layout::of(meta.size),
            file: Arc::new(file),
            meta,
            remote: "/pfs/dc/home/me/file".parse().unwrap(),
        }
    }

    #[test]
    fn names_of_an_earlier_try_hold_only_if_the_file_had_settled_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut sending = sending(&folder);
        let reply = UploadReply {
            id: "a".repeat(32).parse().unwrap(),
            missing: Vec::new(),
            old_size: None,
            names: vec![(0, ChunkName::from_bytes([1; 32]))],
            age_ms: Some(60_000),
        };
        assert_eq!(sending.named_before(&reply), [], "it changed after the try began");
        let long_ago = SystemTime::now() - Duration::from_secs(63);
        (sending.meta.stamp.mtime, sending.meta.stamp.ctime) = (long_ago.into(), long_ago.into());
        assert_eq!(sending.named_before(&reply), reply.names);
        let just_before = SystemTime::now() - Duration::from_secs(60);
        sending.meta.stamp.ctime = just_before.into();
        assert_eq!(sending.named_before(&reply), [], "it may have changed unseen");
    }
}
