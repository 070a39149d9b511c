//! A file that is being written in the old way: what of it has come, and all such files.

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

/// Files that are being written at a time; the oldest way of all to fill a memory is to begin and never end.
const MOST_AT_ONCE: usize = 1000;
/// Of these one user's.
pub(super) const MOST_OF_ONE: usize = 200;
/// A file that was begun is given up so long after the last request for it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);

/// One of them, as those hold it who work at it. Nobody holds the lock for long.
pub(super) type Shared = Arc<Mutex<OldWrite>>;

/// Files that are being written in the old way.
#[derive(Default)]
pub(in crate::files) struct OldWrites(Mutex<HashMap<Place, Begun>>);

/// One of them, with its name among the uploads.
#[derive(Clone)]
pub(super) struct Begun {
    id: StagedId,
    pub(super) write: Shared,
}

/// One that is being published: it is among the others until then, whatever becomes of it.
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

/// What there is of a complete one, taken out of it: publishing may take long, and nobody should wait for that.
pub(super) struct Complete {
    pub(super) size: u64,
    pub(super) staged: StagedFile,
    pub(super) room: Option<Reservation>,
}

pub(super) struct OldWrite {
    pub(super) size: u64,
    pub(super) staged: Option<StagedFile>,
    room: Option<Reservation>,
    /// What was sent.
    pub(super) posted: Spans,
    /// Ranges that are on their way in.
    arriving: usize,
    /// Being published, published or given up; some may still hold it.
    is_over: bool,
    used: Instant,
}

impl OldWrites {
    pub(super) fn get(&self, place: &Place) -> Option<Shared> {
        lock(&self.0).get(place).map(|begun| begun.write.clone())
    }

    /// Whoever announces a file again begins it anew.
    pub(super) fn forget(&self, place: &Place) {
        lock(&self.0).remove(place);
    }

    /// Takes one out, unless the client has begun anew meanwhile.
    pub(super) fn remove(&self, place: &Place, write: &Shared) {
        let mut writes = lock(&self.0);
        if writes
            .get(place)
            .is_some_and(|there| Arc::ptr_eq(&there.write, write))
        {
            writes.remove(place);
        }
    }

    /// Keeps one that is being published among the others until the guard goes.
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

    /// Gives up what no client came back to; returns how many.
    pub(in crate::files) fn expire(&self) -> usize {
        self.expire_unused_for(GIVEN_UP_AFTER)
    }

    pub(super) fn expire_unused_for(&self, age: Duration) -> usize {
        let unused = self.all().into_iter().filter(|(_, begun)| {
            // Whoever holds it uses it.
            begun.write.try_lock().is_ok_and(|write| write.is_unused_for(age))
        });
        unused
            .map(|(place, begun)| self.remove(&place, &begun.write))
            .count()
    }

    /// Those in a space.
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

    /// As its owner sees it among the uploads that were begun.
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
    /// How much was sent, and for how long nobody has asked or sent. Of one that is being published all is there.
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

    /// Notes that somebody who may write it asks about it; `false` when it is over, and whoever asks only reads.
    pub(super) fn is_asked_about(&mut self) -> bool {
        self.used = Instant::now();
        !self.is_over
    }

    /// Until a range that is sent is here whole it is not known at all.
    pub(super) fn on_arriving(&mut self, from: u64, to: u64) {
        self.posted.remove(from, to);
        self.arriving += 1;
        self.used = Instant::now();
    }

    /// A range is not on its way any more, whether it came whole or not.
    pub(super) fn on_arrived(&mut self) {
        self.arriving -= 1;
        self.used = Instant::now();
    }

    /// Takes out what there is if every range has come and none is on its way again. Only one has it: for all others it is
    /// over.
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

    /// Whether no client came back for so long.
    fn is_unused_for(&self, age: Duration) -> bool {
        !self.is_over && self.arriving == 0 && self.used.elapsed() >= age
    }

    /// Whoever still sends to it finds it gone, and what it still has goes.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.staged = None;
        self.room = None;
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// A name for it like those of other uploads. It is no secret: whose it is is looked at.
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
