//! A new file in HDFS: written in order under a temporary name, published by one rename.

use bytes::Bytes;
use hdfs_native::WriteOptions;
use hdfs_native::file::FileWriter;
use paddlecloud_pfs::root::{FileAttributes, Meta};
use paddlecloud_pfs::store::NewFile;
use paddlecloud_pfs::{Existing, Place, RootError};

use super::drafts::Draft;
use super::failure::storage_error;
use super::slots::Slot;
use super::{HdfsStore, STAGING};
use crate::waiting::timed_out;

/// The usual block size, and the unit in which ours may differ from it.
const BLOCK: u64 = 128 << 20;
const GRAIN: u64 = 512;
/// The number of block sizes to choose from: up to 32 MiB above the usual one.
const SIZES: u64 = 1 << 16;

/// Leaves a time unchanged: -1 for the name node. Clusters that record no access times refuse any other value.
const AS_IT_IS: u64 = u64::MAX;

/// A draft of a file; removed if it is dropped unpublished.
pub(super) struct NewHdfsFile {
    store: HdfsStore,
    place: Place,
    target: String,
    draft: Draft,
    attributes: FileAttributes,
    writer: Option<FileWriter>,
    published: bool,
    /// The slot is released after the draft is removed.
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
        // Times are the sender's, so a new version may have the time and size of the old one, and the client does not expose inode
        // numbers. The block size is visible, survives renames and is ours to choose, so it identifies the version.
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
        })?;
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

    /// Moves the writer into the runtime for one call, and back.
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
        written.map_err(|error| storage_error(action, &self.place.path, error))
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
            // After the rename another file could replace it immediately. The draft is ours, and a rename does not change it.
            let status = client.get_file_info(&draft).await?;
            client
                .rename(&draft, &target, existing == Existing::Replace)
                .await?;
            Ok(status)
        });
        let status = named?;
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
        // The error has no receiver here; the sweep removes what is left.
        let removed = self
            .store
            .0
            .waiter
            .wait(async move { client.delete(&draft, false).await });
        drop(removed);
    }
}
