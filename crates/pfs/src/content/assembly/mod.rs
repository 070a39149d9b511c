//! A file put together from pieces that arrive in any order, over any number of connections and restarts,
//! and appears only when its digest is right.
//!
//! Serves both ends: the server assembles uploads, the client downloads. What was received is journalled,
//! so whoever goes on later asks only for the rest.

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
use crate::root::{self, Existing, FileAttributes, Meta, Root, RootError, copy_source, timestamps};
use crate::source::Source;
use crate::staging::{StagedId, remove_staged, staged_path};
use crate::sys::{self, FileExt, Mode};

/// Bytes that take longer to write than somebody who sleeps takes to wake up.
const WORTH_SLEEPING: usize = 192 << 10;

/// What is to be assembled.
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
    /// What the file will keep beside its content.
    pub fn attributes(&self) -> FileAttributes {
        FileAttributes {
            executable: self.executable,
            mtime: self.mtime,
        }
    }
}

/// What an unfinished file is going to be, and how much of it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    pub plan: AssemblyPlan,
    /// Bytes.
    pub arrived: u64,
}

/// Why a piece was refused or the file cannot appear.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    #[error("`{path}` has no bytes {offset}..{end}", end = .offset.saturating_add(*.len))]
    OutOfRange { path: RelPath, offset: u64, len: u64 },
    #[error("chunk {index} of `{path}` has another length than was announced")]
    WrongLength { path: RelPath, index: u64 },
    #[error("chunk {index} of `{path}` was damaged on the way")]
    DamagedChunk { path: RelPath, index: u64 },
    #[error("this part of `{path}` is just being received over another connection")]
    PartBusy { path: RelPath },
    #[error("the unfinished upload `{0}` is in use by another process")]
    Busy(StagedId),
    #[error("`{0}` is just being checked and given its place")]
    Ending(RelPath),
    #[error("`{0}` is complete already")]
    Finished(RelPath),
    #[error("{missing} bytes of `{path}` have not arrived")]
    Incomplete { path: RelPath, missing: u64 },
    #[error("`{path}` arrived with another digest than announced ({found})")]
    WrongDigest { path: RelPath, found: Digest },
    #[error("the state of the unfinished upload `{id}` is unreadable")]
    State { id: StagedId, source: serde_json::Error },
    #[error(transparent)]
    Storage(#[from] RootError),
}

/// An unfinished file; cheap to clone, and usable from several threads at once.
///
/// One process owns it at a time. Inside the process all that open it share it.
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
    /// Held for reading by whoever writes bytes, for writing while the file is checked and published: no
    /// late piece reaches a file that is out.
    phase: RwLock<Phase>,
    /// Held while many bytes are written. The kernel lets one writer at a time into a file and makes the others spin:
    /// that took a quarter of a receiver's time. Here they sleep.
    writing: Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Finished,
}

impl Assembly {
    /// Begins a file of `root`.
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
            // There is nothing in it; what cannot be removed now expires with other unfinished files.
            let _ = remove_staged(root, &id);
        }
        opened
    }

    /// Goes on with a file begun earlier, by this process or one before it.
    pub fn open(root: &Root, id: &StagedId) -> Result<Self, AssemblyError> {
        disk::shared(root, id, || Inner::open(root, id)).map(Self)
    }

    /// Goes on with an unfinished file that has the same plan, or begins one: nobody need remember ids.
    pub fn resume_or_create(root: &Root, plan: AssemblyPlan) -> Result<Self, AssemblyError> {
        for unfinished in crate::staging::unfinished(root)? {
            if disk::peek(root, &unfinished.id).as_ref() != Some(&plan) {
                continue;
            }
            match Self::open(root, &unfinished.id) {
                // Finished or cleared away since we looked, or another process is at it.
                Err(AssemblyError::Storage(RootError::NotFound(_)) | AssemblyError::Busy(_)) => {}
                other => return other,
            }
        }
        Self::create(root, plan)
    }

    /// Looks at an unfinished file, by whomever it is worked at; `None` when it is no such.
    pub fn outline(root: &Root, id: &StagedId) -> Option<Outline> {
        disk::outline(root, id)
    }

    /// The name to go on with later.
    pub fn id(&self) -> &StagedId {
        &self.0.id
    }

    /// What is assembled.
    pub fn plan(&self) -> &AssemblyPlan {
        &self.0.plan
    }

    /// How the file is cut.
    pub fn layout(&self) -> Layout {
        self.0.layout()
    }

    /// The ranges that have not arrived, in order.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.0.received().missing(self.layout())
    }

    /// The chunks that were checked when they arrived, with their names.
    pub fn checked(&self) -> Vec<(u64, ChunkName)> {
        let received = self.0.received();
        received
            .names()
            .iter()
            .map(|(index, name)| (*index, *name))
            .collect()
    }

    /// How long ago it was begun; `None` when nobody noted it, or the clock was set back since.
    pub fn age(&self) -> Option<Duration> {
        let now = Mtime::from(SystemTime::now());
        let began = self.0.began.filter(|began| *began <= now)?;
        Some(began.age(now))
    }

    /// Begins to receive one chunk; its bytes may be given in any pieces.
    pub fn chunk(&self, index: u64) -> Result<ChunkWriter, AssemblyError> {
        let (offset, len) = self.0.chunk_range(index)?;
        let claim = self.claim(offset, len)?;
        // One that is here and checked is only checked again: a damaged second copy must not reach it.
        let here = self.0.received().names().get(&index).copied();
        let hasher = self.layout().hasher(index);
        Ok(ChunkWriter::new(claim, index, (offset, len), here, hasher))
    }

    /// Receives one chunk that is in memory.
    pub fn put_chunk(&self, index: u64, name: ChunkName, bytes: &[u8]) -> Result<(), AssemblyError> {
        let mut writer = self.chunk(index)?;
        writer.write(bytes)?;
        writer.finish(name)
    }

    /// Takes a chunk from the same place of another file, if that really has this name there.
    pub fn take_chunk(
        &self,
        index: u64,
        name: ChunkName,
        other: &(impl Source + ?Sized),
    ) -> Result<bool, AssemblyError> {
        let (offset, len) = self.0.chunk_range(index)?;
        let claim = self.claim(offset, len)?;
        let _open = self.0.still_open()?;
        if self.0.received().names().get(&index) == Some(&name) {
            return Ok(true);
        }
        self.0.unname(&claim)?;
        let failed = |error| RootError::io("copy to", &self.0.plan.path, error);
        let data = &self.0.disk.data;
        if copy_source(other, offset, data, offset, len).map_err(failed)? != len {
            return Ok(false);
        }
        // Checked on the copy: the other file may change at any moment.
        if name_chunk(data, self.layout(), index).map_err(failed)? != Some(name) {
            return Ok(false);
        }
        self.0.note(Record::Chunk { index, name })?;
        Ok(true)
    }

    /// Receives bytes at any offset. They are checked when the file is complete.
    pub fn put_range(&self, offset: u64, bytes: &[u8]) -> Result<(), AssemblyError> {
        let len = bytes.len() as u64;
        let claim = self.claim(offset, len)?;
        let _open = self.0.still_open()?;
        if self.0.is_named(&claim) && self.0.has_already(offset, bytes)? {
            return Ok(());
        }
        self.0.unname(&claim)?;
        self.0.write_at(bytes, offset)?;
        self.0.note(Record::Range { offset, len })
    }

    /// Takes bytes from another file; `false` when it does not have them.
    pub fn copy_from(
        &self,
        offset: u64,
        other: &(impl Source + ?Sized),
        from: u64,
        len: u64,
    ) -> Result<bool, AssemblyError> {
        let claim = self.claim(offset, len)?;
        let _open = self.0.still_open()?;
        if self.0.is_named(&claim) {
            // Another sender of the same file brought it, checked; this one's word is no better.
            return Ok(true);
        }
        self.0.unname(&claim)?;
        let copied = copy_source(other, from, &self.0.disk.data, offset, len)
            .map_err(|error| RootError::io("copy to", &self.0.plan.path, error))?;
        if copied == len {
            self.0.note(Record::Range { offset, len })?;
        }
        Ok(copied == len)
    }

    /// Checks that everything arrived and is what `digest` says, and gives the file its name.
    ///
    /// With the wrong digest nothing appears, and everything is asked for again.
    pub fn commit(&self, digest: Digest, existing: Existing) -> Result<Meta, AssemblyError> {
        self.commit_by(digest, |inner| inner.publish(existing))
    }

    /// The same for a file whose place is not in this root: `publish` is handed the checked content and must make it
    /// durable there. When it fails, everything stays for another try.
    pub fn commit_elsewhere(
        &self,
        digest: Digest,
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
        digest: Digest,
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
        let len = len.map_err(|error| RootError::io("look at", &inner.plan.path, error))?;
        if len != inner.plan.size {
            // Whoever owns the folder has put something behind it.
            return Err(RootError::Changing(inner.plan.path.clone()).into());
        }
        let found = inner.digest()?;
        if found != digest {
            inner.forget()?;
            return Err(AssemblyError::WrongDigest {
                path: inner.plan.path.clone(),
                found,
            });
        }
        let meta = publish(inner)?;
        *phase = Phase::Finished;
        Ok(meta)
    }

    /// Removes all traces.
    pub fn discard(self) -> Result<(), AssemblyError> {
        let mut phase = self.0.phase.write().unwrap_or_else(PoisonError::into_inner);
        *phase = Phase::Finished;
        remove_staged(&self.0.root, &self.0.id)?;
        // Others may hold it for a while yet, and the next file needs the room now.
        sys::empty_if_nameless(&self.0.disk.data);
        Ok(())
    }

    /// Keeps others away from the chunks a range lies in.
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

    /// While the answer is held the file is not published. While it is being published nobody waits here.
    fn still_open(&self) -> Result<RwLockReadGuard<'_, Phase>, AssemblyError> {
        let phase = match self.phase.try_read() {
            Ok(phase) => phase,
            Err(TryLockError::Poisoned(phase)) => phase.into_inner(),
            // That may take long, and a thread that waits for it is missed elsewhere.
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

    /// Whether all chunks of a claim were checked when they arrived.
    fn is_named(&self, claim: &Claim) -> bool {
        let received = self.received();
        claim
            .chunks
            .clone()
            .all(|index| received.names().contains_key(&index))
    }

    /// Whether these bytes are here.
    fn has_already(&self, offset: u64, bytes: &[u8]) -> Result<bool, RootError> {
        let mut here = vec![0; bytes.len()];
        let read = self.disk.data.read_exact_at(&mut here, offset);
        read.map_err(|error| RootError::io("read", &self.plan.path, error))?;
        Ok(here == bytes)
    }

    /// Notes, before chunks are written over, that what is known of them does not hold any more: a process that is
    /// killed meanwhile must not leave a name to other bytes.
    fn unname(&self, claim: &Claim) -> Result<(), AssemblyError> {
        let named: Vec<u64> = {
            let received = self.received();
            let is_named = |index: &u64| received.names().contains_key(index);
            claim.chunks.clone().filter(is_named).collect()
        };
        named
            .into_iter()
            .try_for_each(|index| self.note(Record::Gone { index }))
    }

    /// Notes what arrived; only after its bytes were written.
    fn note(&self, record: Record) -> Result<(), AssemblyError> {
        let mut received = self.received();
        sys::append(&self.disk.journal, &record.encode())
            .map_err(|error| RootError::io("note progress of", &self.plan.path, error))?;
        received.add(self.layout(), record);
        Ok(())
    }

    /// The digest of what is here.
    fn digest(&self) -> Result<Digest, AssemblyError> {
        let names: Vec<ChunkName> = self.all_names()?.into_values().collect();
        Ok(self.layout().combine(&names).expect("every chunk has a name now"))
    }

    /// The names of all chunks as they are here, reading only those that were not checked on arrival.
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
        let Self { root, plan, disk, .. } = self;
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

    /// The file has its name. What cannot be removed now, as on Windows what is still open, goes with the next sweep.
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

    /// After a restart of the machine only chunks that can be read and have their name are believed.
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

/// Chunks one writer has for himself.
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
