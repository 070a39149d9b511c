//! A new object: one request when it is small, parts when it is not. It is seen when it is complete, never before.

use bytes::BytesMut;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
};
use paddlecloud_pfs::root::{FileAttributes, Meta};
use paddlecloud_pfs::store::{FileStore, NewFile};
use paddlecloud_pfs::{Existing, Place, RelPath, RootError};

use super::begun::Note;
use super::{EXECUTABLE, MTIME, S3Store};

/// Bytes of a part; a service takes ten thousand, so later ones are larger.
const PART: usize = 8 << 20;
const LARGER_AFTER: usize = 1000;
const LARGE_PART: usize = 128 << 20;

/// An object on its way; dropped unpublished, nothing of it stays.
pub(super) struct NewObject {
    store: S3Store,
    place: Place,
    key: Key,
    attributes: Attributes,
    waiting: BytesMut,
    upload: Option<Note>,
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
            attributes,
            waiting: BytesMut::new(),
            upload: None,
            parts: Vec::new(),
        }
    }

    fn part_size(&self) -> usize {
        match self.parts.len() < LARGER_AFTER {
            true => PART,
            false => LARGE_PART,
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
        let part = self
            .store
            .ask("write", &self.place.path, move |client| async move {
                client.put_part(&key, &id, number, payload).await
            })?;
        self.parts.push(part);
        Ok(())
    }

    fn begin_parts(&self) -> Result<Note, RootError> {
        let options = PutMultipartOptions::from(self.attributes.clone());
        let key = self.key.clone();
        let id = self
            .store
            .ask("begin", &self.place.path, move |client| async move {
                client.create_multipart_opts(&key, options).await
            })?;
        self.store.0.begun.note(&self.key, &id).map_err(|error| {
            self.store.give_up_later(&self.key, &id, None);
            not_noted("note the upload of", &self.place.path, error)
        })
    }

    fn complete(&mut self, id: String) -> Result<(), RootError> {
        let (key, parts) = (self.key.clone(), std::mem::take(&mut self.parts));
        self.store
            .ask("publish", &self.place.path, move |client| async move {
                client.complete_multipart(&key, &id, parts).await.map(drop)
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
            let id = self.upload.as_ref().expect("parts were sent").id.clone();
            self.complete(id)?;
            self.upload.take().expect("it was there").forget();
        }
        self.store.stat(&self.place)
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
    /// Gives an upload up without anybody waiting for it. Its note goes once that is done.
    fn give_up_later(&self, key: &Key, id: &str, note: Option<Note>) {
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

    /// Gives up what an earlier server had begun.
    pub(super) fn give_up_left_over(&self) -> Result<u64, RootError> {
        let top = RelPath::root();
        let left = self.0.begun.left();
        let left = left.map_err(|error| not_noted("read notes of uploads below", &top, error))?;
        let mut count = 0;
        for note in left {
            let (key, id) = (note.key.clone(), note.id.clone());
            let given_up = self.ask("give up an upload below", &top, move |client| async move {
                client.abort_multipart(&key, &id).await
            });
            match given_up {
                Ok(()) | Err(RootError::NotFound(_)) => note.forget(),
                Err(error) => return Err(error),
            }
            count += 1;
        }
        Ok(count)
    }
}

fn not_noted(action: &'static str, path: &RelPath, source: std::io::Error) -> RootError {
    RootError::Io {
        action,
        path: path.clone(),
        source,
    }
}
