//! The original's protocol for writing a file: announced by its size, sent range by range, never committed.
//!
//! An announced file is an upload under its own key, and a range is a range of it. The last range publishes the file.
//!
//! An old client asks for a range's checksum before it sends the range, and skips it if it is the same. While a file is being
//! sent, the server returns no checksums, so the client sends everything: it would not say which ranges it skipped, or that it is
//! done.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::UploadRequest;
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, PfsPath, RootError};

use super::content::PIECE;
use super::uploads::{Full, Live};
use super::{Files, FilesError, Reached};

/// The largest file the original accepted.
const MOST_BYTES: u64 = 1 << 40;
/// The range lengths the original accepted.
pub const OLD_RANGES: std::ops::RangeInclusive<u64> = 4 << 10..=32 << 20;
/// The key of every such upload. Keys of other clients are longer.
const KEY: &str = "original";

/// The checksum of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSum {
    pub offset: u64,
    pub len: u64,
    /// MD5 in hex; empty if there is nothing to compare with.
    pub checksum: String,
}

impl Files {
    /// Announces a file of this size. An earlier upload of it starts over: its ranges may belong to another version.
    pub fn old_touch(&self, caller: &Caller, path: &PfsPath, size: u64) -> Result<(), FilesError> {
        if size > MOST_BYTES {
            return Err(FilesError::BadRequest(format!("bad file size:{size}")));
        }
        match self.old_upload(caller, path) {
            Ok(earlier) => self.upload_discard(caller, &earlier)?,
            Err(FilesError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let request = UploadRequest {
            path: path.into(),
            size,
            executable: false,
            mtime: None,
            key: KEY.to_owned(),
            no_overwrite: false,
        };
        let started = self.upload_begin(caller, &request).map_err(|error| match error {
            FilesError::Storage {
                source: RootError::IsAFolder(_),
                ..
            } => FilesError::BadRequest("directory already exist".to_owned()),
            error => error,
        })?;
        match size {
            0 => self.end_upload(caller, &started.id, None, false).map(drop),
            _ => Ok(()),
        }
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
        if !OLD_RANGES.contains(&len) || offset > MOST_BYTES {
            return Err(bad_range());
        }
        // A caller who may only read the file is not its sender.
        let is_written = self.old_upload(caller, path).is_ok();
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

    /// The upload of an announced file.
    pub fn old_upload(&self, caller: &Caller, path: &PfsPath) -> Result<StagedId, FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        Ok(self.old_live(&reached)?.assembly.id().clone())
    }

    fn old_live(&self, reached: &Reached) -> Result<Arc<Live>, FilesError> {
        let not_announced = || FilesError::NotFound(reached.shown.to_string());
        let id = self.keyed_upload(&reached.place, KEY).ok_or_else(not_announced)?;
        let _acting = self.act(&reached.place.space)?;
        let found = self.take_up(&reached.root, &reached.place.space, &id);
        found.map_err(|error| match error {
            FilesError::NoUpload(_) => not_announced(),
            // It did not fit and is gone.
            error if Full::of(&error).is_some() => not_announced(),
            error => error,
        })
    }

    /// Stores a range of an announced file, unless it was announced again since. The last one publishes the file.
    pub fn old_post(
        &self,
        caller: &Caller,
        (path, id): (&PfsPath, &StagedId),
        offset: u64,
        range: &[u8],
    ) -> Result<(), FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        let live = self.old_live(&reached)?;
        if live.assembly.id() != id {
            return Err(FilesError::NotFound(reached.shown.to_string()));
        }
        let end = offset.checked_add(range.len() as u64);
        if end.is_none_or(|end| end > live.assembly.plan().size) {
            return Err(bad_range());
        }
        {
            let _acting = self.act(&reached.place.space)?;
            live.checked(self, live.assembly.put_range(offset, range))?;
        }
        match live.assembly.missing().is_empty() {
            true => self.end_upload(caller, live.assembly.id(), None, false).map(drop),
            false => Ok(()),
        }
    }
}

fn bad_range() -> FilesError {
    FilesError::BadRequest("chunksize error".to_owned())
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
