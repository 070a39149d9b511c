//! Files in HDFS, over its native protocol: no JVM and no mount.
//!
//! A file is written in order under a temporary name and takes its place by one rename. There are no links and no
//! writes at an offset; times have milliseconds.

mod drafts;
mod failure;
mod quota;
mod slots;
mod writing;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hdfs_native::client::FileStatus;
use hdfs_native::file::FileReader;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{DirEntry, FileAttributes, Kind, Meta, Stamp, Usage};
use paddlecloud_pfs::store::{FileStore, NameRule, NewFile, ReadAt, StoreLimits};
use paddlecloud_pfs::{Existing, Mtime, Place, RelPath, Root, RootError, Source, Space};

use self::drafts::Drafts;
use self::failure::storage_error;
use self::slots::Slots;
use self::writing::NewHdfsFile;
use crate::copy_through::copy_through;
use crate::read_ahead::ReadAhead;
use crate::tree::for_each;
use crate::waiting::{Waiter, timed_out};
use crate::{HdfsSettings, OpenError};

/// The staging folder, directly below a space. It is never listed.
const STAGING: &str = ".pfs-staging";

/// Hadoop's default limits of a name node.
const NAME: usize = 255;
const PATH: usize = 8000;
const DEPTH: usize = 1000;

/// Files written at the same time, for all clients together: the cluster reserves a whole block for each. A single writer mostly
/// waits for the cluster: 16 writers reach 39 files per second, one reaches 3.
const WRITERS: usize = 32;

/// How often a file that keeps changing is opened again.
const TRIES: usize = 5;

/// A cluster, and the service's folder in it.
#[derive(Clone)]
pub struct HdfsStore(Arc<Inner>);

struct Inner {
    client: Client,
    waiter: Waiter,
    folder: String,
    name: String,
    /// Distinguishes this cluster's files from those of others in the file index.
    device: u64,
    replication: Option<u32>,
    slots: Slots,
    drafts: Drafts,
}

impl HdfsStore {
    /// Connects and creates the folder.
    pub fn open(settings: &HdfsSettings) -> Result<HdfsStore, OpenError> {
        let name = settings.url.to_string();
        let mut builder = ClientBuilder::new().with_url(settings.url.cluster());
        if let Some(user) = &settings.user {
            builder = builder.with_user(user);
        }
        if let Some(config) = &settings.config {
            builder = builder.with_config_dir(config.display().to_string());
        }
        let waiter = Waiter::new("hdfs").map_err(OpenError::Threads)?;
        let built = waiter.wait(async move { builder.build() });
        let client = built.unwrap_or_else(|| Err(HdfsError::IOError(timed_out())));
        let client = client.map_err(|error| OpenError::Settings {
            store: name.clone(),
            problem: error.to_string(),
        })?;
        let store = HdfsStore(Arc::new(Inner {
            client,
            waiter,
            folder: settings.url.folder().to_owned(),
            device: device_of(&name),
            replication: settings.replication,
            slots: Slots::new(WRITERS),
            drafts: Drafts::default(),
            name,
        }));
        let folder = match store.0.folder.as_str() {
            "" => "/".to_owned(),
            folder => folder.to_owned(),
        };
        let client = store.0.client.clone();
        let made = store
            .0
            .waiter
            .wait_first(async move { client.mkdirs(&folder, 0o755, true).await });
        let made = made.unwrap_or_else(|| Err(HdfsError::IOError(timed_out())));
        made.map_err(|error| OpenError::Unreachable {
            store: store.0.name.clone(),
            source: storage_error("use", &RelPath::root(), error),
        })?;
        Ok(store)
    }

    /// Waits for an operation on a path.
    fn ask<T, F, W>(&self, action: &'static str, path: &RelPath, work: F) -> Result<T, RootError>
    where
        T: Send + 'static,
        F: FnOnce(Client) -> W,
        W: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let done = self.0.waiter.wait(work(self.0.client.clone()));
        let done = done.unwrap_or_else(|| Err(HdfsError::IOError(timed_out())));
        done.map_err(|error| storage_error(action, path, error))
    }

    fn space_key(&self, space: &Space) -> String {
        format!("{}/{}", self.0.folder, space.folder())
    }

    /// The absolute path in the cluster. A path that is not UTF-8 cannot exist there.
    fn key(&self, place: &Place) -> Result<String, RootError> {
        let inside = std::str::from_utf8(place.path.as_bytes());
        let inside = inside.map_err(|_| RootError::NotFound(place.path.clone()))?;
        let space = self.space_key(&place.space);
        Ok(match inside {
            "" => space,
            inside => format!("{space}/{inside}"),
        })
    }

    /// The same for a path that is about to be created.
    fn new_key(&self, place: &Place) -> Result<String, RootError> {
        self.limits().check(&place.path)?;
        self.key(place)
    }

    fn status(&self, place: &Place) -> Result<FileStatus, RootError> {
        let key = self.key(place)?;
        self.ask("stat", &place.path, move |client| async move {
            client.get_file_info(&key).await
        })
    }

    fn meta(&self, status: &FileStatus) -> Meta {
        let mtime = from_millis(status.modification_time);
        let size = if status.isdir { 0 } else { status.length as u64 };
        Meta {
            kind: if status.isdir { Kind::Dir } else { Kind::File },
            size,
            mtime,
            executable: !status.isdir && status.permission & 0o111 != 0,
            stamp: Stamp {
                device: self.0.device,
                // The client does not expose the file's inode number; each of our files has its own block size instead.
                inode: status.blocksize.unwrap_or(0),
                size,
                mtime,
                ctime: mtime,
            },
        }
    }

    /// The entry of a listing, unless it is internal.
    fn entry(&self, folder: &RelPath, status: &FileStatus) -> Result<Option<DirEntry>, RootError> {
        let name = status.path.rsplit('/').next().unwrap_or_default();
        if folder.is_root() && name == STAGING {
            return Ok(None);
        }
        let path = folder.child(name.as_bytes())?;
        let meta = self.meta(status);
        Ok(Some(DirEntry { path, meta }))
    }

    /// Everything below a folder, folders first.
    fn below(&self, place: &Place) -> Result<Vec<DirEntry>, RootError> {
        let mut found = Vec::new();
        let mut waiting = vec![place.path.clone()];
        while let Some(path) = waiting.pop() {
            let here = Place {
                space: place.space.clone(),
                path,
            };
            for entry in self.list(&here)? {
                if entry.meta.is_dir() {
                    waiting.push(entry.path.clone());
                }
                found.push(entry);
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

impl FileStore for HdfsStore {
    fn limits(&self) -> StoreLimits {
        // The name of the space's folder counts too. Owners' names are short, so a fixed allowance is enough.
        let above = self.0.folder.len() + 2 + NAME;
        StoreLimits {
            name: NAME,
            path: RelPath::MAX_LEN.min(PATH - above),
            depth: DEPTH - 2 - self.0.folder.matches('/').count(),
            names: NameRule::Utf8,
            without: ":",
            links: false,
            moves_whole: true,
            stays_open: false,
            lists_times: true,
            own_name: "",
            writers: WRITERS,
        }
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn stat(&self, place: &Place) -> Result<Meta, RootError> {
        self.status(place).map(|status| self.meta(&status))
    }

    fn list(&self, place: &Place) -> Result<Vec<DirEntry>, RootError> {
        let key = self.key(place)?;
        let asked = key.clone();
        let listed = self.ask("list", &place.path, move |client| async move {
            client.list_status(&asked, false).await
        })?;
        if let [only] = listed.as_slice()
            && only.path == key
        {
            return Err(RootError::NotAFolder(place.path.clone()));
        }
        let mut entries = Vec::with_capacity(listed.len());
        for status in &listed {
            entries.extend(self.entry(&place.path, status)?);
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn make_folder(&self, place: &Place) -> Result<(), RootError> {
        let key = self.new_key(place)?;
        self.ask("create the folder", &place.path, move |client| async move {
            client.mkdirs(&key, 0o755, true).await
        })
    }

    fn remove(&self, place: &Place) -> Result<(), RootError> {
        self.delete(place, false)
    }

    fn remove_all(&self, place: &Place) -> Result<(), RootError> {
        self.delete(place, true)
    }

    fn rename(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        if from.space == to.space && to.path.is_within(&from.path) && to.path != from.path {
            return Err(RootError::IntoItself {
                from: from.path.clone(),
                to: to.path.clone(),
            });
        }
        // HDFS reports the same error for a missing source and a missing target folder.
        self.status(from)?;
        let (source, target) = (self.key(from)?, self.new_key(to)?);
        self.ask("rename", &to.path, move |client| async move {
            client
                .rename(&source, &target, existing == Existing::Replace)
                .await
        })
    }

    fn copy(&self, from: &Place, to: &Place, existing: Existing) -> Result<Amount, RootError> {
        if !self.stat(from)?.is_dir() {
            let bytes = copy_through(self, from, to, existing)?;
            return Ok(Amount { bytes, files: 1 });
        }
        if from.space == to.space && to.path.is_within(&from.path) {
            return Err(RootError::IntoItself {
                from: from.path.clone(),
                to: to.path.clone(),
            });
        }
        self.make_folder(to)?;
        let mut copied = Amount::default();
        let mut files = Vec::new();
        for entry in self.below(from)? {
            let rest = entry.path.strip_prefix(&from.path).unwrap_or_default();
            let target = Place {
                space: to.space.clone(),
                path: to.path.join(&rest)?,
            };
            if entry.meta.is_dir() {
                self.make_folder(&target)?;
                continue;
            }
            copied.bytes += entry.meta.size;
            copied.files += 1;
            let source = Place {
                space: from.space.clone(),
                path: entry.path,
            };
            files.push((source, target));
        }
        for_each(&files, WRITERS, |(source, target)| {
            copy_through(self, source, target, existing).map(drop)
        })?;
        Ok(copied)
    }

    fn open(&self, place: &Place) -> Result<Box<dyn ReadAt>, RootError> {
        let key = self.key(place)?;
        let mut before = self.status(place)?;
        for _ in 0..TRIES {
            if before.isdir {
                return Err(RootError::IsAFolder(place.path.clone()));
            }
            let asked = key.clone();
            let reader = self.ask("open", &place.path, move |client| async move {
                client.read(&asked).await
            })?;
            let after = self.status(place)?;
            let meta = self.meta(&after);
            // Otherwise the file was replaced between the two calls, and the blocks may belong to the other version.
            if meta == self.meta(&before) && reader.file_length() as u64 == meta.size {
                return Ok(Box::new(OpenHdfsFile {
                    store: self.clone(),
                    reader: Arc::new(reader),
                    ahead: ReadAhead::default(),
                    meta,
                }));
            }
            before = after;
        }
        Err(RootError::Changing(place.path.clone()))
    }

    fn begin(&self, place: &Place, attributes: FileAttributes) -> Result<Box<dyn NewFile>, RootError> {
        let target = self.new_key(place)?;
        NewHdfsFile::begin(self, place, target, attributes).map(|file| Box::new(file) as Box<dyn NewFile>)
    }

    fn usage(&self, place: &Place) -> Result<Usage, RootError> {
        let key = self.key(place)?;
        let is_folder = self.stat(place)?.is_dir();
        let before = self.drafts_below(place)?;
        let summary = self.ask("measure", &place.path, move |client| async move {
            client.get_content_summary(&key).await
        })?;
        // Files published meanwhile count, so only those that were drafts all the time are subtracted.
        let after = match before.files {
            0 => before,
            _ => self.drafts_below(place)?,
        };
        Ok(Usage {
            bytes: summary.length.saturating_sub(before.bytes.min(after.bytes)),
            files: summary.file_count.saturating_sub(before.files.min(after.files)),
            folders: summary
                .directory_count
                .saturating_sub(before.folders + u64::from(is_folder)),
            ..Usage::default()
        })
    }

    fn folder(&self, _: &Space) -> Result<Option<Root>, RootError> {
        Ok(None)
    }

    fn sweep(&self, space: &Space, age: Duration) -> Result<u64, RootError> {
        let staging: RelPath = STAGING.parse()?;
        let key = format!("{}/{STAGING}", self.space_key(space));
        let asked = key.clone();
        let listed = self.ask("list", &staging, move |client| async move {
            client.list_status(&asked, false).await
        });
        let listed = match listed {
            Err(error) if error.is_not_found() => return Ok(0),
            other => other?,
        };
        let now = Mtime::from(SystemTime::now());
        let is_left = |status: &&FileStatus| {
            last_touched(status).age(now) >= age && !self.0.drafts.is_held(&status.path)
        };
        let mut swept = 0;
        for status in listed.iter().filter(is_left) {
            let path = status.path.clone();
            let gone = self.ask("remove", &staging, move |client| async move {
                client.delete(&path, true).await
            })?;
            swept += u64::from(gone);
        }
        Ok(swept)
    }

    fn quota(&self, space: &Space) -> Result<Option<u64>, RootError> {
        self.bytes_limit(space)
    }
}

impl HdfsStore {
    /// What the name node counts in a home although users do not see it: drafts and the staging folder.
    fn drafts_below(&self, place: &Place) -> Result<Usage, RootError> {
        let staging = format!("{}/{STAGING}", self.space_key(&place.space));
        let summary = match place.path.is_root() {
            true => self.summary(staging)?,
            false => None,
        };
        Ok(summary.map_or_else(Usage::default, |summary| Usage {
            bytes: summary.length,
            files: summary.file_count,
            folders: summary.directory_count,
            ..Usage::default()
        }))
    }

    fn delete(&self, place: &Place, recursive: bool) -> Result<(), RootError> {
        self.status(place)?;
        let key = self.key(place)?;
        let gone = self.ask("remove", &place.path, move |client| async move {
            client.delete(&key, recursive).await
        })?;
        match gone {
            true => Ok(()),
            false => Err(RootError::NotFound(place.path.clone())),
        }
    }
}

/// An open file.
struct OpenHdfsFile {
    store: HdfsStore,
    reader: Arc<FileReader>,
    ahead: ReadAhead,
    meta: Meta,
}

impl Source for OpenHdfsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ahead.read_at(buffer, offset, self.meta.size, |offset, len| {
            let reader = Arc::clone(&self.reader);
            let (offset, len) = (offset as usize, len as usize);
            let read = self
                .store
                .0
                .waiter
                .wait(async move { reader.read_range(offset, len).await });
            read.ok_or_else(timed_out)?.map_err(io::Error::other)
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.meta.size)
    }
}

impl ReadAt for OpenHdfsFile {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

fn from_millis(millis: u64) -> Mtime {
    Mtime::new((millis / 1000) as i64, (millis % 1000) as u32 * 1_000_000)
}

/// When a draft was last written. Shortly before publishing, its modification time is the sender's, which can be any time; its access
/// time is then the time it was created.
fn last_touched(draft: &FileStatus) -> Mtime {
    from_millis(draft.modification_time.max(draft.access_time))
}

fn device_of(name: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_as_old_as_its_writer_and_not_as_what_it_holds() {
        let draft = |modification_time, access_time| FileStatus {
            path: "/home/ann/.pfs-staging/1".to_owned(),
            length: 3,
            isdir: false,
            permission: 0o644,
            owner: String::new(),
            group: String::new(),
            modification_time,
            access_time,
            replication: None,
            blocksize: None,
        };
        assert_eq!(
            last_touched(&draft(1_000, 7_000)),
            Mtime::new(7, 0),
            "data of long ago"
        );
        assert_eq!(last_touched(&draft(7_001, 1_000)), Mtime::new(7, 1_000_000));
    }
}
