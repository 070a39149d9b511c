//! A new file in HDFS: written in order under a temporary name, published by one rename.

use bytes::Bytes;
use hdfs_native::WriteOptions;
use hdfs_native::file::FileWriter;
use paddlecloud_pfs::root::{FileAttributes, Meta};
use paddlecloud_pfs::store::NewFile;
use paddlecloud_pfs::{Existing, Place, RootError};

use super::drafts::Draft;
use super::failure::told;
use super::slots::Slot;
use super::{HdfsStore, STAGING};
use crate::waiting::timed_out;

/// Bytes of a block, as most clusters have it, and the grain in which it may differ.
const BLOCK: u64 = 128 << 20;
const GRAIN: u64 = 512;
/// How many block sizes there are to choose from: up to 32 MiB more than usual.
const SIZES: u64 = 1 << 16;
/// What a cluster sets aside for one copy of a file that is being written, at most.
pub(super) const LARGEST_BLOCK: u64 = BLOCK + GRAIN * (SIZES - 1);

/// Leaves a time alone: minus one for the name node. Clusters that keep no times of access refuse any other.
const AS_IT_IS: u64 = u64::MAX;

/// A file on its way; dropped unpublished, it is removed.
pub(super) struct NewHdfsFile {
    store: HdfsStore,
    place: Place,
    target: String,
    draft: Draft,
    attributes: FileAttributes,
    writer: Option<FileWriter>,
    published: bool,
    /// Others wait for it until nothing of the draft is left.
    _slot: Slot,
}

impl NewHdfsFile {
    pub(super) fn begin(
        store: &HdfsStore,
        place: &Place,
        target: String,
        attributes: FileAttributes,
    ) -> Result<NewHdfsFile, RootError> {
        let slot = store.0.slots.take();
        let mark = uuid::Uuid::new_v4();
        let draft = format!("{}/{STAGING}/{}", store.space_key(&place.space), mark.simple());
        let draft = store.0.drafts.hold(draft);
        // Times are the sender's, so a new version may have the time and size of the old one, and the cluster's client does
        // not tell a file's number. The block size is told, kept across renames and free to choose: it is the mark.
        let block = BLOCK + GRAIN * (mark.as_u128() as u64 % SIZES);
        let mut options = WriteOptions::default()
            .permission(if attributes.executable { 0o755 } else { 0o644 })
            .block_size(block)
            .create_parent(true);
        if let Some(replication) = store.0.replication {
            options = options.replication(replication);
        }
        let name = draft.path.clone();
        let writer = store.ask("begin", &place.path, move |client| async move {
            client.create(&name, options).await
        });
        let writer = writer.map_err(|error| store.explain(&place.space, error))?;
        Ok(NewHdfsFile {
            store: store.clone(),
            place: place.clone(),
            target,
            draft,
            attributes,
            writer: Some(writer),
            published: false,
            _slot: slot,
        })
    }

    /// Lends the writer to the runtime and takes it back.
    fn write<F, W>(&mut self, action: &'static str, work: F) -> Result<(), RootError>
    where
        F: FnOnce(FileWriter) -> W,
        W: Future<Output = (FileWriter, hdfs_native::Result<()>)> + Send + 'static,
    {
        let gone = || RootError::Unreachable {
            path: self.place.path.clone(),
            source: timed_out(),
        };
        let writer = self.writer.take().ok_or_else(gone)?;
        let (writer, written) = self.store.0.waiter.wait(work(writer)).ok_or_else(gone)?;
        self.writer = Some(writer);
        let told = |error| self.explained(told(action, &self.place.path, error));
        written.map_err(told)
    }

    fn explained(&self, error: RootError) -> RootError {
        self.store.explain(&self.place.space, error)
    }
}

impl NewFile for NewHdfsFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), RootError> {
        let bytes = Bytes::copy_from_slice(bytes);
        self.write("write", move |mut writer| async move {
            let written = writer.write_bytes(bytes).await.map(drop);
            (writer, written)
        })
    }

    fn publish(mut self: Box<Self>, existing: Existing) -> Result<Meta, RootError> {
        self.write("finish", move |mut writer| async move {
            let closed = writer.close().await;
            (writer, closed)
        })?;
        let (draft, target, path) = (
            self.draft.path.clone(),
            self.target.clone(),
            self.place.path.clone(),
        );
        let mtime = self
            .attributes
            .mtime
            .map(|mtime| mtime.as_nanos().max(0) as u64 / 1_000_000);
        let named = self.store.ask("publish", &path, move |client| async move {
            if let Some(mtime) = mtime {
                client.set_times(&draft, mtime, AS_IT_IS).await?;
            }
            // Once it has its name, another file may take that at once; the draft is ours, and stays as it is when it moves.
            let status = client.get_file_info(&draft).await?;
            client
                .rename(&draft, &target, existing == Existing::Replace)
                .await?;
            Ok(status)
        });
        let status = named.map_err(|error| self.explained(error))?;
        self.published = true;
        Ok(self.store.meta(&status))
    }
}

impl Drop for NewHdfsFile {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        let (client, draft) = (self.store.0.client.clone(), self.draft.path.clone());
        // Nobody to tell here; what stays behind is swept with other drafts.
        let removed = self
            .store
            .0
            .waiter
            .wait(async move { client.delete(&draft, false).await });
        drop(removed);
    }
}
