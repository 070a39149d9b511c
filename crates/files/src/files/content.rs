//! Reading files: byte ranges, signatures for a delta.
//!
//! A reader holds the open file, so it sees one version to the end even if the file is replaced meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::version_of;
use paddlecloud_pfs::content::{Buffer, Buffers, Signature};
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::share::Share;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Digest, PfsPath, RootError, Space};

use super::shares::Link;
use super::{Files, FilesError, Reached};

/// Bytes read at a time; a transfer keeps a small multiple of this in memory.
pub const PIECE: usize = 128 << 10;

/// A requested range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteRange {
    #[default]
    All,
    /// From the first to the last byte, both included; without a last byte, to the end.
    From(u64, Option<u64>),
}

impl ByteRange {
    /// Parses the value of a `Range` header. As HTTP demands, an unsupported range means the whole file.
    pub fn parse(header: &str) -> ByteRange {
        let spec = header.trim().strip_prefix("bytes=");
        let ends = spec.and_then(|spec| spec.split_once('-'));
        ends.and_then(|(first, last)| ByteRange::between(first.trim(), last.trim()))
            .unwrap_or_default()
    }

    fn between(first: &str, last: &str) -> Option<ByteRange> {
        match (first, last) {
            (first, "") => Some(ByteRange::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(ByteRange::From(first, Some(last)))
            }
        }
    }

    /// Offset and length in a file of this size; `None` if the file has none of these bytes.
    pub fn within(self, size: u64) -> Option<(u64, u64)> {
        match self {
            ByteRange::All => Some((0, size)),
            ByteRange::From(first, _) if first >= size => None,
            ByteRange::From(first, last) => {
                let end = last.map_or(size, |last| size.min(last.saturating_add(1)));
                Some((first, end - first))
            }
        }
    }
}

/// A number that overflows is beyond the end of every file.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The bytes that a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedBytes {
    pub range: ByteRange,
    /// The version the file must have.
    pub version: Option<String>,
    /// The version that the range refers to (`If-Range`): for any other version the whole file is sent.
    pub range_of: Option<String>,
}

/// The result of a request for bytes.
pub enum Opened {
    Content(Box<Content>),
    /// The file has this many bytes, and none of the requested ones.
    Outside {
        size: u64,
    },
}

/// A range of a file that is being read.
pub struct Content {
    file: Arc<dyn ReadAt>,
    pub meta: Meta,
    pub version: String,
    /// The digest of the whole file, if known.
    pub digest: Option<Digest>,
    pub offset: u64,
    pub len: u64,
    pub range: ByteRange,
    read: u64,
    /// The link it is read through, if any.
    link: Option<Box<Link>>,
}

impl Content {
    /// The next bytes; `None` at the end. A file that was truncated is an error, never a short reply; so is a revoked link.
    pub fn next_piece(&mut self) -> std::io::Result<Option<Bytes>> {
        let left = self.len - self.read;
        if left == 0 {
            return Ok(None);
        }
        if let Some(link) = &mut self.link {
            link.still_works()?;
        }
        let piece = read_piece(&*self.file, self.offset + self.read, left)?;
        self.read += piece.as_ref().len() as u64;
        Ok(Some(Bytes::from_owner(piece)))
    }
}

/// Buffers for outgoing pieces.
static PIECES: Buffers = Buffers::new(PIECE, 16);

fn read_piece(file: &dyn ReadAt, offset: u64, left: u64) -> std::io::Result<Buffer> {
    let want = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
    let mut piece = PIECES.take();
    match piece.fill(want, |space| file.read_at(space, offset))? {
        [] => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(piece),
    }
}

impl Files {
    /// Opens a file for reading.
    pub fn content(
        &self,
        caller: &Caller,
        path: &PfsPath,
        requested: &RequestedBytes,
    ) -> Result<Opened, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        self.open_content(&reached, requested)
    }

    /// Opens the file that a link was published for.
    pub fn shared(&self, share: &Share, requested: &RequestedBytes) -> Result<Opened, FilesError> {
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
        let mut opened = self.open_content(&space.below(&share.place.path)?, requested)?;
        if let Opened::Content(content) = &mut opened {
            content.link = Some(Box::new(self.link(share)));
        }
        Ok(opened)
    }

    fn open_content(&self, reached: &Reached, requested: &RequestedBytes) -> Result<Opened, FilesError> {
        let file = reached.open_file()?;
        let meta = file.meta().clone();
        let version = checked_version(reached, &meta, requested.version.as_deref())?;
        let range = match &requested.range_of {
            Some(other) if *other != version => ByteRange::All,
            _ => requested.range,
        };
        let Some((offset, len)) = range.within(meta.size) else {
            return Ok(Opened::Outside { size: meta.size });
        };
        Ok(Opened::Content(Box::new(Content {
            digest: self.stored_digest(reached, &*file)?,
            file,
            version,
            offset,
            len,
            range,
            read: 0,
            link: None,
            meta,
        })))
    }

    /// A space's path as users see it.
    pub(super) fn name_of(&self, space: &Space) -> PfsPath {
        let text = format!("/pfs/{}/{}", self.0.datacenter, space.folder());
        PfsPath::from_bytes(text.as_bytes()).expect("a space has a path")
    }

    /// The signature of a file's blocks, to find out what a new version shares with it.
    pub fn signature(&self, caller: &Caller, path: &PfsPath) -> Result<Vec<u8>, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let file = reached.open_file()?;
        let signature = Signature::of(&*file).map_err(|error| FilesError::Disk(error, "read"))?;
        Ok(signature.encode())
    }
}

fn checked_version(reached: &Reached, meta: &Meta, expected: Option<&str>) -> Result<String, FilesError> {
    let found = version_of(&meta.stamp);
    match expected {
        Some(expected) if expected != found => Err(FilesError::OtherVersion(reached.shown.clone())),
        _ => Ok(found),
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
        let within = |header: &str, size| ByteRange::parse(header).within(size);
        assert_eq!(within("bytes=0-4", 10), Some((0, 5)));
        assert_eq!(within("bytes=5-", 10), Some((5, 5)));
        assert_eq!(within("bytes=5-99", 10), Some((5, 5)));
        assert_eq!(within("pages=1-2", 10), Some((0, 10)));
        assert_eq!(within("bytes=0-1,3-4", 10), Some((0, 10)));
        for invalid in [
            "bytes=4-2",
            "bytes=x-",
            "bytes=-",
            "bytes=-3",
            "bytes=+1-2",
            "bytes=--3",
            "bytes",
            "",
        ] {
            assert_eq!(within(invalid, 10), Some((0, 10)), "{invalid}");
        }
        for outside in ["bytes=10-", "bytes=18446744073709551616-"] {
            assert_eq!(within(outside, 10), None, "{outside}");
        }
        assert_eq!(within("bytes=0-18446744073709551616", 10), Some((0, 10)));
        assert_eq!(within("bytes=0-", 0), None);
    }
}
