//! Files as objects of an S3-compatible service.
//!
//! A file is one object; its time and executable bit are metadata. A folder is a common prefix of keys; an empty one has an object
//! called `.pfs-folder`. There is no rename: a move copies and then removes, and others can see the steps.

mod connecting;
mod http;
mod keys;
mod listing;
mod moving;
mod reading;
#[cfg(test)]
mod tests;
mod upload_records;
mod writing;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, ObjectStore, ObjectStoreExt};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{DirEntry, FileAttributes, Meta, Usage};
use paddlecloud_pfs::store::{FileStore, NameRule, NewFile, ReadAt, StoreLimits};
use paddlecloud_pfs::{Existing, Place, RelPath, Root, RootError, Space};

use self::connecting::{client, storage_error};
use self::keys::{Keys, MARKER};
use self::reading::{OpenObject, folder_meta, meta_of};
use self::upload_records::UploadRecords;
use self::writing::NewObject;
use crate::tree::for_each;
use crate::waiting::{Waiter, timed_out};
use crate::{OpenError, S3Settings};

/// How often a request is retried.
const RETRIES: usize = 4;
/// Objects that are queried, written or copied at the same time.
const AT_ONCE: usize = 16;

/// The keys of our metadata on objects.
const MTIME: &str = "pfs-mtime";
const EXECUTABLE: &str = "pfs-executable";

/// A bucket, and the service's prefix in it.
#[derive(Clone)]
pub struct S3Store(Arc<Inner>);

struct Inner {
    client: AmazonS3,
    /// The same client without retries.
    quick: AmazonS3,
    waiter: Waiter,
    keys: Keys,
    upload_records: UploadRecords,
    /// Keys per page of a listing; set by tests only, otherwise the service decides.
    page: Option<usize>,
    name: String,
}

impl S3Store {
    /// Connects and reads from the bucket. Multipart uploads are recorded in a local folder.
    pub fn open(settings: &S3Settings, notes: &Path) -> Result<S3Store, OpenError> {
        let name = settings.to_string();
        let wrong = |error: object_store::Error| OpenError::Settings {
            store: name.clone(),
            problem: error.to_string(),
        };
        let store = S3Store(Arc::new(Inner {
            client: client(settings, RETRIES).map_err(wrong)?,
            quick: client(settings, 0).map_err(wrong)?,
            waiter: Waiter::new("s3").map_err(OpenError::Threads)?,
            keys: Keys::new(&settings.prefix, settings.longest_key),
            upload_records: UploadRecords::open(notes).map_err(OpenError::Notes)?,
            page: None,
            name: name.clone(),
        }));
        let top = store.0.keys.top();
        let client = store.0.client.clone();
        let looked = async move { client.list(Some(&top)).next().await.transpose().map(drop) };
        let looked = match store.0.waiter.wait_first(looked) {
            Some(looked) => looked.map_err(|error| storage_error("list", &RelPath::root(), error)),
            None => Err(no_answer(&RelPath::root())),
        };
        looked.map_err(|source| OpenError::Unreachable { store: name, source })?;
        Ok(store)
    }

    /// Waits for an operation on a path.
    fn ask<T, F, W>(&self, action: &'static str, path: &RelPath, work: F) -> Result<T, RootError>
    where
        T: Send + 'static,
        F: FnOnce(AmazonS3) -> W,
        W: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.ask_longer(Duration::ZERO, action, path, work)
    }

    /// The same for an operation that moves many bytes, with extra time.
    fn ask_longer<T, F, W>(
        &self,
        more: Duration,
        action: &'static str,
        path: &RelPath,
        work: F,
    ) -> Result<T, RootError>
    where
        T: Send + 'static,
        F: FnOnce(AmazonS3) -> W,
        W: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        match self.0.waiter.wait_longer(more, work(self.0.client.clone())) {
            Some(done) => done.map_err(|error| storage_error(action, path, error)),
            None => Err(no_answer(path)),
        }
    }

    /// The key of a path that is about to be created.
    fn new_key(&self, place: &Place) -> Result<Key, RootError> {
        self.limits().check(&place.path)?;
        self.0.keys.new_of(place)
    }

    /// The metadata of an object; `None` if it does not exist.
    fn object(&self, place: &Place) -> Result<Option<Meta>, RootError> {
        self.head(place).map(|found| found.map(|found| meta_of(&found)))
    }

    fn head(&self, place: &Place) -> Result<Option<GetResult>, RootError> {
        if place.path.is_root() || place.path.name() == Some(MARKER.as_bytes()) {
            return Ok(None);
        }
        let key = self.0.keys.of(place)?;
        match self.head_by(&self.0.quick, &key, &place.path) {
            Ok(found) => Ok(Some(found)),
            Err(RootError::NotFound(_)) => Ok(None),
            // Services that store objects as files fail for a key that is one of their folders.
            Err(_) if !self.is_listed(place, &key)? => Ok(None),
            Err(_) => self.head_by(&self.0.client, &key, &place.path).map(Some),
        }
    }

    fn head_by(&self, client: &AmazonS3, key: &Key, path: &RelPath) -> Result<GetResult, RootError> {
        let (client, key) = (client.clone(), key.clone());
        let looked = async move { client.get_opts(&key, GetOptions::new().with_head(true)).await };
        self.ask("stat", path, |_| looked)
    }

    /// Whether the folder above lists an object.
    fn is_listed(&self, place: &Place, key: &Key) -> Result<bool, RootError> {
        let Some(above) = place.parent() else {
            return Ok(false);
        };
        let objects = self.inside(&above)?.objects;
        Ok(objects.iter().any(|object| object.location == *key))
    }

    /// Checks that the parent of a new entry is a folder.
    fn check_parent(&self, place: &Place) -> Result<(), RootError> {
        let Some(parent) = place.parent().filter(|parent| !parent.path.is_root()) else {
            return Ok(());
        };
        match self.is_folder(&parent)? {
            true => Ok(()),
            false if self.object(&parent)?.is_some() => Err(RootError::NotAFolder(place.path.clone())),
            false => Err(RootError::NotFound(place.path.clone())),
        }
    }

    /// Checks that a new file may be created at a path.
    fn check_place(&self, place: &Place, existing: Existing) -> Result<(), RootError> {
        self.check_parent(place)?;
        self.check_nothing_to_keep(place, existing)?;
        match self.is_folder(place)? {
            true if existing == Existing::Keep => Err(RootError::Exists(place.path.clone())),
            true => Err(RootError::IsAFolder(place.path.clone())),
            false => Ok(()),
        }
    }

    /// Whether an existing object must not be overwritten. Every service supports a conditional write of a whole object in one
    /// request; for anything else this check comes immediately before.
    fn check_nothing_to_keep(&self, place: &Place, existing: Existing) -> Result<(), RootError> {
        match existing == Existing::Keep && self.object(place)?.is_some() {
            true => Err(RootError::Exists(place.path.clone())),
            false => Ok(()),
        }
    }

    fn mark_folder(&self, place: &Place) -> Result<(), RootError> {
        let key = self.0.keys.marker(place)?;
        self.ask("create the folder", &place.path, move |client| async move {
            client.put(&key, Bytes::new().into()).await.map(drop)
        })
    }

    fn delete_key(&self, path: &RelPath, key: &Key) -> Result<(), RootError> {
        let key = key.clone();
        let gone = self.ask(
            "remove",
            path,
            move |client| async move { client.delete(&key).await },
        );
        match gone {
            // A concurrent writer was first.
            Err(RootError::NotFound(_)) => Ok(()),
            other => other,
        }
    }

    /// Keeps a folder when its last entry is removed.
    fn keep_parent(&self, place: &Place) -> Result<(), RootError> {
        let Some(parent) = place.parent() else {
            return Ok(());
        };
        match self.is_folder(&parent)? {
            true => Ok(()),
            false => self.mark_folder(&parent),
        }
    }
}

fn no_answer(path: &RelPath) -> RootError {
    RootError::Unreachable {
        path: path.clone(),
        source: timed_out(),
    }
}

impl FileStore for S3Store {
    fn limits(&self) -> StoreLimits {
        StoreLimits {
            name: RelPath::MAX_NAME.min(self.0.keys.room()),
            path: self.0.keys.room(),
            depth: self.0.keys.room() / 2,
            names: NameRule::Utf8NoControls,
            without: "",
            links: false,
            moves_whole: false,
            stays_open: false,
            lists_times: false,
            own_name: MARKER,
            writers: AT_ONCE,
        }
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn stat(&self, place: &Place) -> Result<Meta, RootError> {
        if let Some(meta) = self.object(place)? {
            return Ok(meta);
        }
        match self.is_folder(place)? {
            true => Ok(folder_meta()),
            false => Err(RootError::NotFound(place.path.clone())),
        }
    }

    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError> {
        let listed = self.inside(place)?;
        if listed.objects.is_empty() && listed.folders.is_empty() {
            return Err(match self.object(place)? {
                Some(_) => RootError::NotAFolder(place.path.clone()),
                None => RootError::NotFound(place.path.clone()),
            });
        }
        let inside = |key: &Key| self.0.keys.path_of(&place.space, key);
        let folders = listed.folders.iter().filter_map(inside);
        let mut entries: Vec<DirEntry> = folders
            .map(|path| DirEntry {
                path,
                meta: folder_meta(),
            })
            .collect();
        let files = listed
            .objects
            .iter()
            .filter_map(|object| inside(&object.location));
        let files: Vec<RelPath> = files
            .filter(|path| path.name() != Some(MARKER.as_bytes()))
            .collect();
        entries.extend(self.look_at(&place.space, files)?);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn make_folder(&self, place: &Place) -> Result<(), RootError> {
        self.new_key(place)?;
        let mut above = Some(place.path.clone());
        while let Some(path) = above.filter(|path| !path.is_root()) {
            let here = Place {
                space: place.space.clone(),
                path: path.clone(),
            };
            if self.object(&here)?.is_some() {
                return Err(RootError::NotAFolder(path));
            }
            above = path.parent();
        }
        match self.is_folder(place)? {
            true => Ok(()),
            false => self.mark_folder(place),
        }
    }

    fn remove(&self, place: &Place) -> Result<(), RootError> {
        if self.object(place)?.is_some() {
            return self.remove_object(place);
        }
        match self.is_empty_folder(place)? {
            None => Err(RootError::NotFound(place.path.clone())),
            Some(false) => Err(RootError::NotEmpty(place.path.clone())),
            Some(true) => {
                self.delete_key(&place.path, &self.0.keys.marker(place)?)?;
                self.keep_parent(place)
            }
        }
    }

    fn remove_all(&self, place: &Place) -> Result<(), RootError> {
        let mut keys: Vec<Key> = self
            .below(place)?
            .into_iter()
            .map(|one| one.object.location)
            .collect();
        if self.object(place)?.is_some() {
            keys.push(self.0.keys.of(place)?);
        }
        if keys.is_empty() {
            return Err(RootError::NotFound(place.path.clone()));
        }
        for_each(&keys, AT_ONCE, |key| self.delete_key(&place.path, key))?;
        self.keep_parent(place)
    }

    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        if from == to {
            return self.stat(from).map(drop);
        }
        self.new_key(to)?;
        match self.stat(from)?.is_dir() {
            true => self.move_folder(from, to, existing),
            false => self.move_object(from, to, existing),
        }
    }

    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Amount, RootError> {
        self.new_key(to)?;
        if let Some(meta) = self.object(from)? {
            self.check_place(to, existing)?;
            self.copy_object(from, to, meta.size, existing)?;
            return Ok(Amount {
                bytes: meta.size,
                files: 1,
            });
        }
        self.check_not_into_itself(from, to)?;
        let below = self.below(from)?;
        if below.is_empty() {
            return Err(RootError::NotFound(from.path.clone()));
        }
        self.copy_below(from, &below, to, existing)?;
        let files = below.iter().filter(|one| !one.is_marker);
        Ok(Amount {
            bytes: files.clone().map(|one| one.object.size).sum(),
            files: files.count() as u64,
        })
    }

    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError> {
        let key = self.0.keys.of(place)?;
        let Some(found) = self.head(place)? else {
            return Err(match self.is_folder(place)? {
                true => RootError::IsAFolder(place.path.clone()),
                false => RootError::NotFound(place.path.clone()),
            });
        };
        Ok(Box::new(OpenObject::new(self, key, found)))
    }

    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError> {
        let key = self.new_key(place)?;
        Ok(Box::new(NewObject::new(self, place, key, attributes)))
    }

    fn usage(&self, place: &Place) -> Result<Usage, RootError> {
        if let Some(meta) = self.object(place)? {
            let mut usage = Usage::default();
            usage.add(&meta);
            return Ok(usage);
        }
        let below = self.below(place)?;
        if below.is_empty() {
            return Err(RootError::NotFound(place.path.clone()));
        }
        let files = below.iter().filter(|one| !one.is_marker);
        let mut folders: Vec<RelPath> = below
            .iter()
            .flat_map(|one| parents(&one.path, &place.path))
            .collect();
        folders.sort();
        folders.dedup();
        Ok(Usage {
            bytes: files.clone().map(|one| one.object.size).sum(),
            files: files.count() as u64,
            folders: folders.len() as u64,
            ..Usage::default()
        })
    }

    fn folder(&self, _: &Space) -> Result<Option<Root>, RootError> {
        Ok(None)
    }

    /// Aborts uploads of earlier servers with the same records, in all spaces. Those of other servers are left to a lifecycle rule of
    /// the bucket, because not every service lists them.
    fn sweep(&self, _: &Space, _: Duration) -> Result<u64, RootError> {
        self.abort_left_over()
    }
}

impl S3Store {
    /// A listing has neither times nor executable bits, so every object is queried.
    fn look_at(&self, space: &Space, files: Vec<RelPath>) -> Result<Vec<DirEntry>, RootError> {
        let found = std::sync::Mutex::new(Vec::with_capacity(files.len()));
        for_each(&files, AT_ONCE, |path| {
            let place = Place {
                space: space.clone(),
                path: path.clone(),
            };
            if let Some(meta) = self.object(&place)? {
                let path = place.path;
                let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                found.push(DirEntry { path, meta });
            }
            Ok(())
        })?;
        Ok(found
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The folders between a path and the measured one.
fn parents(path: &RelPath, top: &RelPath) -> Vec<RelPath> {
    std::iter::successors(path.parent(), RelPath::parent)
        .take_while(|folder| folder != top && folder.is_within(top))
        .collect()
}
