//! Assembles a file from pieces that arrive in any order, over any number of connections and restarts, and publishes it only when
//! its digest is right.
//!
//! Used on both ends: for uploads by the server, for downloads by the client. Received pieces are journalled, so a resumed
//! transfer requests only the rest.

mod disk;
mod received;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use self::disk::{Disk, State, write_state};
use self::received::{Received, touched};
pub use self::writer::ChunkWriter;
use super::chunk::{CHUNK, ChunkName, Layout, name_chunk, name_chunks};
use super::journal::Record;
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{
    self, Durability, Existing, FileAttributes, Meta, Root, RootError, copy_source, timestamps,
};
use crate::source::Source;
use crate::staging::{StagedId, in_package, remove_staged, staged_path};
use crate::sys::{self, FileExt, Mode};

/// A write of this many bytes takes longer than waking a sleeping thread.
const WORTH_SLEEPING: usize = 192 << 10;

/// The file to assemble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssemblyPlan {
    /// Where the file will appear.
    pub path: RelPath,
    pub size: u64,
    #[serde(default)]
    pub executable: bool,
    #[serde(default)]
    pub mtime: Option<Mtime>,
}

impl AssemblyPlan {
    /// The attributes that the file will have.
    pub fn attributes(&self) -> FileAttributes {
        FileAttributes {
            executable: self.executable,
            mtime: self.mtime,
        }
    }
}

/// The plan of an unfinished file and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    pub plan: AssemblyPlan,
    /// Bytes received so far.
    pub arrived: u64,
}

/// Why a piece was refused or the file cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    #[error("`{path}` has no bytes {offset}..{end}", end = .offset.saturating_add(*.len))]
    OutOfRange { path: RelPath, offset: u64, len: u64 },
    #[error("chunk {index} of `{path}` has a different length than announced")]
    WrongLength { path: RelPath, index: u64 },
    #[error("chunk {index} of `{path}` was damaged in transit")]
    DamagedChunk { path: RelPath, index: u64 },
    #[error("this part of `{path}` is being received over another connection")]
    PartBusy { path: RelPath },
    #[error("the unfinished upload `{0}` is in use by another process")]
    Busy(StagedId),
    #[error("`{0}` is being checked and published")]
    Ending(RelPath),
    #[error("`{0}` is already complete")]
    Finished(RelPath),
    #[error("{missing} bytes of `{path}` have not arrived")]
    Incomplete { path: RelPath, missing: u64 },
    #[error("`{path}` has a different digest than announced ({found})")]
    WrongDigest { path: RelPath, found: Digest },
    #[error("the state of the unfinished upload `{id}` is unreadable")]
    State { id: StagedId, source: serde_json::Error },
    #[error(transparent)]
    Storage(#[from] RootError),
}

/// An unfinished file; cheap to clone, and usable from several threads at once.
///
/// One process owns it at a time. All openers in that process share one handle.
#[derive(Debug, Clone)]
pub struct Assembly(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: Root,
    id: StagedId,
    plan: AssemblyPlan,
    began: Option<Mtime>,
    disk: Disk,
    received: Mutex<Received>,
    /// Held for reading while bytes are written, for writing while the file is checked and published: no late piece reaches a
    /// published file.
    phase: RwLock<Phase>,
    /// Held during large writes. The kernel admits one writer per file and makes the others spin, which took a quarter of a
    /// receiver's time. On this lock they sleep.
    writing: Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Finished,
}

impl Assembly {
    /// Starts a new file in `root`.
    pub fn create(root: &Root, plan: AssemblyPlan) -> Result<Self, AssemblyError> {
        let id = StagedId::fresh();
        let (held, ()) = root::in_staging(root, |folder| {
            sys::mkdirat(folder, id.as_str(), Mode::from_raw_mode(0o700))
        })?;
        let state = State {
            plan,
            boot: sys::boot_id(),
            began: Some(Mtime::from(SystemTime::now())),
        };
        let made = Disk::create(root, &id, &state).map_err(AssemblyError::from);
        let opened = made.and_then(|()| Self::open(root, &id));
        drop(held);
        if opened.is_err() {
            // The folder is empty. If it cannot be removed now, it expires like other unfinished files.
            let _ = remove_staged(root, &id);
        }
        opened
    }

    /// Resumes a file started earlier, by this process or a previous one.
    pub fn open(root: &Root, id: &StagedId) -> Result<Self, AssemblyError> {
        disk::shared(root, id, || Inner::open(root, id)).map(Self)
    }

    /// Resumes an unfinished file with the same plan, or starts a new one, so that callers need not remember ids.
    pub fn resume_or_create(root: &Root, plan: AssemblyPlan) -> Result<Self, AssemblyError> {
        for unfinished in crate::staging::unfinished(root)? {
            if disk::peek(root, &unfinished.id).as_ref() != Some(&plan) {
                continue;
            }
            match Self::open(root, &unfinished.id) {
                // It was finished or removed since the listing, or another process has locked it.
                Err(AssemblyError::Storage(RootError::NotFound(_)) | AssemblyError::Busy(_)) => {}
                other => return other,
            }
        }
        Self::create(root, plan)
    }

    /// Describes an unfinished file without locking it; `None` if there is no such file.
    pub fn outline(root: &Root, id: &StagedId) -> Option<Outline> {
        disk::outline(root, id)
    }

    /// The id with which to resume.
    pub fn id(&self) -> &StagedId {
        &self.0.id
    }

    /// The file to assemble.
    pub fn plan(&self) -> &AssemblyPlan {
        &self.0.plan
    }

    /// How the file is cut into chunks.
    pub fn layout(&self) -> Layout {
        self.0.layout()
    }

    /// The ranges that have not arrived, in order.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.0.received().missing(self.layout())
    }

    /// The chunks that were checked on arrival, with their names.
    pub fn checked(&self) -> Vec<(u64, ChunkName)> {
        let received = self.0.received();
        received
            .names()
            .iter()
            .map(|(index, name)| (*index, *name))
            .collect()
    }

    /// Time since the start; `None` if it was not recorded, or the clock was set back since.
    pub fn age(&self) -> Option<Duration> {
        let now = Mtime::from(SystemTime::now());
        let began = self.0.began.filter(|began| *began <= now)?;
        Some(began.age(now))
    }

    /// Starts to receive one chunk. Its bytes may arrive in pieces of any size.
    pub fn chunk(&self, index: u64) -> Result<ChunkWriter, AssemblyError> {
        let (offset, len) = self.0.chunk_range(index)?;
        let claim = self.claim(offset, len)?;
        // A chunk that was already checked is only checked again, so that a damaged second copy cannot overwrite it.
        let here = self.0.received().names().get(&index).copied();
        let hasher = self.layout().hasher(index);
        Ok(ChunkWriter::new(claim, index, (offset, len), here, hasher))
    }

    /// Receives one chunk from memory.
    pub fn put_chunk(&self, index: u64, name: ChunkName, bytes: &[u8]) -> Result<(), AssemblyError> {
        let mut writer = self.chunk(index)?;
        writer.write(bytes)?;
        writer.finish(Some(name))
    }

    /// Receives bytes at any offset. They are checked when the file is complete. A chunk that was checked on arrival is not written
    /// again: the sender of the same file sends the same bytes.
    pub fn put_range(&self, offset: u64, bytes: &[u8]) -> Result<(), AssemblyError> {
        let len = bytes.len() as u64;
        let _claim = self.claim(offset, len)?;
        let _open = self.0.still_open()?;
        for part in self.0.unchecked(offset, len) {
            let from = usize::try_from(part.start - offset).expect("a part of what is in memory");
            let len = usize::try_from(part.end - part.start).expect("a part of what is in memory");
            self.0.write_at(&bytes[from..from + len], part.start)?;
            self.0.note(Record::of(part))?;
        }
        Ok(())
    }

    /// Copies bytes from another file, except into checked chunks; `false` if that file is too short.
    pub fn copy_from(
        &self,
        offset: u64,
        other: &(impl Source + ?Sized),
        from: u64,
        len: u64,
    ) -> Result<bool, AssemblyError> {
        let _claim = self.claim(offset, len)?;
        let _open = self.0.still_open()?;
        for part in self.0.unchecked(offset, len) {
            let (from, len) = (from.saturating_add(part.start - offset), part.end - part.start);
            let copied = copy_source(other, from, &self.0.disk.data, part.start, len)
                .map_err(|error| RootError::io("copy to", &self.0.plan.path, error))?;
            if copied < len {
                return Ok(false);
            }
            self.0.note(Record::of(part))?;
        }
        Ok(true)
    }

    /// Checks that all bytes arrived and match the digest, if one is given, then publishes the file.
    ///
    /// If the digest is wrong, nothing is published and all bytes are missing again.
    pub fn commit(
        &self,
        digest: impl Into<Option<Digest>>,
        existing: Existing,
    ) -> Result<Meta, AssemblyError> {
        self.commit_by(digest.into(), |inner| inner.publish(existing))
    }

    /// Like [`Self::commit`] for a file that is published outside this root. `publish` gets the checked content and must make it
    /// durable. If it fails, the assembly stays and can be committed again.
    pub fn commit_elsewhere(
        &self,
        digest: Option<Digest>,
        publish: impl FnOnce(&File) -> Result<Meta, RootError>,
    ) -> Result<Meta, AssemblyError> {
        self.commit_by(digest, |inner| {
            let meta = publish(&inner.disk.data)?;
            inner.clear_up();
            Ok(meta)
        })
    }

    fn commit_by(
        &self,
        digest: Option<Digest>,
        publish: impl FnOnce(&Inner) -> Result<Meta, RootError>,
    ) -> Result<Meta, AssemblyError> {
        let inner = &*self.0;
        let mut phase = inner.phase.write().unwrap_or_else(PoisonError::into_inner);
        if *phase == Phase::Finished {
            return Err(AssemblyError::Finished(inner.plan.path.clone()));
        }
        let missing: u64 = self.missing().iter().map(|gap| gap.end - gap.start).sum();
        if missing > 0 {
            return Err(AssemblyError::Incomplete {
                path: inner.plan.path.clone(),
                missing,
            });
        }
        let len = inner.disk.data.metadata().map(|data| data.len());
        let len = len.map_err(|error| RootError::io("stat", &inner.plan.path, error))?;
        if len != inner.plan.size {
            // The owner of the folder has appended to the file.
            return Err(RootError::Changing(inner.plan.path.clone()).into());
        }
        if let Some(digest) = digest {
            inner.must_have(digest)?;
        }
        let meta = publish(inner)?;
        *phase = Phase::Finished;
        Ok(meta)
    }

    /// Removes the unfinished file.
    pub fn discard(self) -> Result<(), AssemblyError> {
        let mut phase = self.0.phase.write().unwrap_or_else(PoisonError::into_inner);
        *phase = Phase::Finished;
        remove_staged(&self.0.root, &self.0.id)?;
        // Other handles may stay open for a while, and the next file needs the space now.
        sys::empty_if_nameless(&self.0.disk.data);
        Ok(())
    }

    /// Reserves the chunks that contain a range for one writer.
    fn claim(&self, offset: u64, len: u64) -> Result<Claim, AssemblyError> {
        let path = || self.0.plan.path.clone();
        let end = offset.checked_add(len).filter(|end| *end <= self.0.plan.size);
        let end = end.ok_or_else(|| AssemblyError::OutOfRange {
            path: path(),
            offset,
            len,
        })?;
        let chunks = touched(offset, end);
        if !self.0.received().claim(chunks.clone()) {
            return Err(AssemblyError::PartBusy { path: path() });
        }
        Ok(Claim {
            inner: self.0.clone(),
            chunks,
        })
    }
}

impl Inner {
    fn open(root: &Root, id: &StagedId) -> Result<Self, AssemblyError> {
        let (disk, state) = Disk::open(root, id)?;
        let layout = Layout::of(state.plan.size);
        let received = Received::read(&disk.journal, layout)
            .map_err(|error| RootError::io("read the progress of", &state.plan.path, error))?;
        let inner = Self {
            root: root.clone(),
            id: id.clone(),
            plan: state.plan.clone(),
            began: state.began,
            disk,
            received: Mutex::new(received),
            phase: RwLock::new(Phase::Open),
            writing: Mutex::default(),
        };
        if state.boot != sys::boot_id() {
            inner.distrust(state)?;
        }
        Ok(inner)
    }

    fn layout(&self) -> Layout {
        Layout::of(self.plan.size)
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chunk_range(&self, index: u64) -> Result<(u64, u64), AssemblyError> {
        self.layout()
            .range(index)
            .ok_or_else(|| AssemblyError::OutOfRange {
                path: self.plan.path.clone(),
                offset: index.saturating_mul(CHUNK),
                len: CHUNK,
            })
    }

    /// While the guard is held, the file is not published. Does not wait for a commit in progress.
    fn still_open(&self) -> Result<RwLockReadGuard<'_, Phase>, AssemblyError> {
        let phase = match self.phase.try_read() {
            Ok(phase) => phase,
            Err(TryLockError::Poisoned(phase)) => phase.into_inner(),
            // A commit may take long, and would block a worker thread for that time.
            Err(TryLockError::WouldBlock) => return Err(AssemblyError::Ending(self.plan.path.clone())),
        };
        match *phase {
            Phase::Open => Ok(phase),
            Phase::Finished => Err(AssemblyError::Finished(self.plan.path.clone())),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), RootError> {
        let _alone = (bytes.len() >= WORTH_SLEEPING)
            .then(|| self.writing.lock().unwrap_or_else(PoisonError::into_inner));
        let written = self.disk.data.write_all_at(bytes, offset);
        written.map_err(|error| RootError::io("write", &self.plan.path, error))
    }

    /// The parts of a range that lie in chunks that were not checked on arrival.
    fn unchecked(&self, offset: u64, len: u64) -> Vec<Range<u64>> {
        let (received, end) = (self.received(), offset + len);
        let mut parts: Vec<Range<u64>> = Vec::new();
        for index in touched(offset, end).filter(|index| !received.names().contains_key(index)) {
            let part = offset.max(index * CHUNK)..end.min((index + 1) * CHUNK);
            match parts.last_mut().filter(|last| last.end == part.start) {
                Some(last) => last.end = part.end,
                None => parts.push(part),
            }
        }
        parts
    }

    /// Journals a record; call it only after the bytes were written.
    fn note(&self, record: Record) -> Result<(), AssemblyError> {
        let mut received = self.received();
        sys::append(&self.disk.journal, &record.encode())
            .map_err(|error| RootError::io("note progress of", &self.plan.path, error))?;
        received.add(self.layout(), record);
        Ok(())
    }

    /// Checks the digest of the assembled content. If it is wrong, all bytes are missing again.
    fn must_have(&self, digest: Digest) -> Result<(), AssemblyError> {
        let names: Vec<ChunkName> = self.all_names()?.into_values().collect();
        let found = self.layout().combine(&names).expect("every chunk has a name now");
        if found == digest {
            return Ok(());
        }
        self.forget()?;
        let path = self.plan.path.clone();
        Err(AssemblyError::WrongDigest { path, found })
    }

    /// The names of all chunks; reads only those that were not checked on arrival.
    fn all_names(&self) -> Result<BTreeMap<u64, ChunkName>, AssemblyError> {
        let mut names = self.received().names().clone();
        let unnamed: Vec<u64> = (0..self.layout().count())
            .filter(|index| !names.contains_key(index))
            .collect();
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let read = name_chunks(&self.disk.data, self.layout(), &unnamed, threads)
            .map_err(|error| RootError::io("read", &self.plan.path, error))?
            .ok_or_else(|| RootError::Changing(self.plan.path.clone()))?;
        names.extend(unnamed.into_iter().zip(read));
        Ok(names)
    }

    fn publish(&self, existing: Existing) -> Result<Meta, RootError> {
        let Self { plan, disk, .. } = self;
        // A package is synced as a whole.
        let durability = match in_package(&plan.path) {
            Some(_) => Durability::Relaxed,
            None => self.root.durability(),
        };
        let root = self.root.clone().with_durability(durability);
        let failed = |errno| RootError::errno("publish", &plan.path, errno);
        if let Some(mtime) = plan.mtime {
            sys::futimens(&disk.data, &timestamps(mtime)).map_err(failed)?;
        }
        root.sync_content(&disk.data, &plan.path)?;
        let (parent, name) = root.open_parent(&plan.path)?;
        root::publish_node((&disk.folder, b"data"), (&parent, name), existing).map_err(failed)?;
        root.sync_fd(&parent, &plan.path)?;
        self.clear_up();
        let stat = sys::fstat(&disk.data).map_err(failed)?;
        Meta::new(&stat, || Err(RootError::NotAFile(plan.path.clone())))
    }

    /// Removes the staging folder. What cannot be removed now (on Windows, open files) is left to the next sweep.
    fn clear_up(&self) {
        let _ = remove_staged(&self.root, &self.id);
    }

    /// Forgets everything that was received.
    fn forget(&self) -> Result<(), AssemblyError> {
        let emptied = self.disk.journal.set_len(0);
        emptied.map_err(|error| RootError::io("empty the journal of", &self.plan.path, error))?;
        self.received().clear();
        Ok(())
    }

    /// After a reboot, keeps only chunks that can be read and still have their name.
    fn distrust(&self, state: State) -> Result<(), AssemblyError> {
        let failed = |error| RootError::io("check", &self.plan.path, error);
        let names = self.received().names().clone();
        self.forget()?;
        for (index, name) in names {
            if name_chunk(&self.disk.data, self.layout(), index).map_err(failed)? == Some(name) {
                self.note(Record::Chunk { index, name })?;
            }
        }
        let state = State {
            boot: sys::boot_id(),
            ..state
        };
        Ok(write_state(&self.disk.folder, &staged_path(&self.id), &state)?)
    }
}

/// Chunks reserved for one writer.
#[derive(Debug)]
struct Claim {
    inner: Arc<Inner>,
    chunks: Range<u64>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.inner.received().release(self.chunks.clone());
    }
}

#[cfg(test)]
mod tests;
