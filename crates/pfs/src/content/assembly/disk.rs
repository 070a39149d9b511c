//! The three files of an unfinished file (`data`, `journal`, `state`) and who owns them.
//!
//! One process at a time, by a lock that goes with the process; inside it everyone shares one handle.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::received::Received;
use super::{AssemblyError, AssemblyPlan, Inner, Outline};
use crate::content::chunk::Layout;
use crate::content::journal::{RECORD, read_records};
use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{Root, RootError};
use crate::staging::{StagedId, staged_path};
use crate::sys::{self, Errno, FlockOperation, Mode, OFlags, OwnedFd};

#[derive(Serialize, Deserialize)]
pub(super) struct State {
    #[serde(flatten)]
    pub plan: AssemblyPlan,
    /// The run of the machine in which the journal was written; after another one, what it says may have
    /// been lost with the power.
    pub boot: String,
    #[serde(default)]
    pub began: Option<Mtime>,
}

#[derive(Debug)]
pub(super) struct Disk {
    pub folder: OwnedFd,
    pub data: File,
    pub journal: File,
}

impl Disk {
    /// Makes the files of a new one; without `state`, written last, there is nothing to go on with.
    pub fn create(root: &Root, id: &StagedId, state: &State) -> Result<(), RootError> {
        let path = staged_path(id);
        let folder = root.open_dir_no_links(&path)?;
        let mode = Mode::from_raw_mode(if state.plan.executable { 0o755 } else { 0o644 });
        let data = make(&folder, &path, "data", mode)?;
        data.set_len(state.plan.size)
            .map_err(|error| RootError::io("reserve", &state.plan.path, error))?;
        make(&folder, &path, "journal", Mode::from_raw_mode(0o600))?;
        write_state(&folder, &path, state)
    }

    /// Opens the files of one begun earlier and takes them for this process.
    pub fn open(root: &Root, id: &StagedId) -> Result<(Self, State), AssemblyError> {
        let path = staged_path(id);
        let folder = root.open_dir_no_links(&path)?;
        let data = reopen(&folder, &path, "data", OFlags::RDWR)?;
        let journal = reopen(&folder, &path, "journal", OFlags::RDWR | OFlags::APPEND)?;
        match sys::flock(&journal, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(AssemblyError::Busy(id.clone())),
            Err(errno) => return Err(RootError::errno("lock", &path, errno).into()),
        }
        drop_torn_record(&journal).map_err(|error| RootError::io("mend", &path, error))?;
        let state = read_state(&folder, id)?;
        Ok((
            Self {
                folder,
                data,
                journal,
            },
            state,
        ))
    }
}

fn make(folder: &OwnedFd, shown: &RelPath, name: &str, mode: Mode) -> Result<File, RootError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(folder, name, flags, mode)
        .map(File::from)
        .map_err(|errno| RootError::errno("begin", shown, errno))
}

fn reopen(folder: &OwnedFd, shown: &RelPath, name: &str, flags: OFlags) -> Result<File, RootError> {
    sys::openat(
        folder,
        name,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map(File::from)
    .map_err(|errno| RootError::errno("go on with", shown, errno))
}

/// What an unfinished file is going to be, without taking it; `None` when this is no such or just going away.
pub(super) fn peek(root: &Root, id: &StagedId) -> Option<AssemblyPlan> {
    let folder = root.open_dir_no_links(&staged_path(id)).ok()?;
    read_state(&folder, id).ok().map(|state| state.plan)
}

/// Like [`peek`], with how much of it arrived by its journal's word.
pub(super) fn outline(root: &Root, id: &StagedId) -> Option<Outline> {
    let path = staged_path(id);
    let folder = root.open_dir_no_links(&path).ok()?;
    let plan = read_state(&folder, id).ok()?.plan;
    let journal = reopen(&folder, &path, "journal", OFlags::RDONLY).ok()?;
    let layout = Layout::of(plan.size);
    let received = Received::replay(layout, read_records(&journal).ok()?);
    let missing: u64 = received
        .missing(layout)
        .iter()
        .map(|gap| gap.end - gap.start)
        .sum();
    Some(Outline {
        arrived: plan.size - missing,
        plan,
    })
}

fn read_state(folder: &OwnedFd, id: &StagedId) -> Result<State, AssemblyError> {
    let path = staged_path(id);
    let mut text = String::new();
    reopen(folder, &path, "state", OFlags::RDONLY)?
        .read_to_string(&mut text)
        .map_err(|error| RootError::io("read", &path, error))?;
    serde_json::from_str(&text).map_err(|source| AssemblyError::State {
        id: id.clone(),
        source,
    })
}

/// Written aside and renamed: a state is whole or absent.
pub(super) fn write_state(folder: &OwnedFd, shown: &RelPath, state: &State) -> Result<(), RootError> {
    let failed = |errno| RootError::errno("begin", shown, errno);
    let text = serde_json::to_vec(state).expect("strings and numbers always become JSON");
    let aside = format!("state.{}", crate::root::fresh_name());
    let mut file = make(folder, shown, &aside, Mode::from_raw_mode(0o600))?;
    file.write_all(&text)
        .map_err(|error| RootError::io("begin", shown, error))?;
    sys::renameat(folder, aside.as_str(), folder, "state").map_err(failed)
}

fn drop_torn_record(journal: &File) -> io::Result<()> {
    let len = journal.metadata()?.len();
    let torn = len % RECORD as u64;
    if torn > 0 {
        journal.set_len(len - torn)
    } else {
        Ok(())
    }
}

/// The place of one unfinished file. Whoever opens it holds its lock, and nobody else's: after a restart of the machine
/// all of the file is read meanwhile.
type Slot = Arc<Mutex<Weak<Inner>>>;

/// The unfinished files that are open in this process, by device and inode of the folder they lie in.
static OPEN: LazyLock<Mutex<HashMap<(u64, u64), Slot>>> = LazyLock::new(Mutex::default);

/// Hands out the handle that is open already, or opens one; never two for one unfinished file.
pub(super) fn shared(
    root: &Root,
    id: &StagedId,
    open: impl FnOnce() -> Result<Inner, AssemblyError>,
) -> Result<Arc<Inner>, AssemblyError> {
    let stamp = root.stat_link(&staged_path(id))?.stamp;
    let key = (stamp.device, stamp.inode);
    let slot = slot(key);
    let mut open_now = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(inner) = open_now.upgrade() {
        return Ok(inner);
    }
    let inner = Arc::new(open()?);
    *open_now = Arc::downgrade(&inner);
    Ok(inner)
}

fn slot(key: (u64, u64)) -> Slot {
    let mut table = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Nobody can come by a slot while the table is held, so one that is nobody's stays so.
    table.retain(|_, slot| {
        let is_open = slot.try_lock().is_ok_and(|inner| inner.strong_count() > 0);
        is_open || Arc::strong_count(slot) > 1
    });
    table.entry(key).or_default().clone()
}
