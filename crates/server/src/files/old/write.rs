//! A file that is being written by the old protocol: which ranges have arrived. Also the list of all such files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use paddlecloud_api::files::{UnfinishedUpload, WirePath};
use paddlecloud_pfs::quota::Reservation;
use paddlecloud_pfs::root::StagedFile;
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Place, Space};

use crate::files::FilesError;
use crate::files::spans::Spans;

/// The most files that are being written at a time, since clients may announce files without ever sending them.
const MOST_AT_ONCE: usize = 1000;
/// The most of these in one space.
pub(super) const MOST_OF_ONE: usize = 200;
/// An announced file is discarded this long after the last request for it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);

/// A write shared by its requests. The lock is only held briefly.
pub(super) type Shared = Arc<Mutex<OldWrite>>;

/// Files that are being written by the old protocol.
#[derive(Default)]
pub(in crate::files) struct OldWrites(Mutex<HashMap<Place, Begun>>);

/// A write, with its id in the list of uploads.
#[derive(Clone)]
pub(super) struct Begun {
    id: StagedId,
    pub(super) write: Shared,
}

/// A write that is being published. It stays in the list until the guard is dropped, however the publish ends.
pub(super) struct Publishing<'a> {
    writes: &'a OldWrites,
    place: &'a Place,
    write: &'a Shared,
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.writes.remove(self.place, self.write);
    }
}

/// The parts of a complete write, taken out so that nobody waits for a slow publish.
pub(super) struct Complete {
    pub(super) size: u64,
    pub(super) staged: StagedFile,
    pub(super) room: Option<Reservation>,
}

pub(super) struct OldWrite {
    pub(super) size: u64,
    pub(super) staged: Option<StagedFile>,
    room: Option<Reservation>,
    /// The ranges that were received.
    pub(super) posted: Spans,
    /// Ranges in flight.
    arriving: usize,
    /// Being published, published or discarded; requests may still hold it.
    is_over: bool,
    used: Instant,
}

impl OldWrites {
    pub(super) fn get(&self, place: &Place) -> Option<Shared> {
        lock(&self.0).get(place).map(|begun| begun.write.clone())
    }

    /// Drops a write: a client that announces a file again starts over.
    pub(super) fn forget(&self, place: &Place) {
        lock(&self.0).remove(place);
    }

    /// Removes a write, unless the client has started over meanwhile.
    pub(super) fn remove(&self, place: &Place, write: &Shared) {
        let mut writes = lock(&self.0);
        if writes
            .get(place)
            .is_some_and(|there| Arc::ptr_eq(&there.write, write))
        {
            writes.remove(place);
        }
    }

    /// Keeps a write in the list while it is published, until the guard is dropped.
    pub(super) fn publishing<'a>(&'a self, place: &'a Place, write: &'a Shared) -> Publishing<'a> {
        Publishing {
            writes: self,
            place,
            write,
        }
    }

    pub(super) fn begin(&self, place: Place, size: u64, room: Option<Reservation>) -> Result<(), FilesError> {
        let mut writes = lock(&self.0);
        let of_one = writes.keys().filter(|other| other.space == place.space).count();
        if writes.len() >= MOST_AT_ONCE || of_one >= MOST_OF_ONE {
            return Err(FilesError::BadRequest(
                "too many files are being written".to_owned(),
            ));
        }
        let begun = Begun {
            id: id_of(&place),
            write: Arc::new(Mutex::new(OldWrite::new(size, room))),
        };
        writes.insert(place, begun);
        Ok(())
    }

    /// Discards writes that no client resumed; returns how many.
    pub(in crate::files) fn expire(&self) -> usize {
        self.expire_unused_for(GIVEN_UP_AFTER)
    }

    pub(super) fn expire_unused_for(&self, age: Duration) -> usize {
        let unused = self.all().into_iter().filter(|(_, begun)| {
            // A locked write is in use.
            begun.write.try_lock().is_ok_and(|write| write.is_unused_for(age))
        });
        unused
            .map(|(place, begun)| self.remove(&place, &begun.write))
            .count()
    }

    /// The writes of a space.
    pub(super) fn in_space(&self, space: &Space) -> Vec<(Place, Begun)> {
        let mut all = self.all();
        all.retain(|(place, _)| place.space == *space);
        all
    }

    pub(super) fn all(&self) -> Vec<(Place, Begun)> {
        let writes = lock(&self.0);
        writes
            .iter()
            .map(|(place, begun)| (place.clone(), begun.clone()))
            .collect()
    }
}

impl Begun {
    pub(super) fn is(&self, id: &StagedId) -> bool {
        self.id == *id
    }

    /// Its entry in the owner's list of unfinished uploads.
    pub(super) fn view(&self, path: WirePath) -> UnfinishedUpload {
        let write = lock(&self.write);
        let (arrived, unused) = write.progress();
        let now = jiff::Timestamp::now();
        UnfinishedUpload {
            id: self.id.clone(),
            path,
            size: write.size,
            arrived,
            touched: now.checked_sub(unused).unwrap_or(now),
        }
    }
}

impl OldWrite {
    /// How many bytes arrived, and the time since the last request. A write that is being published is complete.
    fn progress(&self) -> (u64, Duration) {
        match self.is_over {
            true => (self.size, Duration::ZERO),
            false => (self.posted.total(), self.used.elapsed()),
        }
    }

    fn new(size: u64, room: Option<Reservation>) -> OldWrite {
        OldWrite {
            size,
            staged: None,
            room,
            posted: Spans::default(),
            arriving: 0,
            is_over: false,
            used: Instant::now(),
        }
    }

    /// Notes a request by a user with write access; `false` if the write is over, and the request only reads.
    pub(super) fn is_asked_about(&mut self) -> bool {
        self.used = Instant::now();
        !self.is_over
    }

    /// A range that is sent again does not count until all of it has arrived.
    pub(super) fn on_arriving(&mut self, from: u64, to: u64) {
        self.posted.remove(from, to);
        self.arriving += 1;
        self.used = Instant::now();
    }

    /// A range is no longer in flight, complete or not.
    pub(super) fn on_arrived(&mut self) {
        self.arriving -= 1;
        self.used = Instant::now();
    }

    /// Takes the parts of a write if every range has arrived and none is in flight. Only one caller gets them; for all others the
    /// write is over.
    pub(super) fn take_complete(&mut self) -> Option<Complete> {
        let is_at_rest = !self.is_over && self.arriving == 0;
        if !is_at_rest || !self.posted.gaps(self.size).is_empty() {
            return None;
        }
        let staged = self.staged.take()?;
        self.is_over = true;
        Some(Complete {
            size: self.size,
            staged,
            room: self.room.take(),
        })
    }

    /// Whether no request came for this long.
    fn is_unused_for(&self, age: Duration) -> bool {
        !self.is_over && self.arriving == 0 && self.used.elapsed() >= age
    }

    /// Ends the write and drops its data; requests that still send to it fail.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.staged = None;
        self.room = None;
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// An id like those of other uploads. It is not secret: every use checks the owner.
fn id_of(place: &Place) -> StagedId {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut hasher = blake3::Hasher::new();
    hasher.update(place.space.folder().as_bytes());
    hasher.update(place.path.as_bytes());
    hasher.update(&since.unwrap_or_default().as_nanos().to_le_bytes());
    let name = hasher.finalize().to_hex();
    name[..32].parse().expect("32 hex digits are such a name")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
