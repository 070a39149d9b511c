//! The original's way of writing a file: announced by its size, compared and sent range by range, never ended.
//!
//! What is sent is staged; the file appears once every range was posted, or asked about and not posted, which is how an
//! old client says that it is the same. A server that is started again forgets; the old client then sends again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use md5::{Digest as _, Md5};
use paddlecloud_pfs::quota::{Amount, Reservation};
use paddlecloud_pfs::root::{FileAttributes, StagedFile};
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Existing, PfsPath, Place, RootError};

use super::content::PIECE;
use super::{Files, FilesError, Reached};
use crate::auth::Caller;

/// Largest file the original took.
const MOST_BYTES: u64 = 1 << 40;
/// Range lengths the original took.
const RANGES: std::ops::RangeInclusive<u64> = 4 << 10..=32 << 20;
/// Files that are being written at a time; the oldest way of all to fill a memory is to begin and never end.
const MOST_AT_ONCE: usize = 1000;

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
    room: Option<Reservation>,
}

/// What is known of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSum {
    pub offset: u64,
    pub len: u64,
    /// MD5 in hex; empty where there is nothing to compare with.
    pub checksum: String,
    /// Whether the file is complete unless the client sends this very range.
    pub may_be_last: bool,
}

impl OldWrites {
    fn get(&self, place: &Place) -> Option<Arc<Mutex<OldWrite>>> {
        lock(&self.0).get(place).cloned()
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
        let mut writes = lock(&self.0.old_writes.0);
        if writes.len() >= MOST_AT_ONCE {
            return Err(FilesError::BadRequest(
                "too many files are being written".to_owned(),
            ));
        }
        let write = OldWrite {
            size,
            staged: None,
            posted: Spans::default(),
            asked: Spans::default(),
            room,
        };
        writes.insert(reached.place, Arc::new(Mutex::new(write)));
        Ok(())
    }

    /// The sum of a range, for the client to compare with its own.
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
        let _acting = self.act(&reached.place.space)?;
        let (checksum, read, size) = match reached.root.open_file(&reached.place.path) {
            Ok(file) => {
                let (checksum, read) = sum(&*file, offset, len)?;
                (checksum, read, file.meta().size)
            }
            Err(RootError::NotFound(_)) if write.is_some() => (String::new(), 0, 0),
            Err(error) => return Err(reached.failed()(error)),
        };
        let may_be_last = write.is_some_and(|write| {
            let mut write = lock(&write);
            if size == write.size {
                write.asked.add(offset, offset + read);
            }
            write.staged.is_some() && write.is_covered()
        });
        Ok(RangeSum {
            offset,
            len: read,
            checksum,
            may_be_last,
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
        }
        Ok(OldRangeIn {
            files: self.clone(),
            reached,
            write,
            start: offset,
            offset,
            end: offset + len,
        })
    }

    /// Publishes a file whose last range the client seems to have found the same.
    pub fn old_settle(&self, caller: &Caller, path: &PfsPath) -> Result<(), FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        match self.0.old_writes.get(&reached.place) {
            Some(write) => self.old_publish(&reached, &write),
            None => Ok(()),
        }
    }

    fn old_publish(&self, reached: &Reached, write: &Mutex<OldWrite>) -> Result<(), FilesError> {
        let _acting = self.act(&reached.place.space)?;
        let mut write = lock(write);
        if !write.is_covered() {
            return Ok(());
        }
        let Some(staged) = write.staged.take() else {
            return Ok(());
        };
        let gaps = write.posted.gaps(write.size);
        if !gaps.is_empty() {
            let old = reached.open_file()?;
            for (from, to) in gaps {
                copy(&*old, &staged, from, to)
                    .map_err(|error| FilesError::Disk(error, "copy what is the same"))?;
            }
        }
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
        lock(&self.0.old_writes.0).remove(&reached.place);
        self.0.hints.forget(&reached.place);
        Ok(())
    }
}

impl OldWrite {
    fn is_covered(&self) -> bool {
        let mut known = self.posted.clone();
        self.asked.0.iter().for_each(|(from, to)| known.add(*from, *to));
        known.gaps(self.size).is_empty()
    }
}

/// A range on its way in.
pub struct OldRangeIn {
    files: Files,
    reached: Reached,
    write: Arc<Mutex<OldWrite>>,
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
        let write = lock(&self.write);
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
        lock(&self.write).posted.add(self.start, self.end);
        self.files.old_publish(&self.reached, &self.write)
    }
}

/// Stretches of a file, ascending and apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Spans(Vec<(u64, u64)>);

impl Spans {
    fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.0.push((from, to));
            self.0.sort_unstable();
            let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
            for (from, to) in self.0.drain(..) {
                match joined.last_mut() {
                    Some((_, end)) if from <= *end => *end = to.max(*end),
                    _ => joined.push((from, to)),
                }
            }
            self.0 = joined;
        }
    }

    fn gaps(&self, size: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut here = 0;
        for (from, to) in &self.0 {
            if *from > here {
                gaps.push((here, *from));
            }
            here = *to;
        }
        if here < size {
            gaps.push((here, size));
        }
        gaps
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
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_and_their_gaps_found() {
        let mut spans = Spans::default();
        for (from, to) in [(10, 20), (0, 5), (20, 25), (3, 7)] {
            spans.add(from, to);
        }
        assert_eq!(spans.0, [(0, 7), (10, 25)]);
        assert_eq!(spans.gaps(30), [(7, 10), (25, 30)]);
        assert_eq!(Spans::default().gaps(0), []);
    }
}
