//! The three files of an unfinished file (`data`, `journal`, `state`) and their owner.
//!
//! One process at a time owns them, by a lock that the kernel releases when the process exits. Within the process all callers
//! share one handle. If another process holds the lock, we wait briefly.
//!
//! Jobs can write to these files. Unexpected content is refused, and cannot make us block, read without end or allocate memory
//! for data that does not exist.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AssemblyError, AssemblyPlan, Inner, Outline, received};
use crate::content::chunk::Layout;
use crate::content::journal::{RECORD, longest};
use crate::entry::Mtime;
use crate::relpath::RelPath;
use crate::root::{Root, RootError, lock_within};
use crate::staging::{StagedId, staged_path};
use crate::sys::{self, Errno, FileType, FlockOperation, Mode, OFlags, OwnedFd};

/// The longest state file to read: four times the longest path with every byte escaped.
const LONGEST_STATE: u64 = 64 << 10;

/// How many times larger than the disk a planned file may be, because a disk may compress.
const LARGER_THAN_DISK: u64 = 16;
/// The limit for file systems that do not report their size.
const LARGEST: u64 = 1 << 50;

#[derive(Serialize, Deserialize)]
pub(super) struct State {
    #[serde(flatten)]
    pub plan: AssemblyPlan,
    /// The boot in which the journal was written. After a reboot, bytes that it lists may have been lost in a power cut.
    pub boot: String,
    #[serde(default)]
    pub began: Option<Mtime>,
}

/// How long to wait for another process that holds the lock.
const TAKEN_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Disk {
    pub folder: OwnedFd,
    pub data: File,
    pub journal: File,
}

impl Disk {
    /// Creates the files of a new assembly. `state` is written last; without it the assembly cannot be resumed.
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

    /// Opens the files of an existing assembly and locks them for this process.
    pub fn open(root: &Root, id: &StagedId) -> Result<(Self, State), AssemblyError> {
        let path = staged_path(id);
        let folder = root.open_dir_no_links(&path)?;
        let data = reopen(&folder, &path, "data", OFlags::RDWR)?;
        let journal = reopen(&folder, &path, "journal", OFlags::RDWR | OFlags::APPEND)?;
        match lock_within(&journal, FlockOperation::NonBlockingLockExclusive, TAKEN_WITHIN) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(AssemblyError::Busy(id.clone())),
            Err(errno) => return Err(RootError::errno("lock", &path, errno).into()),
        }
        let state = read_state(&folder, id)?;
        check_size(root, id, &state.plan, &data)?;
        let repaired = repair(&journal).map_err(|error| RootError::io("mend", &path, error))?;
        if repaired > longest(Layout::of(state.plan.size)) {
            return Err(refused(id, "its journal is too long"));
        }
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

/// Opens one of the files. Anything but a regular file is refused, and a pipe does not block.
fn reopen(folder: &OwnedFd, shown: &RelPath, name: &str, flags: OFlags) -> Result<File, RootError> {
    let failed = |errno| RootError::errno("resume", shown, errno);
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = sys::openat(folder, name, flags, Mode::empty()).map_err(failed)?;
    match FileType::from_raw_mode(sys::fstat(&file).map_err(failed)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(RootError::NotAFile(shown.clone())),
    }
}

/// The plan of an unfinished file, without locking it; `None` if there is no such file or it is being removed.
pub(super) fn peek(root: &Root, id: &StagedId) -> Option<AssemblyPlan> {
    look_at(root, id).map(|(plan, _)| plan)
}

/// The plan and the journal of an unfinished file that can be resumed.
fn look_at(root: &Root, id: &StagedId) -> Option<(AssemblyPlan, File)> {
    let path = staged_path(id);
    let folder = root.open_dir_no_links(&path).ok()?;
    let plan = read_state(&folder, id).ok()?.plan;
    let data = reopen(&folder, &path, "data", OFlags::RDONLY).ok()?;
    check_size(root, id, &plan, &data).ok()?;
    let journal = reopen(&folder, &path, "journal", OFlags::RDONLY).ok()?;
    let is_ours = journal.metadata().ok()?.len() <= longest(Layout::of(plan.size));
    is_ours.then_some((plan, journal))
}

/// Like [`peek`], with the number of bytes received according to the journal.
pub(super) fn outline(root: &Root, id: &StagedId) -> Option<Outline> {
    let (plan, journal) = look_at(root, id)?;
    let layout = Layout::of(plan.size);
    let arrived = received::arrived(&journal, layout).ok()?;
    Some(Outline { plan, arrived })
}

fn read_state(folder: &OwnedFd, id: &StagedId) -> Result<State, AssemblyError> {
    let path = staged_path(id);
    let mut text = Vec::new();
    reopen(folder, &path, "state", OFlags::RDONLY)?
        .take(LONGEST_STATE)
        .read_to_end(&mut text)
        .map_err(|error| RootError::io("read", &path, error))?;
    serde_json::from_slice(&text).map_err(|source| AssemblyError::State {
        id: id.clone(),
        source,
    })
}

/// The data file gets its full size at creation. A power cut or a job may have changed the size, or a job the plan.
fn check_size(root: &Root, id: &StagedId, plan: &AssemblyPlan, data: &File) -> Result<(), AssemblyError> {
    let found = data
        .metadata()
        .map_err(|error| RootError::io("stat", &plan.path, error))?;
    if found.len() != plan.size {
        return Err(refused(id, "its data has a different size than at its start"));
    }
    let largest = match root.free_space()? {
        (_, 0) => LARGEST,
        (_, disk) => disk.saturating_mul(LARGER_THAN_DISK).min(LARGEST),
    };
    match plan.size <= largest {
        true => Ok(()),
        false => Err(refused(id, "it is larger than the disk can hold")),
    }
}

fn refused(id: &StagedId, why: &str) -> AssemblyError {
    AssemblyError::State {
        id: id.clone(),
        source: serde::de::Error::custom(why),
    }
}

/// Writes to a temporary file and renames it: the state is complete or absent.
pub(super) fn write_state(folder: &OwnedFd, shown: &RelPath, state: &State) -> Result<(), RootError> {
    let failed = |errno| RootError::errno("begin", shown, errno);
    let text = serde_json::to_vec(state).expect("strings and numbers always become JSON");
    let aside = format!("state.{}", crate::root::fresh_name());
    let mut file = make(folder, shown, &aside, Mode::from_raw_mode(0o600))?;
    file.write_all(&text)
        .map_err(|error| RootError::io("begin", shown, error))?;
    sys::renameat(folder, aside.as_str(), folder, "state").map_err(failed)
}

/// Truncates a torn record at the end of a journal and returns the new length.
fn repair(journal: &File) -> io::Result<u64> {
    let len = journal.metadata()?.len();
    let torn = len % RECORD as u64;
    if torn > 0 {
        journal.set_len(len - torn)?;
    }
    Ok(len - torn)
}

/// One unfinished file. Opening it locks only this slot, because after a reboot opening reads the whole file.
type Slot = Arc<Mutex<Weak<Inner>>>;

/// The unfinished files that are open in this process, by device and inode of their folder.
static OPEN: LazyLock<Mutex<HashMap<(u64, u64), Slot>>> = LazyLock::new(Mutex::default);

/// Returns the handle that is already open, or opens one. There are never two for the same unfinished file.
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
    // Slots are handed out only under the table's lock, so an unused slot stays unused while we hold it.
    table.retain(|_, slot| {
        let is_open = slot.try_lock().is_ok_and(|inner| inner.strong_count() > 0);
        is_open || Arc::strong_count(slot) > 1
    });
    table.entry(key).or_default().clone()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::super::Assembly;
    use super::*;
    use crate::testing::{rel, scratch};

    fn plan(size: u64) -> AssemblyPlan {
        AssemblyPlan {
            path: rel("f"),
            size,
            executable: false,
            mtime: None,
        }
    }

    /// An unfinished file that is not open, and the folder of its three files.
    fn created(folder: &Path, root: &Root) -> (StagedId, PathBuf) {
        let id = Assembly::create(root, plan(10)).unwrap().id().clone();
        let place = folder.join(staged_path(&id).as_path());
        (id, place)
    }

    /// The unfinished file is neither listed nor resumed, and a new upload of the same file gets a new id.
    fn is_refused(root: &Root, id: &StagedId) {
        assert_eq!(Assembly::outline(root, id), None);
        assert!(Assembly::open(root, id).is_err());
        let other = Assembly::resume_or_create(root, plan(10)).unwrap();
        assert_ne!(other.id(), id);
    }

    #[test]
    fn a_pipe_in_place_of_a_file_does_not_block() {
        for name in ["state", "journal", "data"] {
            let (folder, root) = scratch();
            let (id, place) = created(folder.path(), &root);
            fs::remove_file(place.join(name)).unwrap();
            let made = std::process::Command::new("mkfifo")
                .arg(place.join(name))
                .status();
            assert!(made.unwrap().success());
            is_refused(&root, &id);
        }
    }

    #[test]
    fn files_that_only_claim_to_be_large_cost_nothing() {
        for (name, len) in [
            ("state", 1 << 40),
            ("data", 1 << 40),
            ("data", 9),
            ("journal", 1 << 40),
        ] {
            let (folder, root) = scratch();
            let (id, place) = created(folder.path(), &root);
            fs::File::options()
                .write(true)
                .open(place.join(name))
                .unwrap()
                .set_len(len)
                .unwrap();
            is_refused(&root, &id);
        }
    }

    #[test]
    fn a_plan_that_no_disk_could_hold_is_refused() {
        let (folder, root) = scratch();
        let (id, place) = created(folder.path(), &root);
        let text = fs::read_to_string(place.join("state")).unwrap();
        let huge = text.replace(r#""size":10"#, r#""size":9223372036854775807"#);
        assert_ne!(huge, text);
        fs::write(place.join("state"), huge).unwrap();
        is_refused(&root, &id);
    }
}
