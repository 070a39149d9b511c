//! The original's way of writing a file: announced by its size, compared and sent range by range, never ended.
//!
//! What is sent is staged; the file appears once every range was posted, or asked about and not posted, which is how an
//! old client says that it is the same. While any of it is on its way in, nothing appears. A server that is started
//! again forgets; the old client then sends again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};
use paddlecloud_pfs::quota::{Amount, Reservation};
use paddlecloud_pfs::root::{FileAttributes, StagedFile, Stamp};
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Existing, PfsPath, Place, RootError};

use super::content::PIECE;
use super::spans::Spans;
use super::{Files, FilesError, Reached};
use crate::auth::Caller;

/// Largest file the original took.
const MOST_BYTES: u64 = 1 << 40;
/// Range lengths the original took.
const RANGES: std::ops::RangeInclusive<u64> = 4 << 10..=32 << 20;
/// Files that are being written at a time; the oldest way of all to fill a memory is to begin and never end.
const MOST_AT_ONCE: usize = 1000;
/// Of these one user's.
const MOST_OF_ONE: usize = 200;
/// A file that was begun is given up so long after the last request for it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);
/// How long an old client may take to begin to send a range it was just told the sum of.
const SENDS_WITHIN: Duration = Duration::from_secs(2);

/// Files that are being written in the old way.
#[derive(Default)]
pub(super) struct OldWrites(Mutex<HashMap<Place, Arc<Mutex<OldWrite>>>>);

struct OldWrite {
    size: u64,
    staged: Option<StagedFile>,
    /// What was sent.
    posted: Spans,
    /// What the client was told the sum of, and may have found the same.
    asked: Spans,
    /// The file those sums are of.
    compared: Option<Stamp>,
    /// The range that was asked about last, until the client sends it.
    last_asked: Option<(u64, u64)>,
    /// Ranges that are on their way in.
    arriving: usize,
    /// Whether somebody looks again when the client has fallen silent.
    watched: bool,
    used: Instant,
    room: Option<Reservation>,
}

/// What is known of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSum {
    pub offset: u64,
    pub len: u64,
    /// MD5 in hex; empty where there is nothing to compare with.
    pub checksum: String,
    /// Whether the caller must look, by [`Files::old_settle`], what becomes of the file when nothing more comes.
    pub watch: bool,
}

/// Whether a file that is written in the old way must be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    Later,
}

impl OldWrites {
    fn get(&self, place: &Place) -> Option<Arc<Mutex<OldWrite>>> {
        lock(&self.0).get(place).cloned()
    }

    /// Takes one out, unless the client has begun anew meanwhile.
    fn remove(&self, place: &Place, write: &Arc<Mutex<OldWrite>>) {
        let mut writes = lock(&self.0);
        if writes.get(place).is_some_and(|there| Arc::ptr_eq(there, write)) {
            writes.remove(place);
        }
    }

    fn begin(&self, place: Place, write: OldWrite) -> Result<(), FilesError> {
        let mut writes = lock(&self.0);
        let of_one = writes.keys().filter(|other| other.space == place.space).count();
        if writes.len() >= MOST_AT_ONCE || of_one >= MOST_OF_ONE {
            return Err(FilesError::BadRequest(
                "too many files are being written".to_owned(),
            ));
        }
        writes.insert(place, Arc::new(Mutex::new(write)));
        Ok(())
    }

    /// Gives up what no client came back to; returns how many.
    pub(super) fn expire(&self) -> usize {
        self.expire_unused_for(GIVEN_UP_AFTER)
    }

    fn expire_unused_for(&self, age: Duration) -> usize {
        let all: Vec<_> = lock(&self.0)
            .iter()
            .map(|(place, write)| (place.clone(), write.clone()))
            .collect();
        let unused = all.iter().filter(|(_, write)| {
            // Whoever holds it uses it.
            write
                .try_lock()
                .is_ok_and(|write| write.arriving == 0 && write.used.elapsed() >= age)
        });
        unused.map(|(place, write)| self.remove(place, write)).count()
    }
}

impl Files {
    /// Announces a file of this size.
    pub fn old_touch(&self, caller: &Caller, path: &PfsPath, size: u64) -> Result<(), FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        reached.not_the_space()?;
        if size > MOST_BYTES {
            return Err(FilesError::BadRequest(format!("bad file size:{size}")));
        }
        let _acting = self.act(&reached.place.space)?;
        let old = reached.stat_if_there()?;
        if old.as_ref().is_some_and(|old| old.is_dir()) {
            return Err(FilesError::BadRequest("directory already exist".to_owned()));
        }
        // Whoever announces a file again begins it anew.
        lock(&self.0.old_writes.0).remove(&reached.place);
        if size == 0 {
            return reached
                .root
                .write_file(&reached.place.path, b"", Existing::Replace)
                .map_err(reached.failed());
        }
        let room = self.reserve(
            &reached.place.space,
            Amount {
                bytes: size,
                files: 1,
            },
        )?;
        self.0.old_writes.begin(reached.place, OldWrite::new(size, room))
    }

    /// The sum of a range, for the client to compare with its own.
    ///
    /// Of a file that is to get shorter only what will stay is told.
    pub fn old_range_sum(
        &self,
        caller: &Caller,
        path: &PfsPath,
        offset: u64,
        len: u64,
    ) -> Result<RangeSum, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        check_range(offset, len)?;
        let write = self.0.old_writes.get(&reached.place);
        let kept = match &write {
            Some(write) => len.min(lock(write).size.saturating_sub(offset)),
            None => len,
        };
        let _acting = self.act(&reached.place.space)?;
        let (checksum, read, stamp) = match reached.root.open_file(&reached.place.path) {
            Ok(file) => {
                let (checksum, read) = sum(&*file, offset, kept)?;
                (checksum, read, Some(file.meta().stamp))
            }
            Err(RootError::NotFound(_)) if write.is_some() => (String::new(), 0, None),
            Err(error) => return Err(reached.failed()(error)),
        };
        let watch = write.is_some_and(|write| lock(&write).on_asked(offset, offset + read, stamp));
        Ok(RangeSum {
            offset,
            len: read,
            checksum,
            watch,
        })
    }

    /// Begins to take in a range of an announced file.
    pub fn old_post(
        &self,
        caller: &Caller,
        path: &PfsPath,
        offset: u64,
        len: u64,
    ) -> Result<OldRangeIn, FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        let write = self.0.old_writes.get(&reached.place);
        let write = write.ok_or_else(|| FilesError::NotFound(path.to_string()))?;
        {
            let _acting = self.act(&reached.place.space)?;
            let mut write = lock(&write);
            if len > *RANGES.end() || offset.checked_add(len).is_none_or(|end| end > write.size) {
                return Err(FilesError::BadRequest("chunksize error".to_owned()));
            }
            if write.staged.is_none() {
                let staged = reached.root.staging().stage_file(FileAttributes::default());
                write.staged = Some(staged.map_err(reached.failed())?);
            }
            write.on_arriving(offset, offset + len);
        }
        Ok(OldRangeIn {
            files: self.clone(),
            reached,
            arriving: Arriving(write),
            start: offset,
            offset,
            end: offset + len,
        })
    }

    /// Publishes a file whose last range the client seems to have found the same, once it has fallen silent.
    pub fn old_settle(&self, caller: &Caller, path: &PfsPath) -> Result<Settled, FilesError> {
        self.settle_if_silent_for(caller, path, SENDS_WITHIN)
    }

    fn settle_if_silent_for(
        &self,
        caller: &Caller,
        path: &PfsPath,
        silence: Duration,
    ) -> Result<Settled, FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        let Some(write) = self.0.old_writes.get(&reached.place) else {
            return Ok(Settled::Done);
        };
        {
            let mut write = lock(&write);
            if write.arriving > 0 || write.used.elapsed() < silence {
                return Ok(Settled::Later);
            }
            write.watched = false;
        }
        self.old_publish(&reached, &write, silence)?;
        Ok(Settled::Done)
    }

    /// Publishes a file if all of it is known and nothing of it is on its way.
    fn old_publish(
        &self,
        reached: &Reached,
        shared: &Arc<Mutex<OldWrite>>,
        silence: Duration,
    ) -> Result<(), FilesError> {
        let _acting = self.act(&reached.place.space)?;
        let mut write = lock(shared);
        if !write.is_complete(silence) {
            return Ok(());
        }
        let published = self.old_publish_now(reached, &mut write);
        self.0.old_writes.remove(&reached.place, shared);
        published
    }

    fn old_publish_now(&self, reached: &Reached, write: &mut OldWrite) -> Result<(), FilesError> {
        let gaps = write.posted.gaps(write.size);
        let mut staged = write.staged.take();
        if !gaps.is_empty() {
            let old = reached.open_file()?;
            if Some(old.meta().stamp) != write.compared {
                return Err(reached.failed()(RootError::Changing(reached.place.path.clone())));
            }
            if staged.is_none() && old.meta().size == write.size {
                return Ok(());
            }
            let into = match &mut staged {
                Some(into) => into,
                none => {
                    let made = reached.root.staging().stage_file(FileAttributes::default());
                    none.insert(made.map_err(reached.failed())?)
                }
            };
            for (from, to) in gaps {
                copy(&*old, into, from, to)
                    .map_err(|error| FilesError::Disk(error, "copy what is the same"))?;
            }
        }
        let Some(staged) = staged else {
            return Ok(());
        };
        let replaced = reached.replaced()?;
        reached
            .root
            .publish_staged(staged, &reached.place.path, Existing::Replace)
            .map_err(reached.failed())?;
        if let Some(room) = write.room.take() {
            let written = Amount {
                bytes: write.size,
                files: 1,
            };
            room.settle(written, replaced);
        }
        self.0.hints.forget(&reached.place);
        Ok(())
    }
}

impl OldWrite {
    fn new(size: u64, room: Option<Reservation>) -> OldWrite {
        OldWrite {
            size,
            staged: None,
            posted: Spans::default(),
            asked: Spans::default(),
            compared: None,
            last_asked: None,
            arriving: 0,
            watched: false,
            used: Instant::now(),
            room,
        }
    }

    /// Notes that the client was told of a range; says whether somebody must look later what became of it.
    fn on_asked(&mut self, from: u64, to: u64, stamp: Option<Stamp>) -> bool {
        if self.compared != stamp {
            // Another file by now: what was told before does not hold for it.
            self.asked = Spans::default();
            self.compared = stamp;
        }
        self.asked.add(from, to);
        self.last_asked = Some((from, to));
        self.used = Instant::now();
        !std::mem::replace(&mut self.watched, true)
    }

    /// A range that is sent is not the same, and until it is here whole it is not known at all.
    fn on_arriving(&mut self, from: u64, to: u64) {
        self.asked.remove(from, to);
        self.posted.remove(from, to);
        self.last_asked.take_if(|(asked, _)| (from..to).contains(asked));
        self.arriving += 1;
        self.used = Instant::now();
    }

    /// Whether every range was sent or found the same. What was asked about a moment ago may still be sent.
    fn is_complete(&self, silence: Duration) -> bool {
        let is_awaited = self.last_asked.is_some() && self.used.elapsed() < silence;
        self.arriving == 0 && !is_awaited && self.posted.and(&self.asked).gaps(self.size).is_empty()
    }
}

/// Counts a range as on its way in until it is dropped.
struct Arriving(Arc<Mutex<OldWrite>>);

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut write = lock(&self.0);
        write.arriving -= 1;
        write.used = Instant::now();
    }
}

/// A range on its way in.
pub struct OldRangeIn {
    files: Files,
    reached: Reached,
    arriving: Arriving,
    start: u64,
    offset: u64,
    end: u64,
}

impl OldRangeIn {
    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        let next = self.offset + bytes.len() as u64;
        if next > self.end {
            return Err(FilesError::BadRequest("chunksize error".to_owned()));
        }
        let _acting = self.files.act(&self.reached.place.space)?;
        let write = lock(&self.arriving.0);
        // Gone: another request of the same client completed the file.
        let staged = write
            .staged
            .as_ref()
            .ok_or_else(|| FilesError::NotFound(self.reached.shown.to_string()))?;
        staged
            .write_at(bytes, self.offset)
            .map_err(|error| FilesError::Disk(error, "write"))?;
        self.offset = next;
        Ok(())
    }

    /// Counts the range; the file appears with the last one.
    pub fn finish(self) -> Result<(), FilesError> {
        if self.offset != self.end {
            return Err(FilesError::BadRequest("chunksize error".to_owned()));
        }
        let write = self.arriving.0.clone();
        lock(&write).posted.add(self.start, self.end);
        drop(self.arriving);
        self.files.old_publish(&self.reached, &write, SENDS_WITHIN)
    }
}

fn check_range(offset: u64, len: u64) -> Result<(), FilesError> {
    match RANGES.contains(&len) && offset <= MOST_BYTES {
        true => Ok(()),
        false => Err(FilesError::BadRequest("chunksize error".to_owned())),
    }
}

/// MD5 and length of what there is of a range.
fn sum(file: &dyn ReadAt, offset: u64, len: u64) -> Result<(String, u64), FilesError> {
    let mut hasher = Md5::new();
    let mut buffer = vec![0; PIECE];
    let mut done = 0;
    while done < len {
        let want = PIECE.min(usize::try_from(len - done).unwrap_or(PIECE));
        let read = file
            .read_at(&mut buffer[..want], offset + done)
            .map_err(|error| FilesError::Disk(error, "read"))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        done += read as u64;
    }
    let hex = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((hex, done))
}

fn copy(old: &dyn ReadAt, staged: &StagedFile, from: u64, to: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut here = from;
    while here < to {
        let want = PIECE.min(usize::try_from(to - here).unwrap_or(PIECE));
        let read = old.read_at(&mut buffer[..want], here)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        staged.write_at(&buffer[..read], here)?;
        here += read as u64;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
