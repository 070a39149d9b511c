//! A file put together from pieces that arrive in any order, over any number of connections and restarts,
//! and appears only when its digest is right.
//!
//! Serves both ends: the server assembles uploads, the client downloads. What was received is journalled,
//! so whoever goes on later asks only for the rest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::chunk::{CHUNK, ChunkHasher, ChunkName, Layout, name_chunk, name_chunks};
use super::journal::{RECORD, Record, read_from};
use super::ranges::Ranges;
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{self, Existing, Meta, Root, RootError, copy_range, timestamps};
use crate::staging::{StagedId, staged_path};

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

/// Why a piece was refused or the file cannot appear.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    #[error("`{path}` has no bytes {offset}..{end}", end = .offset.saturating_add(*.len))]
    OutOfRange { path: RelPath, offset: u64, len: u64 },
    #[error("chunk {index} of `{path}` has another length than was announced")]
    WrongLength { path: RelPath, index: u64 },
    #[error("chunk {index} of `{path}` was damaged on the way")]
    DamagedChunk { path: RelPath, index: u64 },
    #[error("{missing} bytes of `{path}` have not arrived")]
    Incomplete { path: RelPath, missing: u64 },
    #[error("`{path}` arrived with another digest than announced ({found})")]
    WrongDigest { path: RelPath, found: Digest },
    #[error("the state of the unfinished `{id}` is unreadable")]
    State { id: StagedId, source: serde_json::Error },
    #[error(transparent)]
    Storage(#[from] RootError),
}

#[derive(Serialize, Deserialize)]
struct State {
    #[serde(flatten)]
    plan: AssemblyPlan,
    /// The run of the machine in which the journal was written; after another one, what it says may have
    /// been lost with the power.
    boot: String,
}

/// An unfinished file; cheap to clone, and usable from several threads at once.
#[derive(Debug, Clone)]
pub struct Assembly(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: Root,
    id: StagedId,
    plan: AssemblyPlan,
    folder: OwnedFd,
    data: File,
    journal: File,
    received: Mutex<Received>,
}

#[derive(Debug, Default)]
struct Received {
    ranges: Ranges,
    names: BTreeMap<u64, ChunkName>,
    /// How much of the journal is in here.
    position: u64,
}

impl Received {
    fn add(&mut self, layout: Layout, record: Record) {
        match record {
            Record::Chunk { index, name } => {
                if let Some((offset, len)) = layout.range(index) {
                    self.ranges.insert(offset..offset + len);
                    self.names.insert(index, name);
                }
            }
            Record::Range { offset, len } => {
                let end = offset.saturating_add(len).min(layout.size());
                self.ranges.insert(offset.min(end)..end);
                // What was known of the chunks it touches is no longer so.
                for index in offset / CHUNK..end.div_ceil(CHUNK) {
                    self.names.remove(&index);
                }
            }
        }
    }
}

impl Assembly {
    /// Begins a file of `root`.
    pub fn create(root: &Root, plan: AssemblyPlan) -> Result<Self, AssemblyError> {
        let id = StagedId::fresh();
        root::in_staging(root, |folder| {
            rustix::fs::mkdirat(folder, id.as_str(), Mode::from_raw_mode(0o700))
        })?;
        let path = staged_path(&id);
        let folder = root.open_dir_no_links(&path)?;
        let mode = Mode::from_raw_mode(if plan.executable { 0o755 } else { 0o644 });
        let data = make(&folder, &path, "data", OFlags::RDWR, mode)?;
        data.set_len(plan.size)
            .map_err(|error| RootError::io("reserve", &plan.path, error))?;
        make(
            &folder,
            &path,
            "journal",
            OFlags::RDWR,
            Mode::from_raw_mode(0o600),
        )?;
        let state = State {
            plan,
            boot: boot_id(),
        };
        write_state(&folder, &path, &state)?;
        Self::open(root, &id)
    }

    /// Goes on with a file begun earlier, by this process or one before it.
    pub fn open(root: &Root, id: &StagedId) -> Result<Self, AssemblyError> {
        let path = staged_path(id);
        let folder = root.open_dir_no_links(&path)?;
        let data = reopen(&folder, &path, "data", OFlags::RDWR)?;
        let journal = reopen(&folder, &path, "journal", OFlags::RDWR | OFlags::APPEND)?;
        let mut text = String::new();
        reopen(&folder, &path, "state", OFlags::RDONLY)?
            .read_to_string(&mut text)
            .map_err(|error| RootError::io("read", &path, error))?;
        let state: State = serde_json::from_str(&text).map_err(|source| AssemblyError::State {
            id: id.clone(),
            source,
        })?;
        drop_torn_record(&journal).map_err(|error| RootError::io("mend", &path, error))?;
        let (id, plan) = (id.clone(), state.plan.clone());
        let received = Mutex::default();
        let assembly = Self(Arc::new(Inner {
            root: root.clone(),
            id,
            plan,
            folder,
            data,
            journal,
            received,
        }));
        if state.boot != boot_id() {
            assembly.distrust(state)?;
        }
        drop(assembly.refreshed()?);
        Ok(assembly)
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
        Layout::of(self.0.plan.size)
    }

    /// The ranges that have not arrived, in order.
    pub fn missing(&self) -> Result<Vec<Range<u64>>, AssemblyError> {
        Ok(self.refreshed()?.ranges.gaps(self.0.plan.size))
    }

    /// Begins to receive one chunk; its bytes may be given in any pieces.
    pub fn chunk(&self, index: u64) -> Result<ChunkWriter, AssemblyError> {
        let range = self.layout().range(index);
        let (offset, len) = range.ok_or_else(|| self.out_of_range(index.saturating_mul(CHUNK), CHUNK))?;
        let hasher = self.layout().hasher(index);
        Ok(ChunkWriter {
            assembly: self.clone(),
            index,
            offset,
            left: len,
            hasher,
        })
    }

    /// Receives one chunk that is in memory.
    pub fn put_chunk(&self, index: u64, name: ChunkName, bytes: &[u8]) -> Result<(), AssemblyError> {
        let mut writer = self.chunk(index)?;
        writer.write(bytes)?;
        writer.finish(name)
    }

    /// Takes a chunk from the same place of another file, if that really has this name there.
    pub fn take_chunk(&self, index: u64, name: ChunkName, other: &File) -> Result<bool, AssemblyError> {
        let range = self.layout().range(index);
        let (offset, len) = range.ok_or_else(|| self.out_of_range(index.saturating_mul(CHUNK), CHUNK))?;
        let failed = |error| RootError::io("copy to", &self.0.plan.path, error);
        if copy_range(other, offset, &self.0.data, offset, len).map_err(failed)? != len {
            return Ok(false);
        }
        // Checked on the copy: the other file may change at any moment.
        if name_chunk(&self.0.data, self.layout(), index).map_err(failed)? != Some(name) {
            return Ok(false);
        }
        self.note(Record::Chunk { index, name })?;
        Ok(true)
    }

    /// Receives bytes at any offset. They are checked when the file is complete.
    pub fn put_range(&self, offset: u64, bytes: &[u8]) -> Result<(), AssemblyError> {
        let len = bytes.len() as u64;
        self.check_range(offset, len)?;
        self.0
            .data
            .write_all_at(bytes, offset)
            .map_err(|error| RootError::io("write", &self.0.plan.path, error))?;
        self.note(Record::Range { offset, len })
    }

    /// Takes bytes from another file; `false` when it does not have them.
    pub fn copy_from(&self, offset: u64, other: &File, from: u64, len: u64) -> Result<bool, AssemblyError> {
        self.check_range(offset, len)?;
        let copied = copy_range(other, from, &self.0.data, offset, len)
            .map_err(|error| RootError::io("copy to", &self.0.plan.path, error))?;
        if copied == len {
            self.note(Record::Range { offset, len })?;
        }
        Ok(copied == len)
    }

    /// Checks that everything arrived and is what `digest` says, and gives the file its name.
    ///
    /// With the wrong digest nothing appears, and all that was not checked chunk by chunk is asked for again.
    pub fn commit(&self, digest: Digest, existing: Existing) -> Result<Meta, AssemblyError> {
        let inner = &*self.0;
        let missing: u64 = self.missing()?.iter().map(|gap| gap.end - gap.start).sum();
        if missing > 0 {
            return Err(AssemblyError::Incomplete {
                path: inner.plan.path.clone(),
                missing,
            });
        }
        let found = self.digest()?;
        if found != digest {
            self.forget()?;
            return Err(AssemblyError::WrongDigest {
                path: inner.plan.path.clone(),
                found,
            });
        }
        Ok(self.publish(existing)?)
    }

    /// Removes all traces.
    pub fn discard(self) -> Result<(), AssemblyError> {
        Ok(crate::staging::remove_staged(&self.0.root, &self.0.id)?)
    }

    /// The digest of what is here, reading only chunks that were not checked on arrival.
    fn digest(&self) -> Result<Digest, AssemblyError> {
        let mut names = self.refreshed()?.names.clone();
        let unnamed: Vec<u64> = (0..self.layout().count())
            .filter(|index| !names.contains_key(index))
            .collect();
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let read = name_chunks(&self.0.data, self.layout(), &unnamed, threads)
            .map_err(|error| RootError::io("read", &self.0.plan.path, error))?
            .ok_or_else(|| RootError::Changing(self.0.plan.path.clone()))?;
        names.extend(unnamed.into_iter().zip(read));
        let names: Vec<ChunkName> = names.into_values().collect();
        Ok(self.layout().combine(&names).expect("every chunk has a name now"))
    }

    fn publish(&self, existing: Existing) -> Result<Meta, RootError> {
        let Inner {
            root,
            id,
            plan,
            folder,
            data,
            ..
        } = &*self.0;
        let failed = |errno| RootError::errno("publish", &plan.path, errno);
        if let Some(mtime) = plan.mtime {
            rustix::fs::futimens(data, &timestamps(mtime)).map_err(failed)?;
        }
        root.sync_fd(data, &plan.path)?;
        let (parent, name) = root.open_parent(&plan.path)?;
        root::publish_node((folder, b"data"), (&parent, name), existing).map_err(failed)?;
        root.sync_fd(&parent, &plan.path)?;
        crate::staging::remove_staged(root, id)?;
        let stat = rustix::fs::fstat(data).map_err(failed)?;
        Meta::new(&stat, || Err(RootError::NotAFile(plan.path.clone())))
    }

    /// Forgets everything that was received.
    fn forget(&self) -> Result<(), AssemblyError> {
        let mut received = self.lock();
        self.0
            .journal
            .set_len(0)
            .map_err(|error| RootError::io("empty", &self.0.plan.path, error))?;
        *received = Received::default();
        Ok(())
    }

    /// After a restart of the machine only chunks that can be read and have their name are believed.
    fn distrust(&self, state: State) -> Result<(), AssemblyError> {
        let failed = |error| RootError::io("check", &self.0.plan.path, error);
        let names = self.refreshed()?.names.clone();
        self.forget()?;
        for (index, name) in names {
            if name_chunk(&self.0.data, self.layout(), index).map_err(failed)? == Some(name) {
                self.note(Record::Chunk { index, name })?;
            }
        }
        let state = State {
            boot: boot_id(),
            ..state
        };
        Ok(write_state(&self.0.folder, &staged_path(&self.0.id), &state)?)
    }

    /// Notes what arrived; only after its bytes were written.
    fn note(&self, record: Record) -> Result<(), AssemblyError> {
        let mut received = self.lock();
        (&self.0.journal)
            .write_all(&record.encode())
            .map_err(|error| RootError::io("note progress of", &self.0.plan.path, error))?;
        received.add(self.layout(), record);
        Ok(())
    }

    /// What was received, by this handle or another one on the same file.
    fn refreshed(&self) -> Result<MutexGuard<'_, Received>, AssemblyError> {
        let failed = |error| RootError::io("read the progress of", &self.0.plan.path, error);
        let mut received = self.lock();
        // Shorter than before: another handle found the digest wrong and began anew.
        if self.0.journal.metadata().map_err(failed)?.len() < received.position {
            *received = Received::default();
        }
        let (records, position) = read_from(&self.0.journal, received.position).map_err(failed)?;
        for record in records {
            received.add(self.layout(), record);
        }
        received.position = position;
        Ok(received)
    }

    fn lock(&self) -> MutexGuard<'_, Received> {
        self.0
            .received
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), AssemblyError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.0.plan.size => Ok(()),
            _ => Err(self.out_of_range(offset, len)),
        }
    }

    fn out_of_range(&self, offset: u64, len: u64) -> AssemblyError {
        AssemblyError::OutOfRange {
            path: self.0.plan.path.clone(),
            offset,
            len,
        }
    }
}

/// Receives one chunk piece by piece; it counts only after [`ChunkWriter::finish`].
#[derive(Debug)]
pub struct ChunkWriter {
    assembly: Assembly,
    index: u64,
    offset: u64,
    left: u64,
    hasher: ChunkHasher,
}

impl ChunkWriter {
    /// Writes the next bytes of the chunk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), AssemblyError> {
        let inner = &*self.assembly.0;
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| self.wrong_length())?;
        self.hasher.update(bytes);
        inner
            .data
            .write_all_at(bytes, self.offset)
            .map_err(|error| RootError::io("write", &inner.plan.path, error))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Accepts the chunk if it is complete and has this name.
    pub fn finish(self, name: ChunkName) -> Result<(), AssemblyError> {
        if self.left > 0 {
            return Err(self.wrong_length());
        }
        if self.hasher.finish() != name {
            let path = self.assembly.0.plan.path.clone();
            return Err(AssemblyError::DamagedChunk {
                path,
                index: self.index,
            });
        }
        self.assembly.note(Record::Chunk {
            index: self.index,
            name,
        })
    }

    fn wrong_length(&self) -> AssemblyError {
        AssemblyError::WrongLength {
            path: self.assembly.0.plan.path.clone(),
            index: self.index,
        }
    }
}

fn make(folder: &OwnedFd, shown: &RelPath, name: &str, flags: OFlags, mode: Mode) -> Result<File, RootError> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, mode)
        .map(File::from)
        .map_err(|errno| RootError::errno("begin", shown, errno))
}

fn reopen(folder: &OwnedFd, shown: &RelPath, name: &str, flags: OFlags) -> Result<File, RootError> {
    rustix::fs::openat(
        folder,
        name,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map(File::from)
    .map_err(|errno| RootError::errno("go on with", shown, errno))
}

/// Written aside and renamed: a state is whole or absent, and without one there is no unfinished file.
fn write_state(folder: &OwnedFd, shown: &RelPath, state: &State) -> Result<(), RootError> {
    let text = serde_json::to_vec(state).expect("strings and numbers always become JSON");
    let mut file = make(
        folder,
        shown,
        "state.new",
        OFlags::WRONLY,
        Mode::from_raw_mode(0o600),
    )?;
    file.write_all(&text)
        .map_err(|error| RootError::io("begin", shown, error))?;
    rustix::fs::renameat(folder, "state.new", folder, "state")
        .map_err(|errno| RootError::errno("begin", shown, errno))
}

fn drop_torn_record(journal: &File) -> std::io::Result<()> {
    let len = journal.metadata()?.len();
    let torn = len % RECORD as u64;
    if torn > 0 {
        journal.set_len(len - torn)
    } else {
        Ok(())
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
