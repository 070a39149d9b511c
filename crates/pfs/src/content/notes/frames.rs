//! The log's own form: frames with a check each, so that a torn end is told from what came before it.
//!
//! ```text
//! log   = magic frame*
//! frame = length of body u32 | body | first 8 bytes of its BLAKE3          integers are little-endian
//! body  = kind u8 | length of space u16 | space (JSON) | length of path u16 | path | file*
//! file  = length of path below that u16 | path | digest (32 bytes) | device u64 | inode u64 | size u64
//!         | time of change i64 | of change of the node i64 (nanoseconds since 1970)
//! ```
//!
//! Kind 1 notes files, kind 2 says that what was known at or below the path holds no more, kind 3 that it lies elsewhere now:
//! instead of files space and path follow, and, where that is a file, its numbers and times before and after. Kind 4 notes
//! files that are known in memory, too. Kind 5 is a mark: its place says nothing, and its name follows.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;

use crate::content::{Hint, Moved};
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::pack::Unpacked;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::Stamp;

pub(super) const MAGIC: &[u8; 8] = b"PFSNOTE1";
pub(super) const FILES: u8 = 1;
pub(super) const GONE: u8 = 2;
pub(super) const MOVED: u8 = 3;
pub(super) const RECORDED: u8 = 4;
pub(super) const MARK: u8 = 5;
const CHECK: usize = 8;

/// A frame is ended when it has become so long; none is longer than twice that.
const FRAME: usize = 4 << 20;

/// One entry of the log, taken apart.
pub(super) struct Frame {
    pub place: Place,
    /// Files, not taken apart yet.
    rest: Vec<u8>,
}

impl Frame {
    fn parse(body: &[u8]) -> Option<(u8, Self)> {
        let (kind, mut rest) = body.split_first()?;
        let space: Space = serde_json::from_slice(take_text(&mut rest)?).ok()?;
        let path = RelPath::from_bytes(take_text(&mut rest)?).ok()?;
        let frame = Self {
            place: Place { space, path },
            rest: rest.to_vec(),
        };
        matches!(*kind, FILES..=MARK).then_some((*kind, frame))
    }

    /// What it says of files, by their places.
    pub fn files(&self) -> impl Iterator<Item = (Place, (Stamp, Digest))> + '_ {
        self.contents().map_while(|(path, known)| {
            let path = RelPath::from_bytes(path).ok()?;
            let place = Place {
                space: self.place.space.clone(),
                path: self.place.path.join(&path).ok()?,
            };
            Some((place, known))
        })
    }

    /// The same with paths as they stand there.
    pub fn contents(&self) -> impl Iterator<Item = (&[u8], (Stamp, Digest))> + '_ {
        let mut rest = self.rest.as_slice();
        std::iter::from_fn(move || {
            let path = take_text(&mut rest)?;
            let (digest, after) = rest.split_first_chunk::<{ Digest::LEN }>()?;
            rest = after;
            let stamp = take_stamp(&mut rest)?;
            Some((path, (stamp, Digest::from_bytes(*digest))))
        })
    }

    /// The name of a mark.
    pub fn mark(&self) -> &[u8] {
        &self.rest
    }

    /// Where what was known at or below its place lies now.
    pub fn moved(&self) -> Option<Moved> {
        let mut rest = self.rest.as_slice();
        let space = serde_json::from_slice(take_text(&mut rest)?).ok()?;
        let path = RelPath::from_bytes(take_text(&mut rest)?).ok()?;
        let file = match rest {
            [] => None,
            _ => Some((take_stamp(&mut rest)?, take_stamp(&mut rest)?)),
        };
        Some(Moved {
            from: self.place.clone(),
            to: Place { space, path },
            file,
        })
    }
}

fn take_stamp(rest: &mut &[u8]) -> Option<Stamp> {
    let mut number = || {
        let (number, after) = rest.split_first_chunk::<8>()?;
        *rest = after;
        Some(u64::from_le_bytes(*number))
    };
    Some(Stamp {
        device: number()?,
        inode: number()?,
        size: number()?,
        mtime: Mtime::from_nanos(number()? as i64),
        ctime: Mtime::from_nanos(number()? as i64),
    })
}

fn put_stamp(body: &mut Vec<u8>, stamp: &Stamp) {
    let times = [stamp.mtime, stamp.ctime].map(|time| time.as_nanos() as u64);
    for number in [stamp.device, stamp.inode, stamp.size, times[0], times[1]] {
        body.extend_from_slice(&number.to_le_bytes());
    }
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk::<2>()?;
    let (text, after) = after.split_at_checked(u16::from_le_bytes(*len).into())?;
    *rest = after;
    Some(text)
}

fn put_text(body: &mut Vec<u8>, text: &[u8]) {
    let len = u16::try_from(text.len()).expect("paths and names are shorter than 64 KiB");
    body.extend_from_slice(&len.to_le_bytes());
    body.extend_from_slice(text);
}

/// The beginning of a body.
fn body(kind: u8, place: &Place) -> Vec<u8> {
    let mut body = vec![kind];
    put_place(&mut body, place);
    body
}

fn put_place(body: &mut Vec<u8>, place: &Place) {
    let space = serde_json::to_vec(&place.space).expect("strings always become JSON");
    put_text(body, &space);
    put_text(body, place.path.as_bytes());
}

/// Notes files that lie below a folder.
pub(super) fn frames<'a>(folder: &Place, files: impl Iterator<Item = &'a Unpacked>) -> Vec<u8> {
    frames_of(FILES, folder, files)
}

/// Notes a file that is known in memory, too.
pub(super) fn recorded(Hint { place, stamp, digest }: &Hint) -> Vec<u8> {
    let space = place.space.clone();
    let file = Unpacked {
        path: place.path.clone(),
        digest: *digest,
        stamp: *stamp,
    };
    let path = RelPath::root();
    frames_of(RECORDED, &Place { space, path }, std::iter::once(&file))
}

/// A place in the log that can be found again.
pub(super) fn mark(name: &str) -> Vec<u8> {
    let nowhere = Place {
        space: Space::Public,
        path: RelPath::root(),
    };
    let mut body = body(MARK, &nowhere);
    body.extend_from_slice(name.as_bytes());
    framed(&body)
}

fn frames_of<'a>(kind: u8, folder: &Place, files: impl Iterator<Item = &'a Unpacked>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut frame = body(kind, folder);
    let empty = frame.len();
    for Unpacked { path, digest, stamp } in files {
        put_text(&mut frame, path.as_bytes());
        frame.extend_from_slice(digest.as_bytes());
        put_stamp(&mut frame, stamp);
        if frame.len() >= FRAME {
            out.extend(framed(&frame));
            frame.truncate(empty);
        }
    }
    if frame.len() > empty {
        out.extend(framed(&frame));
    }
    out
}

/// Says that what was known at or below a place holds no more.
pub(super) fn gone(place: &Place) -> Vec<u8> {
    framed(&body(GONE, place))
}

/// Says that what was known at or below a place lies elsewhere now.
pub(super) fn moved(moved: &Moved) -> Vec<u8> {
    let mut body = body(MOVED, &moved.from);
    put_place(&mut body, &moved.to);
    if let Some((before, after)) = &moved.file {
        put_stamp(&mut body, before);
        put_stamp(&mut body, after);
    }
    framed(&body)
}

fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("a frame is ended long before that");
    [&len.to_le_bytes(), body, &check_of(body)].concat()
}

fn check_of(body: &[u8]) -> [u8; CHECK] {
    let hash = blake3::hash(body);
    hash.as_bytes()[..CHECK].try_into().expect("eight of 32 bytes")
}

/// Hands on every whole frame of a stretch; answers where they end. `None` when this is no such log.
pub(super) fn replay(
    file: &File,
    stretch: Range<u64>,
    take: &mut impl FnMut(u8, Frame),
) -> io::Result<Option<u64>> {
    let mut end = stretch.start;
    let mut reader = BufReader::with_capacity(256 << 10, At::new(file, stretch));
    if end == 0 {
        let mut magic = [0; MAGIC.len()];
        if !fill(&mut reader, &mut magic)? || magic != *MAGIC {
            return Ok(None);
        }
        end += magic.len() as u64;
    }
    let mut body = Vec::new();
    loop {
        let (mut len, mut check) = ([0; 4], [0; CHECK]);
        if !fill(&mut reader, &mut len)? {
            return Ok(Some(end));
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > 2 * FRAME {
            return Ok(Some(end));
        }
        body.resize(len, 0);
        let is_whole = fill(&mut reader, &mut body)? && fill(&mut reader, &mut check)?;
        match Frame::parse(&body).filter(|_| is_whole && check == check_of(&body)) {
            Some((kind, frame)) => take(kind, frame),
            None => return Ok(Some(end)),
        }
        end += (4 + len + CHECK) as u64;
    }
}

/// Reads as much as is asked for; `false` when the file ends before.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}

/// A stretch of a file, with a place of its own: several may read, and appending needs none.
pub(super) struct At<'a> {
    file: &'a File,
    left: Range<u64>,
}

impl<'a> At<'a> {
    pub fn new(file: &'a File, left: Range<u64>) -> Self {
        Self { file, left }
    }
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.end.saturating_sub(self.left.start);
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = crate::source::Source::read_at(self.file, &mut buffer[..most], self.left.start)?;
        self.left.start += read as u64;
        Ok(read)
    }
}
