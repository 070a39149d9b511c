//! A new object: one request when it is small, parts when it is not. It is seen when it is complete, never before.

use bytes::BytesMut;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, MultipartUpload, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
};
use paddlecloud_pfs::root::{FileAttributes, Meta};
use paddlecloud_pfs::store::{FileStore, NewFile};
use paddlecloud_pfs::{Existing, Place, RootError};

use super::{EXECUTABLE, MTIME, S3Store};

/// Bytes of a part; a service takes ten thousand, so later ones are larger.
const PART: usize = 8 << 20;
const LARGER_AFTER: usize = 1000;
const LARGE_PART: usize = 128 << 20;

type Upload = Box<dyn MultipartUpload>;

/// An object on its way; dropped unpublished, nothing of it stays.
pub(super) struct NewObject {
    store: S3Store,
    place: Place,
    key: Key,
    attributes: Attributes,
    waiting: BytesMut,
    upload: Option<Upload>,
    parts: usize,
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
            attributes,
            waiting: BytesMut::new(),
            upload: None,
            parts: 0,
        }
    }

    fn part_size(&self) -> usize {
        match self.parts < LARGER_AFTER {
            true => PART,
            false => LARGE_PART,
        }
    }

    fn send_part(&mut self) -> Result<(), RootError> {
        let mut upload = match self.upload.take() {
            Some(upload) => upload,
            None => self.begin_parts()?,
        };
        let payload = PutPayload::from(self.waiting.split().freeze());
        self.parts += 1;
        let part = upload.put_part(payload);
        self.upload = Some(upload);
        self.store.ask("write", &self.place.path, move |_| part)
    }

    fn begin_parts(&self) -> Result<Upload, RootError> {
        let options = PutMultipartOptions::from(self.attributes.clone());
        let key = self.key.clone();
        self.store
            .ask("begin", &self.place.path, move |client| async move {
                client.put_multipart_opts(&key, options).await
            })
    }

    fn put_whole(&mut self, existing: Existing) -> Result<(), RootError> {
        let options = PutOptions {
            mode: match existing {
                Existing::Keep => PutMode::Create,
                Existing::Replace => PutMode::Overwrite,
            },
            attributes: self.attributes.clone(),
            ..PutOptions::default()
        };
        let (key, payload) = (self.key.clone(), PutPayload::from(self.waiting.split().freeze()));
        self.store
            .ask("publish", &self.place.path, move |client| async move {
                client.put_opts(&key, payload, options).await.map(drop)
            })
    }
}

impl NewFile for NewObject {
    fn append(&mut self, bytes: &[u8]) -> Result<(), RootError> {
        self.waiting.extend_from_slice(bytes);
        match self.waiting.len() >= self.part_size() {
            true => self.send_part(),
            false => Ok(()),
        }
    }

    fn publish(mut self: Box<Self>, existing: Existing) -> Result<Meta, RootError> {
        self.store.check_place(&self.place, existing)?;
        if self.upload.is_none() {
            self.put_whole(existing)?;
        } else {
            if !self.waiting.is_empty() {
                self.send_part()?;
            }
            let mut upload = self.upload.take().expect("parts were sent");
            self.store.ask("publish", &self.place.path, move |_| async move {
                upload.complete().await.map(drop)
            })?;
        }
        self.store.stat(&self.place)
    }
}

impl Drop for NewObject {
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            self.store.0.waiter.leave(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "parts of an upload stay behind");
                }
            });
        }
    }
}
