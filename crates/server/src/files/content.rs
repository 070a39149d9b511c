//! Reading files: ranges of bytes, chunks with their names, signatures for a delta.
//!
//! A reader holds the open file: it sees one version to its end, whatever takes the file's place meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use paddlecloud_api::files::version_of;
use paddlecloud_pfs::content::{Buffer, Buffers, ChunkHasher, Layout, Signature};
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::share::Share;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Digest, PfsPath, RootError, Space};

use super::{Files, FilesError, Reached};
use crate::auth::Caller;

/// Bytes that are read at a time; what one transfer holds in memory is a small multiple of it.
pub const PIECE: usize = 128 << 10;

/// Chunks one reply may carry.
const MOST_PARTS: u64 = 64;

/// A stretch of a file, as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    All,
    /// From the first to the last byte, both included; no last: to the end.
    From(u64, Option<u64>),
    /// So many bytes at the end.
    Last(u64),
}

/// A range that has no byte in the file, or cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range has no byte in the file")]
pub struct RangeError;

impl ByteRange {
    /// Reads the value of a `Range` header. Units and lists we do not know mean the whole file, as HTTP has it.
    pub fn parse(header: &str) -> Result<ByteRange, RangeError> {
        let Some(spec) = header.trim().strip_prefix("bytes=") else {
            return Ok(ByteRange::All);
        };
        let Some((first, last)) = spec.split_once('-').filter(|_| !spec.contains(',')) else {
            return Ok(ByteRange::All);
        };
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| RangeError);
        match (first.trim(), last.trim()) {
            ("", last) => Ok(ByteRange::Last(number(last)?)),
            (first, "") => Ok(ByteRange::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                match first <= last {
                    true => Ok(ByteRange::From(first, Some(last))),
                    false => Err(RangeError),
                }
            }
        }
    }

    /// Offset and length in a file of this size.
    fn within(self, size: u64) -> Result<(u64, u64), RangeError> {
        match self {
            ByteRange::All => Ok((0, size)),
            ByteRange::From(first, _) if first >= size => Err(RangeError),
            ByteRange::From(first, last) => {
                let end = last.map_or(size, |last| size.min(last.saturating_add(1)));
                Ok((first, end - first))
            }
            ByteRange::Last(0) => Err(RangeError),
            ByteRange::Last(count) => Ok((size.saturating_sub(count), count.min(size))),
        }
    }
}

/// A stretch of a file that is being read.
pub struct Content {
    file: Arc<dyn ReadAt>,
    pub meta: Meta,
    pub version: String,
    pub offset: u64,
    pub len: u64,
    pub range: ByteRange,
    read: u64,
}

impl Content {
    /// The next bytes; `None` at the end. A file that became shorter is an error, never a short reply.
    pub fn next_piece(&mut self) -> std::io::Result<Option<Bytes>> {
        let left = self.len - self.read;
        if left == 0 {
            return Ok(None);
        }
        let piece = read_piece(&*self.file, self.offset + self.read, left)?;
        self.read += piece.as_ref().len() as u64;
        Ok(Some(Bytes::from_owner(piece)))
    }
}

/// Pieces on their way out lie here; a piece may carry the name of the chunk it ends.
static PIECES: Buffers = Buffers::new(PIECE + Digest::LEN, 16);

fn read_piece(file: &dyn ReadAt, offset: u64, left: u64) -> std::io::Result<Buffer> {
    let want = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
    let mut piece = PIECES.take();
    match piece.fill(want, |space| file.read_at(space, offset))? {
        [] => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(piece),
    }
}

/// Chunks of a file that are asked for.
#[derive(Debug, Clone, Copy)]
pub struct PartsAsked {
    pub first: u64,
    pub count: u64,
    /// Bytes of the first one that have arrived already.
    pub skip: u64,
}

/// Chunks of a file, each followed by its name.
pub struct Parts {
    file: Arc<dyn ReadAt>,
    layout: Layout,
    next: u64,
    end: u64,
    /// Bytes that are only hashed.
    skip: u64,
    current: Option<(ChunkHasher, u64, u64)>,
    /// The digest of the whole file, where it is known.
    pub digest: Option<Digest>,
    /// Bytes of the whole reply.
    pub len: u64,
    /// Bytes of the whole file.
    pub size: u64,
    pub version: String,
}

impl Parts {
    /// The next bytes; `None` at the end.
    pub fn next_piece(&mut self) -> std::io::Result<Option<Bytes>> {
        let (mut hasher, mut offset, mut left) = match self.current.take() {
            Some(current) => current,
            None => match self.layout.range(self.next).filter(|_| self.next < self.end) {
                Some((offset, len)) => (self.layout.hasher(self.next), offset, len),
                None => return Ok(None),
            },
        };
        while self.skip > 0 {
            let piece = read_piece(&*self.file, offset, self.skip)?;
            hasher.update(piece.as_ref());
            let read = piece.as_ref().len() as u64;
            (offset, left, self.skip) = (offset + read, left - read, self.skip - read);
        }
        let mut piece = read_piece(&*self.file, offset, left)?;
        hasher.update(piece.as_ref());
        let read = piece.as_ref().len() as u64;
        if read == left {
            piece.push(hasher.finish().as_bytes());
            self.next += 1;
        } else {
            self.current = Some((hasher, offset + read, left - read));
        }
        Ok(Some(Bytes::from_owner(piece)))
    }
}

impl PartsAsked {
    /// The chunk behind the last; `None` where the file has no such chunks, or nothing of the first is left to send.
    fn end(self, layout: Layout) -> Option<u64> {
        let end = self.first.checked_add(self.count)?;
        let fits = end <= layout.count() && self.count <= MOST_PARTS;
        let left = match layout.range(self.first) {
            Some((_, len)) if self.count > 0 => len,
            _ => 1,
        };
        (fits && self.skip < left).then_some(end)
    }
}

impl Files {
    /// Opens a file for reading; `version` must be the one it has, when given.
    pub fn content(
        &self,
        caller: &Caller,
        path: &PfsPath,
        range: ByteRange,
        version: Option<&str>,
    ) -> Result<Content, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        open_content(&reached, range, version)
    }

    /// Opens the file a link was given out for.
    pub fn shared(&self, share: &Share, range: ByteRange) -> Result<Content, FilesError> {
        let shown = self.name_of(&share.place.space);
        let space = Reached {
            root: self.space(&share.place.space)?,
            place: paddlecloud_pfs::Place {
                space: share.place.space.clone(),
                path: paddlecloud_pfs::RelPath::root(),
            },
            shown,
        };
        let _acting = self.act(&share.place.space)?;
        open_content(&space.below(&share.place.path)?, range, None)
    }

    /// The path people know a space by.
    pub(super) fn name_of(&self, space: &Space) -> PfsPath {
        let text = format!("/pfs/{}/{}", self.0.datacenter, space.folder());
        PfsPath::from_bytes(text.as_bytes()).expect("a space has a path")
    }

    /// Opens some chunks of a file.
    pub fn parts(
        &self,
        caller: &Caller,
        path: &PfsPath,
        asked: PartsAsked,
        version: Option<&str>,
    ) -> Result<Parts, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let file = reached.open_file()?;
        let meta = file.meta().clone();
        let found = checked_version(&reached, &meta, version)?;
        let layout = Layout::of(meta.size);
        let end = asked.end(layout);
        let end = end.ok_or_else(|| FilesError::BadRequest(format!("`{path}` has no such chunks")))?;
        let len = (asked.first..end).filter_map(|index| layout.range(index));
        let len: u64 = len.map(|(_, len)| len + Digest::LEN as u64).sum();
        Ok(Parts {
            digest: self.0.hints.digest_of(&reached.place, &meta.stamp),
            len: len - asked.skip,
            size: meta.size,
            file,
            layout,
            next: asked.first,
            end,
            skip: asked.skip,
            current: None,
            version: found,
        })
    }

    /// Sums of a file's blocks, to find out what a new version shares with it.
    pub fn signature(&self, caller: &Caller, path: &PfsPath) -> Result<Vec<u8>, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let file = reached.open_file()?;
        if file.meta().size > paddlecloud_api::files::LARGEST_DELTA {
            return Err(FilesError::BadRequest(format!(
                "`{path}` is too large for a delta"
            )));
        }
        let signature = Signature::of(&*file).map_err(|error| FilesError::Disk(error, "read"))?;
        Ok(signature.encode())
    }
}

fn open_content(reached: &Reached, range: ByteRange, version: Option<&str>) -> Result<Content, FilesError> {
    let file = reached.open_file()?;
    let meta = file.meta().clone();
    let version = checked_version(reached, &meta, version)?;
    let (offset, len) = range
        .within(meta.size)
        .map_err(|error| FilesError::BadRequest(format!("{error}: `{}`", reached.shown)))?;
    Ok(Content {
        file,
        version,
        offset,
        len,
        range,
        read: 0,
        meta,
    })
}

fn checked_version(reached: &Reached, meta: &Meta, wanted: Option<&str>) -> Result<String, FilesError> {
    let found = version_of(&meta.stamp);
    match wanted {
        Some(wanted) if wanted != found => Err(FilesError::OtherVersion(reached.shown.clone())),
        _ => Ok(found),
    }
}

impl From<RangeError> for FilesError {
    fn from(error: RangeError) -> Self {
        FilesError::BadRequest(error.to_string())
    }
}

impl FilesError {
    pub(super) fn not_a_file(reached: &Reached) -> FilesError {
        reached.failed()(RootError::NotAFile(reached.place.path.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_has_them() {
        let within = |header: &str, size| ByteRange::parse(header).and_then(|range| range.within(size)).ok();
        assert_eq!(within("bytes=0-4", 10), Some((0, 5)));
        assert_eq!(within("bytes=5-", 10), Some((5, 5)));
        assert_eq!(within("bytes=5-99", 10), Some((5, 5)));
        assert_eq!(within("bytes=-3", 10), Some((7, 3)));
        assert_eq!(within("bytes=-30", 10), Some((0, 10)));
        assert_eq!(within("pages=1-2", 10), Some((0, 10)));
        assert_eq!(within("bytes=0-1,3-4", 10), Some((0, 10)));
        for wrong in [
            "bytes=10-",
            "bytes=4-2",
            "bytes=-0",
            "bytes=x-",
            "bytes=-",
            "bytes=18446744073709551616-",
        ] {
            assert_eq!(within(wrong, 10), None, "{wrong}");
        }
    }
}
