//! Writes a new object: one request if it is small, a multipart upload otherwise. It is visible only when it is complete.

use bytes::BytesMut;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
};
use paddlecloud_pfs::root::{FileAttributes, Meta};
use paddlecloud_pfs::store::NewFile;
use paddlecloud_pfs::{Existing, Place, RelPath, RootError};

use super::http::{time_to_move, time_to_send};
use super::moving::bare;
use super::reading::{meta_of, replaced_meta};
use super::upload_records::UploadRecord;
use super::{EXECUTABLE, MTIME, S3Store};

/// The size of a part. A service accepts ten thousand parts, so later ones are larger: the size doubles after every
/// 250, up to 128 MiB, because a part is held in memory.
const PART: usize = 8 << 20;
const LARGER_AFTER: usize = 250;
const MOST_DOUBLED: usize = 4;

/// An object being written; removed if it is dropped unpublished.
pub(super) struct NewObject {
    store: S3Store,
    place: Place,
    key: Key,
    kept: FileAttributes,
    attributes: Attributes,
    waiting: BytesMut,
    /// Bytes appended so far.
    size: u64,
    upload: Option<UploadRecord>,
    parts: Vec<PartId>,
}

impl NewObject {
    pub(super) fn new(store: &S3Store, place: &Place, key: Key, kept: FileAttributes) -> NewObject {
        let mut attributes = Attributes::new();
        if let Some(mtime) = kept.mtime {
            attributes.insert(
                Attribute::Metadata(MTIME.into()),
                mtime.as_nanos().to_string().into(),
            );
        }
        if kept.executable {
            attributes.insert(Attribute::Metadata(EXECUTABLE.into()), "1".into());
        }
        NewObject {
            store: store.clone(),
            place: place.clone(),
            key,
            kept,
            attributes,
            waiting: BytesMut::new(),
            size: 0,
            upload: None,
            parts: Vec::new(),
        }
    }

    fn send_part(&mut self) -> Result<(), RootError> {
        let id = match &self.upload {
            Some(upload) => upload.id.clone(),
            None => {
                let upload = self.begin_parts()?;
                self.upload.insert(upload).id.clone()
            }
        };
        let payload = PutPayload::from(self.waiting.split().freeze());
        let (key, number) = (self.key.clone(), self.parts.len());
        let more = time_to_send(payload.content_length() as u64);
        let part = self
            .store
            .ask_longer(more, "write", &self.place.path, move |client| async move {
                client.put_part(&key, &id, number, payload).await
            })?;
        self.parts.push(part);
        Ok(())
    }

    fn begin_parts(&self) -> Result<UploadRecord, RootError> {
        let options = PutMultipartOptions::from(self.attributes.clone());
        let key = self.key.clone();
        let id = self
            .store
            .ask("begin", &self.place.path, move |client| async move {
                client.create_multipart_opts(&key, options).await
            })?;
        self.store.0.upload_records.note(&self.key, &id).map_err(|error| {
            self.store.give_up_later(&self.key, &id, None);
            not_noted("note the upload of", &self.place.path, error)
        })
    }

    /// Sends the rest, publishes the object and returns its tag.
    pub(super) fn send(&mut self, existing: Existing) -> Result<Option<String>, RootError> {
        if self.upload.is_none() {
            return self.put_whole(existing);
        }
        if !self.waiting.is_empty() {
            self.send_part()?;
        }
        let tag = self.complete(existing)?;
        self.upload.take().expect("parts were sent").forget();
        Ok(tag)
    }

    fn complete(&mut self, existing: Existing) -> Result<Option<String>, RootError> {
        let id = self.upload.as_ref().expect("parts were sent").id.clone();
        let (key, parts) = (self.key.clone(), std::mem::take(&mut self.parts));
        self.store.check_nothing_to_keep(&self.place, existing)?;
        let more = time_to_move(self.size);
        let done = self
            .store
            .ask_longer(more, "publish", &self.place.path, move |client| async move {
                client.complete_multipart(&key, &id, parts).await
            })?;
        Ok(done.e_tag)
    }

    /// The metadata of the object with this tag. Under its name there may already be another one.
    pub(super) fn published(&self, tag: Option<&str>) -> Result<Meta, RootError> {
        // Not every service replaces an object and its tag atomically.
        let is_ours =
            |found: &ObjectMeta| found.e_tag.as_deref().map(bare) == tag.map(bare) && found.size == self.size;
        Ok(match self.store.head(&self.place)? {
            Some(found) if is_ours(&found.meta) => meta_of(&found),
            _ => replaced_meta(tag, self.size, self.kept),
        })
    }

    fn put_whole(&mut self, existing: Existing) -> Result<Option<String>, RootError> {
        let options = PutOptions {
            mode: match existing {
                Existing::Keep => PutMode::Create,
                Existing::Replace => PutMode::Overwrite,
            },
            attributes: self.attributes.clone(),
            ..PutOptions::default()
        };
        let (key, payload) = (self.key.clone(), PutPayload::from(self.waiting.split().freeze()));
        let more = time_to_send(self.size);
        let done = self
            .store
            .ask_longer(more, "publish", &self.place.path, move |client| async move {
                client.put_opts(&key, payload, options).await
            })?;
        Ok(done.e_tag)
    }
}

impl NewFile for NewObject {
    fn append(&mut self, bytes: &[u8]) -> Result<(), RootError> {
        self.waiting.extend_from_slice(bytes);
        self.size += bytes.len() as u64;
        match self.waiting.len() >= part_size(self.parts.len()) {
            true => self.send_part(),
            false => Ok(()),
        }
    }

    fn publish(mut self: Box<Self>, existing: Existing) -> Result<Meta, RootError> {
        self.store.check_place(&self.place, existing)?;
        let tag = self.send(existing)?;
        self.published(tag.as_deref())
    }
}

impl Drop for NewObject {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            let (key, id) = (upload.key.clone(), upload.id.clone());
            self.store.give_up_later(&key, &id, Some(upload));
        }
    }
}

impl S3Store {
    /// Aborts an upload in the background and then removes its record.
    fn give_up_later(&self, key: &Key, id: &str, note: Option<UploadRecord>) {
        let (client, key, id) = (self.0.client.clone(), key.clone(), id.to_owned());
        self.0.waiter.leave(async move {
            match client.abort_multipart(&key, &id).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {
                    if let Some(note) = note {
                        note.forget();
                    }
                }
                Err(error) => tracing::warn!(%error, "parts of an upload stay for the next sweep"),
            }
        });
    }

    /// Aborts an upload of an earlier server.
    pub(super) fn abort_left_over(&self) -> Result<u64, RootError> {
        let top = RelPath::root();
        let left = self.0.upload_records.left();
        let left = left.map_err(|error| not_noted("read notes of uploads below", &top, error))?;
        let mut count = 0;
        for note in left {
            let (key, id) = (note.key.clone(), note.id.clone());
            let aborted = self.ask("give up an upload below", &top, move |client| async move {
                client.abort_multipart(&key, &id).await
            });
            match aborted {
                Ok(()) | Err(RootError::NotFound(_)) => note.forget(),
                Err(error) => return Err(error),
            }
            count += 1;
        }
        Ok(count)
    }
}

/// The size of the part with this number.
fn part_size(parts: usize) -> usize {
    PART << (parts / LARGER_AFTER).min(MOST_DOUBLED)
}

fn not_noted(action: &'static str, path: &RelPath, source: std::io::Error) -> RootError {
    RootError::Io {
        action,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_slowly_and_reach_a_large_object() {
        let sizes: Vec<usize> = (0..10_000).map(part_size).collect();
        assert!(
            sizes
                .windows(2)
                .all(|pair| pair[0] <= pair[1] && pair[1] <= 2 * pair[0])
        );
        assert_eq!((sizes[0], sizes[9_999]), (8 << 20, 128 << 20));
        assert!(
            sizes.iter().sum::<usize>() > 1_200_000_000_000,
            "as the guide says"
        );
    }
}
