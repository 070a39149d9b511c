//! Reads objects: their metadata, and their bytes at any offset.

use std::io;

use object_store::path::Path as Key;
use object_store::{Attribute, GetOptions, GetResult, ObjectStore};
use paddlecloud_pfs::root::{FileAttributes, Kind, Meta, Stamp};
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Mtime, Source};

use super::{EXECUTABLE, MTIME, S3Store};
use crate::read_ahead::ReadAhead;
use crate::waiting::timed_out;

/// An open object: every read requests the version that was opened.
pub(super) struct OpenObject {
    store: S3Store,
    key: Key,
    tag: Option<String>,
    ahead: ReadAhead,
    meta: Meta,
}

impl OpenObject {
    pub(super) fn new(store: &S3Store, key: Key, found: GetResult) -> OpenObject {
        OpenObject {
            store: store.clone(),
            meta: meta_of(&found),
            tag: found.meta.e_tag,
            ahead: ReadAhead::default(),
            key,
        }
    }
}

impl Source for OpenObject {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ahead.read_at(buffer, offset, self.meta.size, |offset, len| {
            let options = GetOptions::new()
                .with_range(Some(offset..offset + len))
                .with_if_match(self.tag.clone());
            let (client, key) = (self.store.0.client.clone(), self.key.clone());
            let tag = self.tag.clone();
            let read = async move {
                let found = client.get_opts(&key, options).await?;
                // Not every service honours the condition.
                match found.meta.e_tag == tag {
                    true => found.bytes().await.map(Some),
                    false => Ok(None),
                }
            };
            let read = self.store.0.waiter.wait(read).ok_or_else(timed_out)?;
            let read = read.map_err(io::Error::other)?;
            read.ok_or_else(|| io::Error::other("it was replaced while it was read"))
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.meta.size)
    }
}

impl ReadAt for OpenObject {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// Kind, size and times of an object, from its metadata.
pub(super) fn meta_of(found: &GetResult) -> Meta {
    let kept = |name: &'static str| found.attributes.get(&Attribute::Metadata(name.into()));
    let changed = &found.meta.last_modified;
    let changed = Mtime::new(changed.timestamp(), changed.timestamp_subsec_nanos());
    let mtime = kept(MTIME).and_then(|text| AsRef::<str>::as_ref(text).parse().ok());
    let mtime = mtime.map_or(changed, Mtime::from_nanos);
    Meta {
        kind: Kind::File,
        size: found.meta.size,
        mtime,
        executable: kept(EXECUTABLE).is_some(),
        stamp: Stamp {
            device: 0,
            inode: number_of(found.meta.e_tag.as_deref().unwrap_or_default()),
            size: found.meta.size,
            mtime,
            ctime: changed,
        },
    }
}

/// The same for an object that was written and already replaced by another. Its time of creation is unknown, so its stamp matches
/// nothing.
pub(super) fn replaced_meta(tag: Option<&str>, size: u64, kept: FileAttributes) -> Meta {
    let mtime = kept.mtime.unwrap_or_default();
    Meta {
        kind: Kind::File,
        size,
        mtime,
        executable: kept.executable,
        stamp: Stamp {
            device: 0,
            inode: number_of(tag.unwrap_or_default()),
            size,
            mtime,
            ctime: Mtime::default(),
        },
    }
}

/// Folders have no times.
pub(super) fn folder_meta() -> Meta {
    Meta {
        kind: Kind::Dir,
        size: 0,
        mtime: Mtime::default(),
        executable: false,
        stamp: Stamp {
            device: 0,
            inode: 0,
            size: 0,
            mtime: Mtime::default(),
            ctime: Mtime::default(),
        },
    }
}

fn number_of(tag: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    hasher.finish()
}
