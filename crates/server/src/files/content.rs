//! Reading files: byte ranges, chunks with their names, signatures for a delta.
//!
//! A reader holds the open file, so it sees one version to the end even if the file is replaced meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use paddlecloud_api::files::version_of;
use paddlecloud_pfs::content::{Buffer, Buffers, ChunkHasher, Layout, Signature};
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::share::Share;
use paddlecloud_pfs::store::ReadAt;
use paddlecloud_pfs::{Access, Digest, PfsPath, RootError, Space};

use super::shares::Link;
use super::{Files, FilesError, Reached};
use crate::auth::Caller;

/// Bytes read at a time; a transfer keeps a small multiple of this in memory.
pub const PIECE: usize = 128 << 10;

/// The most chunks in one reply.
const MOST_PARTS: u64 = 64;

/// A requested range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteRange {
    #[default]
    All,
    /// From the first to the last byte, both included; without a last byte, to the end.
    From(u64, Option<u64>),
    /// This many bytes at the end.
    Last(u64),
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
            ("", last) => Some(ByteRange::Last(number(last)?)),
            (first, "") => Some(ByteRange::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(ByteRange::From(first, Some(last)))
            }
        }
    }

    /// Offset and length in a file of this size; `None` if the file has none of these bytes.
    pub(crate) fn within(self, size: u64) -> Option<(u64, u64)> {
        match self {
            ByteRange::All => Some((0, size)),
            ByteRange::From(first, _) if first >= size => None,
            ByteRange::From(first, last) => {
                let end = last.map_or(size, |last| size.min(last.saturating_add(1)));
                Some((first, end - first))
            }
            ByteRange::Last(0) => None,
            ByteRange::Last(_) if size == 0 => None,
            ByteRange::Last(count) => Some((size.saturating_sub(count), count.min(size))),
        }
    }
}

/// A number that overflows lies behind the end of every file.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The bytes that a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BytesAsked {
    pub range: ByteRange,
    /// The version the file must have.
    pub version: Option<String>,
    /// The version that the range refers to (`If-Range`): for any other version the whole file is sent.
    pub range_of: Option<String>,
}

/// The result of a request for bytes.
pub enum Opened {
    Content(Content),
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

/// Buffers for outgoing pieces. A piece may end with the name of its chunk.
static PIECES: Buffers = Buffers::new(PIECE + Digest::LEN, 16);

fn read_piece(file: &dyn ReadAt, offset: u64, left: u64) -> std::io::Result<Buffer> {
    let want = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
    let mut piece = PIECES.take();
    match piece.fill(want, |space| file.read_at(space, offset))? {
        [] => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(piece),
    }
}

/// The requested chunks of a file.
#[derive(Debug, Clone, Copy)]
pub struct PartsAsked {
    pub first: u64,
    pub count: u64,
    /// Bytes of the first chunk that the client already has.
    pub skip: u64,
}

/// Chunks of a file, each followed by its name.
pub struct Parts {
    file: Arc<dyn ReadAt>,
    layout: Layout,
    next: u64,
    end: u64,
    /// Bytes that are hashed but not sent.
    skip: u64,
    current: Option<(ChunkHasher, u64, u64)>,
    /// Whether the request names a version. Other requests read the file as it is, such as a growing log.
    is_of_version: bool,
    /// The digest of the whole file, if known.
    pub digest: Option<Digest>,
    /// Length of the whole reply.
    pub len: u64,
    /// Length of the whole file.
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
            // Each name describes what was read. The last one is only sent if the file is still the requested version.
            if self.is_of_version && self.next + 1 == self.end && !self.file.is_as_opened()? {
                return Err(std::io::Error::other("the file was modified while it was read"));
            }
            piece.push(hasher.finish().as_bytes());
            self.next += 1;
        } else {
            self.current = Some((hasher, offset + read, left - read));
        }
        Ok(Some(Bytes::from_owner(piece)))
    }
}

impl PartsAsked {
    /// The chunk after the last; `None` if the file has no such chunks, or nothing of the first is left to send.
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
    /// Opens a file for reading.
    pub fn content(&self, caller: &Caller, path: &PfsPath, asked: &BytesAsked) -> Result<Opened, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        self.open_content(&reached, asked)
    }

    /// Opens the file that a link was published for.
    pub fn shared(&self, share: &Share, asked: &BytesAsked) -> Result<Opened, FilesError> {
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
        let mut opened = self.open_content(&space.below(&share.place.path)?, asked)?;
        if let Opened::Content(content) = &mut opened {
            content.link = Some(Box::new(self.link(share)));
        }
        Ok(opened)
    }

    fn open_content(&self, reached: &Reached, asked: &BytesAsked) -> Result<Opened, FilesError> {
        let file = reached.open_file()?;
        let meta = file.meta().clone();
        let version = checked_version(reached, &meta, asked.version.as_deref())?;
        let range = match &asked.range_of {
            Some(other) if *other != version => ByteRange::All,
            _ => asked.range,
        };
        let Some((offset, len)) = range.within(meta.size) else {
            return Ok(Opened::Outside { size: meta.size });
        };
        self.stored_digest(reached, &*file)?;
        Ok(Opened::Content(Content {
            file,
            version,
            offset,
            len,
            range,
            read: 0,
            link: None,
            meta,
        }))
    }

    /// A space's path as users see it.
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
            digest: self.stored_digest(&reached, &*file)?,
            len: len - asked.skip,
            size: meta.size,
            file,
            layout,
            next: asked.first,
            end,
            skip: asked.skip,
            current: None,
            is_of_version: version.is_some(),
            version: found,
        })
    }

    /// The signature of a file's blocks, to find out what a new version shares with it.
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

fn checked_version(reached: &Reached, meta: &Meta, wanted: Option<&str>) -> Result<String, FilesError> {
    let found = version_of(&meta.stamp);
    match wanted {
        Some(wanted) if wanted != found => Err(FilesError::OtherVersion(reached.shown.clone())),
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
    use std::fs;

    use super::*;
    use crate::files::testing::{files_of, home, me};

    /// The chunks of a file that `happens` changes once its first bytes were read.
    fn read_while(happens: impl FnOnce(&std::path::Path)) -> std::io::Result<Vec<u8>> {
        read_any_while(true, happens)
    }

    fn read_any_while(of_version: bool, happens: impl FnOnce(&std::path::Path)) -> std::io::Result<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let files = files_of(folder.path(), "- {name: me, password_file: word}\n");
        let real = home(folder.path()).join("output");
        fs::write(&real, vec![1; 2 * PIECE]).unwrap();
        let asked = PartsAsked {
            first: 0,
            count: 1,
            skip: 0,
        };
        let path = "/pfs/dc/home/me/output".parse().unwrap();
        let version = files.parts(&me(), &path, asked, None).unwrap().version;
        let version = of_version.then_some(version.as_str());
        let mut parts = files.parts(&me(), &path, asked, version).unwrap();
        let mut read = parts.next_piece()?.unwrap().to_vec();
        happens(&real);
        while let Some(piece) = parts.next_piece()? {
            read.extend_from_slice(&piece);
        }
        read.truncate(2 * PIECE);
        Ok(read)
    }

    #[test]
    fn a_file_that_is_replaced_is_read_to_its_end_and_one_that_is_written_to_is_not() {
        let old = vec![1; 2 * PIECE];
        assert!(read_while(|_| ()).unwrap() == old);
        assert!(read_while(|real| fs::remove_file(real).unwrap()).unwrap() == old);
        let replaced = read_while(|real| {
            let new = real.with_extension("new");
            fs::write(&new, "another").unwrap();
            fs::rename(&new, real).unwrap();
        });
        assert!(replaced.unwrap() == old);
        let rewrite = |real: &std::path::Path| {
            fs::write(real, vec![2; 2 * PIECE]).unwrap();
            // File times are coarse; make sure that this one changes.
            let file = fs::File::options().write(true).open(real).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        assert!(read_while(rewrite).is_err(), "half of it is old");
        assert!(read_any_while(false, rewrite).is_ok(), "a log that grows is read");
    }

    #[test]
    fn ranges_are_read_as_http_has_them() {
        let within = |header: &str, size| ByteRange::parse(header).within(size);
        assert_eq!(within("bytes=0-4", 10), Some((0, 5)));
        assert_eq!(within("bytes=5-", 10), Some((5, 5)));
        assert_eq!(within("bytes=5-99", 10), Some((5, 5)));
        assert_eq!(within("bytes=-3", 10), Some((7, 3)));
        assert_eq!(within("bytes=-30", 10), Some((0, 10)));
        assert_eq!(within("pages=1-2", 10), Some((0, 10)));
        assert_eq!(within("bytes=0-1,3-4", 10), Some((0, 10)));
        for invalid in [
            "bytes=4-2",
            "bytes=x-",
            "bytes=-",
            "bytes=+1-2",
            "bytes=--3",
            "bytes",
            "",
        ] {
            assert_eq!(within(invalid, 10), Some((0, 10)), "{invalid}");
        }
        for outside in ["bytes=10-", "bytes=-0", "bytes=18446744073709551616-"] {
            assert_eq!(within(outside, 10), None, "{outside}");
        }
        assert_eq!(within("bytes=0-18446744073709551616", 10), Some((0, 10)));
        assert_eq!(within("bytes=-3", 0), None);
        assert_eq!(within("bytes=0-", 0), None);
    }
}
