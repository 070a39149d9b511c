//! The original's protocol for writing a file: announced by its size, sent range by range, never committed.
//!
//! Ranges are staged; the file appears once all have arrived. An old client asks for a range's checksum before it sends the
//! range, and skips it if it is the same. While a file is being sent, the server returns no checksums, so the client sends
//! everything: it would not say which ranges it skipped, or that it is done. A restarted server forgets the file, and the client
//! sends it again.

mod write;

use md5::{Digest as _, Md5};
use paddlecloud_api::files::{UnfinishedUpload, below};
use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::FileAttributes;
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Existing, PfsPath, RootError, Space};

use super::content::PIECE;
use super::{Files, FilesError, Reached};
use crate::auth::Caller;
pub(super) use write::OldWrites;
use write::{Complete, OldWrite, Shared, lock};

/// The largest file the original accepted.
const MOST_BYTES: u64 = 1 << 40;
/// The range lengths the original accepted.
const RANGES: std::ops::RangeInclusive<u64> = 4 << 10..=32 << 20;

/// The checksum of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSum {
    pub offset: u64,
    pub len: u64,
    /// MD5 in hex; empty if there is nothing to compare with.
    pub checksum: String,
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
        self.0.old_writes.forget(&reached.place);
        let asked = Amount {
            bytes: size,
            files: 1,
        };
        let replaced = reached.replaced()?;
        let room = self.reserve_at(&reached, asked, replaced)?;
        if size > 0 {
            return self.0.old_writes.begin(reached.place, size, room);
        }
        reached
            .root
            .write_file(&reached.place.path, b"", Existing::Replace)
            .map_err(reached.failed())?;
        if let Some(room) = room {
            room.settle(asked, replaced);
        }
        self.forget(&reached.place);
        Ok(())
    }

    /// The checksum of a range, for the client to compare with its own; empty while the caller, or another user with write
    /// access, is sending the file.
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
        // A caller who may only read the file is not its sender.
        let write = write.filter(|_| self.reach(caller, path, Access::Write).is_ok());
        let is_written = write.is_some_and(|write| lock(&write).is_asked_about());
        let _acting = self.act(&reached.place.space)?;
        let (checksum, len) = match reached.root.open_file(&reached.place.path) {
            Ok(file) if is_written => (String::new(), len.min(file.meta().size.saturating_sub(offset))),
            Ok(file) => sum(&*file, offset, len)?,
            Err(RootError::NotFound(_)) if is_written => (String::new(), 0),
            Err(error) => return Err(reached.failed()(error)),
        };
        Ok(RangeSum {
            offset,
            len,
            checksum,
        })
    }

    /// Starts to receive a range of an announced file.
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
            if write.is_over() {
                return Err(FilesError::NotFound(path.to_string()));
            }
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

    /// The unfinished old-protocol writes of a space.
    pub(super) fn old_unfinished(&self, space: &Space) -> Vec<UnfinishedUpload> {
        let name = self.name_of(space);
        let begun = self.0.old_writes.in_space(space).into_iter();
        begun
            .filter_map(|(place, begun)| Some(begun.view(below(&name, &place.path).ok()?.into())))
            .collect()
    }

    /// Discards an old-protocol write of the caller; returns whether it existed.
    pub(super) fn old_discard(&self, caller: &Caller, id: &StagedId) -> Result<bool, FilesError> {
        for space in self.writable(caller)? {
            let begun = self.0.old_writes.in_space(&space);
            let Some((place, begun)) = begun.into_iter().find(|(_, begun)| begun.is(id)) else {
                continue;
            };
            let _acting = self.act(&space)?;
            {
                let mut write = lock(&begun.write);
                if write.is_over() {
                    return Err(AssemblyError::Ending(place.path).into());
                }
                write.end();
            }
            self.0.old_writes.remove(&place, &begun.write);
            return Ok(true);
        }
        Ok(false)
    }

    /// Publishes a file if all ranges have arrived and none is in flight.
    fn old_publish(&self, reached: &Reached, shared: &Shared) -> Result<(), FilesError> {
        let _acting = self.act(&reached.place.space)?;
        let Some(complete) = lock(shared).take_complete() else {
            return Ok(());
        };
        // Later requests about this file run on threads for short work and must not wait for the publish.
        let _publishing = self.0.old_writes.publishing(&reached.place, shared);
        let Complete {
            size,
            staged,
            mut room,
        } = complete;
        let replaced = reached.replaced()?;
        let written = Amount {
            bytes: size,
            files: 1,
        };
        if let Some(room) = &mut room {
            room.fit(written, replaced)?;
        }
        reached
            .root
            .publish_staged(staged, &reached.place.path, Existing::Replace)
            .map_err(reached.failed())?;
        if let Some(room) = room {
            room.settle(written, replaced);
        }
        self.forget(&reached.place);
        Ok(())
    }
}

/// Counts a range as in flight until it is dropped.
struct Arriving(Shared);

impl Drop for Arriving {
    fn drop(&mut self) {
        lock(&self.0).on_arrived();
    }
}

/// A range that is being received.
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
        let mut write = lock(&self.arriving.0);
        let staged = write.staged.as_ref().ok_or_else(|| self.is_gone())?;
        if let Err(error) = staged.write_at(bytes, self.offset) {
            let error = RootError::io("write", &self.reached.place.path, error);
            let error = self.reached.failed()(error);
            if error.is_full() {
                self.give_up(&mut write);
            }
            return Err(error);
        }
        self.offset = next;
        Ok(())
    }

    /// A full disk keeps no partial file; the client announces it again.
    fn give_up(&self, write: &mut OldWrite) {
        write.end();
        self.files
            .0
            .old_writes
            .remove(&self.reached.place, &self.arriving.0);
    }

    /// Records the range; the last one publishes the file.
    pub fn finish(self) -> Result<(), FilesError> {
        if self.offset != self.end {
            return Err(FilesError::BadRequest("chunksize error".to_owned()));
        }
        let write = self.arriving.0.clone();
        {
            let mut write = lock(&write);
            if write.is_over() {
                return Err(self.is_gone());
            }
            write.posted.add(self.start, self.end);
        }
        drop(self.arriving);
        self.files.old_publish(&self.reached, &write)
    }

    /// Another request of the same client completed the file, or its owner discarded it.
    fn is_gone(&self) -> FilesError {
        FilesError::NotFound(self.reached.shown.to_string())
    }
}

fn check_range(offset: u64, len: u64) -> Result<(), FilesError> {
    match RANGES.contains(&len) && offset <= MOST_BYTES {
        true => Ok(()),
        false => Err(FilesError::BadRequest("chunksize error".to_owned())),
    }
}

/// MD5 and length of the part of a range that exists.
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

#[cfg(test)]
mod tests;
