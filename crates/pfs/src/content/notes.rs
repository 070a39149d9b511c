//! What is known of small files, on the disk: too many to keep in memory, and read only when all files are checked.
//!
//! One log, appended once for a whole pack, replayed when somebody asks and written anew when much of it is out of date:
//!
//! ```text
//! log   = magic frame*
//! frame = length of body u32 | body | first 8 bytes of its BLAKE3          integers are little-endian
//! body  = kind u8 | length of space u16 | space (JSON) | length of path u16 | path | file*
//! file  = length of path below that u16 | path | digest (32 bytes) | device u64 | inode u64 | size u64
//!         | time of change i64 | of change of the node i64 (nanoseconds since 1970)
//! ```
//!
//! Kind 1 notes files, kind 2 says that what was known at or below the path holds no more. It stays open for good, so
//! that a thread that acts for a user can add to it, too.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::digest::Digest;
use crate::entry::Mtime;
use crate::pack::Unpacked;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{Stamp, fresh_name};

const MAGIC: &[u8; 8] = b"PFSNOTE1";
const FILES: u8 = 1;
const GONE: u8 = 2;
const CHECK: usize = 8;

/// A frame is ended when it has become so long; none is longer than twice that.
const FRAME: usize = 4 << 20;
/// More is not noted: about a million files.
const LONGEST: u64 = 160 << 20;
/// A log that is shorter is not worth writing anew.
const SHORT: u64 = 4 << 20;
/// So much is looked through for files that were noted again while others were checked.
const LOOKED_THROUGH: u64 = 16 << 20;

/// What files contained, by their places.
pub(super) type Noted = BTreeMap<Place, (Stamp, Digest)>;

/// The log.
#[derive(Debug)]
pub(super) struct Notes {
    path: PathBuf,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    len: u64,
    /// How long it was when it was last written anew.
    compact: u64,
    /// What came since it was last read whole; none since it is another file.
    since: Option<Since>,
}

#[derive(Debug)]
struct Since {
    /// How long it was then.
    read: u64,
    /// How far it was looked through after that.
    looked: u64,
    noted: HashSet<Place>,
    gone: HashSet<Place>,
}

impl Notes {
    /// Opens a log, or begins one. What a crash tore off its end is dropped.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create(true).open(path)?;
        let mut noted = |_: u8, _: Frame| {};
        let len = match replay(&file, 0, &mut noted)? {
            Some(len) => len,
            None => {
                file.set_len(0)?;
                (&file).write_all(MAGIC)?;
                MAGIC.len() as u64
            }
        };
        file.set_len(len)?;
        let log = Log {
            file,
            len,
            compact: 0,
            since: None,
        };
        Ok(Self {
            path: path.to_owned(),
            log: Mutex::new(log),
        })
    }

    /// Notes files that were just published below a folder.
    pub fn add(&self, folder: &Place, files: &[Unpacked]) -> io::Result<()> {
        let mut log = self.lock();
        if log.len < LONGEST {
            return log.append(&frames(folder, files.iter()));
        }
        // What was known of them must not be taken for what they are now.
        let mut gone = Vec::new();
        for file in files {
            let path = folder.path.join(&file.path).map_err(io::Error::other)?;
            let space = folder.space.clone();
            gone.extend(framed(&body(GONE, &Place { space, path })));
        }
        log.append(&gone)
    }

    /// Notes that what was known at or below a place holds no more.
    pub fn forget(&self, place: &Place) -> io::Result<()> {
        let mut log = self.lock();
        if log.len <= MAGIC.len() as u64 {
            return Ok(());
        }
        log.append(&framed(&body(GONE, place)))
    }

    /// All that is known.
    pub fn all(&self) -> io::Result<Noted> {
        let mut log = self.lock();
        log.since = Some(Since {
            read: log.len,
            looked: log.len,
            noted: HashSet::new(),
            gone: HashSet::new(),
        });
        noted_in(&log.file)
    }

    /// Whether nothing was noted of a place since everything was last read; what cannot be told is not so.
    pub fn is_quiet(&self, place: &Place) -> bool {
        let mut log = self.lock();
        let Log { file, len, since, .. } = &mut *log;
        match since {
            Some(since) if *len - since.read <= LOOKED_THROUGH => {
                since.look_on(file).is_ok() && since.is_quiet(place)
            }
            _ => false,
        }
    }

    /// Writes the log anew if most of it is out of date, as far as its length tells.
    pub fn compact(&self) -> io::Result<()> {
        let mut log = self.lock();
        if log.len < SHORT.max(log.compact * 2) {
            return Ok(());
        }
        let noted = noted_in(&log.file)?;
        let aside = self.path.with_extension(format!("{}.tmp", fresh_name()));
        let written = write_anew(&aside, &noted).and_then(|()| fs::rename(&aside, &self.path));
        if written.is_err() {
            // Nothing to tell beside the reason.
            let _ = fs::remove_file(&aside);
        }
        written?;
        let file = File::options().read(true).append(true).open(&self.path)?;
        let len = file.metadata()?.len();
        *log = Log {
            file,
            len,
            compact: len,
            since: None,
        };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// All or nothing: what comes behind half a frame could not be read.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }
}

impl Since {
    fn look_on(&mut self, file: &File) -> io::Result<()> {
        let (noted, gone) = (&mut self.noted, &mut self.gone);
        let mut take = |kind: u8, frame: Frame| match kind {
            GONE => gone.extend([frame.place]),
            _ => noted.extend(frame.files().map(|(place, _)| place)),
        };
        if let Some(end) = replay(file, self.looked, &mut take)? {
            self.looked = end;
        }
        Ok(())
    }

    fn is_quiet(&self, place: &Place) -> bool {
        let mut upwards = std::iter::successors(Some(place.clone()), |place| {
            let path = place.path.parent()?;
            let space = place.space.clone();
            Some(Place { space, path })
        });
        !self.noted.contains(place) && !upwards.any(|place| self.gone.contains(&place))
    }
}

fn write_anew(path: &Path, noted: &Noted) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    file.write_all(MAGIC)?;
    let mut left = noted.iter().peekable();
    while let Some((first, _)) = left.peek() {
        let space = first.space.clone();
        let of_it = std::iter::from_fn(|| left.next_if(|(place, _)| place.space == space));
        let files: Vec<Unpacked> = of_it
            .map(|(place, (stamp, digest))| Unpacked {
                path: place.path.clone(),
                digest: *digest,
                stamp: *stamp,
            })
            .collect();
        let path = RelPath::root();
        file.write_all(&frames(&Place { space, path }, files.iter()))?;
    }
    file.into_inner()?.sync_all()
}

fn noted_in(file: &File) -> io::Result<Noted> {
    let mut noted = Noted::new();
    let mut take = |kind: u8, frame: Frame| match kind {
        GONE => {
            let below = noted.range(frame.place.clone()..).map(|(place, _)| place);
            let below = below.take_while(|place| {
                place.space == frame.place.space && place.path.is_within(&frame.place.path)
            });
            for place in below.cloned().collect::<Vec<_>>() {
                noted.remove(&place);
            }
        }
        _ => noted.extend(frame.files()),
    };
    replay(file, 0, &mut take)?;
    Ok(noted)
}

/// One entry of the log, taken apart.
struct Frame {
    place: Place,
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
        matches!(*kind, FILES | GONE).then_some((*kind, frame))
    }

    fn files(&self) -> impl Iterator<Item = (Place, (Stamp, Digest))> + '_ {
        let mut rest = self.rest.as_slice();
        std::iter::from_fn(move || {
            let path = RelPath::from_bytes(take_text(&mut rest)?).ok()?;
            let (digest, after) = rest.split_first_chunk::<{ Digest::LEN }>()?;
            rest = after;
            let mut number = || {
                let (number, after) = rest.split_first_chunk::<8>()?;
                rest = after;
                Some(u64::from_le_bytes(*number))
            };
            let stamp = Stamp {
                device: number()?,
                inode: number()?,
                size: number()?,
                mtime: Mtime::from_nanos(number()? as i64),
                ctime: Mtime::from_nanos(number()? as i64),
            };
            let place = Place {
                space: self.place.space.clone(),
                path: self.place.path.join(&path).ok()?,
            };
            Some((place, (stamp, Digest::from_bytes(*digest))))
        })
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
    let space = serde_json::to_vec(&place.space).expect("strings always become JSON");
    put_text(&mut body, &space);
    put_text(&mut body, place.path.as_bytes());
    body
}

fn frames<'a>(folder: &Place, files: impl Iterator<Item = &'a Unpacked>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut frame = body(FILES, folder);
    let empty = frame.len();
    for Unpacked { path, digest, stamp } in files {
        put_text(&mut frame, path.as_bytes());
        frame.extend_from_slice(digest.as_bytes());
        let times = [stamp.mtime, stamp.ctime].map(|time| time.as_nanos() as u64);
        for number in [stamp.device, stamp.inode, stamp.size, times[0], times[1]] {
            frame.extend_from_slice(&number.to_le_bytes());
        }
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

fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("a frame is ended long before that");
    [&len.to_le_bytes(), body, &check_of(body)].concat()
}

fn check_of(body: &[u8]) -> [u8; CHECK] {
    let hash = blake3::hash(body);
    hash.as_bytes()[..CHECK].try_into().expect("eight of 32 bytes")
}

/// Hands on every whole frame from an offset on; answers where they end. `None` when this is no such log.
fn replay(file: &File, from: u64, take: &mut impl FnMut(u8, Frame)) -> io::Result<Option<u64>> {
    // Its own place in the file: several may read, and appending needs none.
    let mut reader = BufReader::with_capacity(256 << 10, At { file, offset: from });
    let mut end = from;
    if from == 0 {
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

/// A file read from a place of one's own.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = crate::source::Source::read_at(self.file, buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rel;

    fn at(user: &str, path: &str) -> Place {
        Place {
            space: Space::Home(user.parse().unwrap()),
            path: rel(path),
        }
    }

    fn file(path: &str, version: u64) -> Unpacked {
        let stamp = Stamp {
            device: 7,
            inode: u64::MAX - version,
            size: version,
            mtime: Mtime::from_nanos(-5),
            ctime: Mtime::from_nanos(i64::MAX),
        };
        Unpacked {
            path: rel(path),
            digest: Digest::of(&version.to_le_bytes()),
            stamp,
        }
    }

    fn opened() -> (tempfile::TempDir, PathBuf, Notes) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let notes = Notes::open(&path).unwrap();
        (folder, path, notes)
    }

    fn told(notes: &Notes) -> Vec<(String, u64)> {
        let all = notes.all().unwrap();
        let one = |(place, (stamp, digest)): (&Place, &(Stamp, Digest))| {
            assert_eq!(*stamp, file("x", stamp.size).stamp);
            assert_eq!(*digest, file("x", stamp.size).digest);
            (format!("{}/{}", place.space, place.path), stamp.size)
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn the_latest_word_on_a_file_holds_also_after_a_restart() {
        let (_folder, path, notes) = opened();
        notes
            .add(&at("ann", "d"), &[file("a", 1), file("sub/b", 2), file("c", 3)])
            .unwrap();
        notes.add(&at("bob", ""), &[file("d/a", 4)]).unwrap();
        notes.add(&at("ann", "d/sub"), &[file("b", 5)]).unwrap();
        notes.forget(&at("ann", "d/c")).unwrap();
        let expected = [
            ("home/ann/d/a".to_owned(), 1),
            ("home/ann/d/sub/b".to_owned(), 5),
            ("home/bob/d/a".to_owned(), 4),
        ];
        assert_eq!(told(&notes), expected);
        drop(notes);
        let notes = Notes::open(&path).unwrap();
        assert_eq!(told(&notes), expected);
        notes.forget(&at("ann", "d")).unwrap();
        notes.add(&at("ann", "d"), &[file("new", 6)]).unwrap();
        assert_eq!(
            told(&notes),
            [("home/ann/d/new".to_owned(), 6), ("home/bob/d/a".to_owned(), 4)]
        );
    }

    #[test]
    fn a_torn_end_is_dropped_and_what_comes_after_it_counts() {
        let (_folder, path, notes) = opened();
        notes.add(&at("ann", ""), &[file("a", 1)]).unwrap();
        let whole = fs::metadata(&path).unwrap().len();
        notes.add(&at("ann", ""), &[file("b", 2)]).unwrap();
        drop(notes);
        for cut in [whole + 1, whole + 20, fs::metadata(&path).unwrap().len() - 1] {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..cut as usize]).unwrap();
            let notes = Notes::open(&path).unwrap();
            assert_eq!(told(&notes).len(), 1, "{cut}");
            notes.add(&at("ann", ""), &[file("c", 3)]).unwrap();
            assert_eq!(told(&notes).len(), 2, "{cut}");
            fs::write(&path, bytes).unwrap();
        }
    }

    #[test]
    fn a_file_that_is_no_log_is_begun_anew() {
        let (_folder, path, notes) = opened();
        drop(notes);
        fs::write(&path, "something else").unwrap();
        let notes = Notes::open(&path).unwrap();
        notes.add(&at("ann", ""), &[file("a", 1)]).unwrap();
        assert_eq!(told(&Notes::open(&path).unwrap()).len(), 1);
    }

    #[test]
    fn it_is_written_anew_without_what_is_out_of_date() {
        let (_folder, path, notes) = opened();
        let long = "n".repeat(200);
        let files: Vec<Unpacked> = (0..1000)
            .map(|index| file(&format!("{long}{index}"), index))
            .collect();
        while fs::metadata(&path).unwrap().len() < SHORT {
            notes.add(&at("ann", "d"), &files).unwrap();
        }
        notes.add(&at("bob", ""), &[file("a", 1)]).unwrap();
        let (before, len) = (told(&notes), fs::metadata(&path).unwrap().len());
        notes.compact().unwrap();
        assert!(fs::metadata(&path).unwrap().len() * 4 < len);
        assert_eq!(told(&notes), before);
        notes.add(&at("bob", ""), &[file("b", 2)]).unwrap();
        assert_eq!(told(&notes).len(), 1002);
        drop(notes);
        assert_eq!(told(&Notes::open(&path).unwrap()).len(), 1002);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_noted_since_is_not_quiet() {
        let (_folder, _path, notes) = opened();
        notes
            .add(&at("ann", ""), &[file("d/a", 1), file("d/b", 1), file("e", 1)])
            .unwrap();
        assert!(!notes.is_quiet(&at("ann", "e")), "nobody has read it yet");
        notes.all().unwrap();
        assert!(notes.is_quiet(&at("ann", "d/a")));
        notes.add(&at("ann", "d"), &[file("a", 2)]).unwrap();
        assert!(!notes.is_quiet(&at("ann", "d/a")) && notes.is_quiet(&at("ann", "d/b")));
        notes.forget(&at("ann", "d")).unwrap();
        assert!(!notes.is_quiet(&at("ann", "d/b")) && notes.is_quiet(&at("ann", "e")));
    }
}
