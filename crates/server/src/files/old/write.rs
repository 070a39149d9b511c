//! A file that is being written in the old way: what of it was sent, what was found the same, and all such files.
//!
//! The original's client says neither who it is nor when it is done. It goes through the file once, from its beginning,
//! asks about a range and sends it right away if it differs: by that it is told from those who only read the file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use paddlecloud_api::files::{UnfinishedUpload, WirePath};
use paddlecloud_pfs::quota::Reservation;
use paddlecloud_pfs::root::{StagedFile, Stamp};
use paddlecloud_pfs::staging::{KEEP_UNFINISHED, StagedId};
use paddlecloud_pfs::{Place, Space};

use crate::files::FilesError;
use crate::files::spans::Spans;

/// Files that are being written at a time; the oldest way of all to fill a memory is to begin and never end.
const MOST_AT_ONCE: usize = 1000;
/// Of these one user's.
pub(super) const MOST_OF_ONE: usize = 200;
/// A file that was begun is given up so long after the last request for it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);

/// A client that announced a file begins to ask about it right away. Whoever comes later may be another, who reads.
const ASKS_WITHIN: Duration = Duration::from_secs(10);

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
    pub(super) staged: Option<StagedFile>,
    pub(super) room: Option<Reservation>,
    pub(super) posted: Spans,
    pub(super) compared: Option<Stamp>,
}

pub(super) struct OldWrite {
    pub(super) size: u64,
    pub(super) staged: Option<StagedFile>,
    room: Option<Reservation>,
    /// What was sent.
    pub(super) posted: Spans,
    /// What the client was told the sum of, and found the same if it went on without sending it.
    told: Spans,
    /// The file those sums are of.
    compared: Option<Stamp>,
    /// Where the client goes on: behind the range it was told of or sent last.
    next: u64,
    /// Whether somebody else asks about the file, too. Then sums are told to nobody: the client sends all that is left.
    is_read: bool,
    /// Ranges that are on their way in.
    arriving: usize,
    /// Whether somebody looks again when the client has fallen silent.
    watched: bool,
    /// Being published, published or given up; some may still hold it.
    is_over: bool,
    pub(super) used: Instant,
}

/// What whoever asks about a range is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// The sum of so many bytes.
    Sum(u64),
    /// How many bytes there are, and no sum: a client that writes will send them, one that reads will fetch them.
    Length,
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
            told: Spans::default(),
            compared: None,
            next: 0,
            is_read: false,
            arriving: 0,
            watched: false,
            is_over: false,
            used: Instant::now(),
        }
    }

    /// Decides what somebody who may write the file is told of a range; nothing where the client is through, and
    /// whoever asks can only be one who reads.
    ///
    /// Whoever asks about another range than the next one only reads, or is the client behind whom a reader went
    /// ahead; which of them cannot be told. Nor who it is that begins long after the file was announced: a reader must not
    /// shorten what a client that is gone wanted shorter. With everything known the client is through, and a reader does no harm.
    pub(super) fn on_asked(&mut self, offset: u64, len: u64) -> Option<Telling> {
        if self.is_over {
            return None;
        }
        let is_late = self.next == 0 && self.used.elapsed() > ASKS_WITHIN;
        self.used = Instant::now();
        if is_late || (offset != self.next && !self.is_known()) {
            self.is_read = true;
        }
        Some(match self.is_read {
            true => Telling::Length,
            // Of a file that is to get shorter only what will stay is told.
            false => Telling::Sum(len.min(self.size.saturating_sub(offset))),
        })
    }

    /// Notes that the sum of a range was told; says whether somebody must look later what became of it.
    pub(super) fn on_told(&mut self, from: u64, to: u64, stamp: Option<Stamp>) -> bool {
        if self.compared != stamp {
            // Another file by now: what was told before does not hold for it.
            self.told = Spans::default();
            self.compared = stamp;
        }
        if self.is_over || from != self.next {
            return false;
        }
        self.told.add(from, to);
        self.next = to;
        !std::mem::replace(&mut self.watched, true)
    }

    /// A range that is sent is not the same, and until it is here whole it is not known at all. What was told of the
    /// ranges behind it was told to somebody else: the client has not come there yet.
    pub(super) fn on_arriving(&mut self, from: u64, to: u64) {
        self.told.remove(from, u64::MAX);
        self.posted.remove(from, to);
        self.next = to;
        self.arriving += 1;
        self.used = Instant::now();
    }

    /// A range is not on its way any more, whether it came whole or not.
    pub(super) fn on_arrived(&mut self) {
        self.arriving -= 1;
        self.used = Instant::now();
    }

    /// Whether the client has asked for nothing and sent nothing for so long. Then it is not watched any more.
    pub(super) fn is_silent_for(&mut self, silence: Duration) -> bool {
        let is_silent = self.arriving == 0 && self.used.elapsed() >= silence;
        self.watched &= !is_silent;
        is_silent
    }

    /// Takes out what there is if every range was sent or found the same, and nothing came for so long that might
    /// change that. Only one has it: for all others it is over.
    pub(super) fn take_complete(&mut self, silence: Duration) -> Option<Complete> {
        if !self.is_known() || self.used.elapsed() < silence {
            return None;
        }
        self.is_over = true;
        Some(Complete {
            size: self.size,
            staged: self.staged.take(),
            room: self.room.take(),
            posted: std::mem::take(&mut self.posted),
            compared: self.compared.take(),
        })
    }

    /// Where somebody else reads, it takes the client's own last range to know that it is through.
    fn is_known(&self) -> bool {
        let is_through = !self.is_read || self.posted.end() >= self.size;
        let is_at_rest = !self.is_over && self.arriving == 0;
        is_at_rest && is_through && self.posted.and(&self.told).gaps(self.size).is_empty()
    }

    /// Whether no client came back for so long. One that has sent all there is need not: its file waits for its turn to be
    /// published, and stays as long as other unfinished uploads do.
    fn is_unused_for(&self, age: Duration) -> bool {
        let age = match self.is_known() {
            true => age.max(KEEP_UNFINISHED),
            false => age,
        };
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
