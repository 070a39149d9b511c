//! What is known of small files, on the disk: too many to keep in memory. All of it is read when it is opened, for a few bytes
//! of each file that stay in memory, and when all files are checked.
//!
//! What is known in memory is saved from time to time. What changed since stands here, behind a mark: a server that is killed
//! takes no word of it along.
//!
//! One log, appended once for a whole pack, replayed when somebody asks and written anew when much of it is out of date. It
//! stays open for good, so that a thread that acts for a user can add to it, too.

mod frames;
mod recovery;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::frames::{
    At, FILES, Frame, GONE, MAGIC, MARK, MOVED, RECORDED, frames, gone, mark, moved, recorded, replay,
};
pub(super) use self::recovery::Recovery;
use super::{Hint, Moved};
use crate::digest::Digest;
use crate::pack::Unpacked;
use crate::path::Place;
use crate::relpath::RelPath;
use crate::root::{Stamp, fresh_name};

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
    /// How often it was written anew.
    version: u64,
    /// How long it was when it was last written anew.
    compact: u64,
}

/// A place in the log.
#[derive(Debug)]
pub(super) struct Mark {
    pub name: String,
    /// Where it ends.
    end: u64,
}

/// What came into the log since somebody read all of it.
#[derive(Debug)]
pub(super) struct Since {
    /// Which log it was.
    version: u64,
    /// How far it was looked through.
    looked: u64,
    /// Bytes of others' that were.
    read: u64,
    noted: HashSet<Place>,
    gone: HashSet<Place>,
}

impl Notes {
    /// Opens a log, or begins one, and tells what stands in it. What a crash tore off its end is dropped.
    pub fn open(path: &Path, recovery: &mut Recovery) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create(true).open(path)?;
        let mut take = |kind: u8, frame: Frame| recovery.take(kind, &frame);
        let len = match replay(&file, 0..u64::MAX, &mut take)? {
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
            version: 0,
            compact: 0,
        };
        Ok(Self {
            path: path.to_owned(),
            log: Mutex::new(log),
        })
    }

    /// Notes files that were just published below a folder.
    pub fn add(&self, folder: &Place, files: &[Unpacked]) -> io::Result<()> {
        self.lock().add(folder, files)
    }

    /// Notes what a file contains that is known in memory, too.
    pub fn record(&self, hint: &Hint) -> io::Result<()> {
        let mut log = self.lock();
        match log.len < LONGEST {
            true => log.append(&recorded(hint)),
            false => log.append(&gone(&hint.place)),
        }
    }

    /// Marks the place behind which stands what is noted from now on.
    pub fn mark(&self) -> io::Result<Mark> {
        let (name, mut log) = (fresh_name(), self.lock());
        log.append(&mark(&name))?;
        Ok(Mark { name, end: log.len })
    }

    /// Notes that what was known at or below a place holds no more.
    pub fn forget(&self, place: &Place) -> io::Result<()> {
        self.lock().append(&gone(place))
    }

    /// Notes that what was known at or below a place lies elsewhere now.
    pub fn moved(&self, node: &Moved) -> io::Result<()> {
        self.lock().append(&moved(node))
    }

    /// All that is known, and what to ask [`Notes::renew`] with later.
    pub fn all(&self) -> io::Result<(Noted, Since)> {
        let log = self.lock();
        let since = Since {
            version: log.version,
            looked: log.len,
            read: 0,
            noted: HashSet::new(),
            gone: HashSet::new(),
        };
        let file = log.file.try_clone()?;
        // Others may add to it while it is read. What they add may be told, and counts as noted since in any case.
        drop(log);
        Ok((noted_in(&file, u64::MAX)?, since))
    }

    /// Notes what a file is now, or that it is gone, unless something was noted of it since everything was read: then that
    /// is the latest word. What cannot be told any more is taken for that.
    pub fn renew(&self, place: &Place, now: Option<(Stamp, Digest)>, since: &mut Since) -> io::Result<bool> {
        let mut log = self.lock();
        if !log.is_quiet(place, since)? {
            return Ok(false);
        }
        let before = log.len;
        match (now, place.path.split_last()) {
            (Some((stamp, digest)), Some((parent, name))) => {
                let folder = Place {
                    space: place.space.clone(),
                    path: parent,
                };
                let path = RelPath::from_bytes(name).map_err(io::Error::other)?;
                log.add(&folder, &[Unpacked { path, digest, stamp }])?;
            }
            _ => log.append(&gone(place))?,
        }
        if since.looked == before {
            // Nothing that the same asker would have to look through again.
            since.looked = log.len;
        }
        Ok(true)
    }

    /// Writes the log anew if most of it is out of date, as far as its length tells. What was known in memory at the mark,
    /// the last there is, must have been saved.
    pub fn compact(&self, mark: &Mark) -> io::Result<()> {
        let log = self.lock();
        // One that is full takes nothing more.
        if log.len < SHORT.max(log.compact * 2).min(LONGEST) {
            return Ok(());
        }
        let file = log.file.try_clone()?;
        // What stands before the mark stays as it is: others may go on behind it.
        drop(log);
        let aside = self.path.with_extension(format!("{}.tmp", fresh_name()));
        let replaced = write_anew(&aside, &file, mark).and_then(|file| self.replace(&aside, file, mark));
        if replaced.is_err() {
            // Nothing to tell beside the reason.
            let _ = fs::remove_file(&aside);
        }
        replaced
    }

    /// Gives a log its place that was written anew up to a mark; what was noted since follows word by word, as what was
    /// saved is brought up to date by it.
    fn replace(&self, aside: &Path, mut file: File, mark: &Mark) -> io::Result<()> {
        let mut log = self.lock();
        io::copy(&mut At::new(&log.file, mark.end..log.len), &mut file)?;
        let len = file.metadata()?.len();
        fs::rename(aside, &self.path)?;
        *log = Log {
            file,
            len,
            version: log.version + 1,
            compact: len,
        };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn add(&mut self, folder: &Place, files: &[Unpacked]) -> io::Result<()> {
        if self.len < LONGEST {
            return self.append(&frames(folder, files.iter()));
        }
        // What was known of them must not be taken for what they are now.
        let mut all = Vec::new();
        for file in files {
            let path = folder.path.join(&file.path).map_err(io::Error::other)?;
            let space = folder.space.clone();
            all.extend(gone(&Place { space, path }));
        }
        self.append(&all)
    }

    /// All or nothing: what comes behind half a frame could not be read.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Whether nothing was noted of a place since then; what cannot be told is not so.
    fn is_quiet(&self, place: &Place, since: &mut Since) -> io::Result<bool> {
        if self.version != since.version || since.read + self.len - since.looked > LOOKED_THROUGH {
            return Ok(false);
        }
        if since.looked < self.len {
            since.look_on(&self.file)?;
        }
        Ok(since.is_quiet(place))
    }
}

impl Since {
    fn look_on(&mut self, file: &File) -> io::Result<()> {
        let (noted, gone) = (&mut self.noted, &mut self.gone);
        let mut take = |kind: u8, frame: Frame| match kind {
            GONE => gone.extend([frame.place]),
            MARK => {}
            MOVED => {
                gone.extend(frame.moved().map(|moved| moved.to));
                gone.extend([frame.place]);
            }
            _ => noted.extend(frame.files().map(|(place, _)| place)),
        };
        if let Some(end) = replay(file, self.looked..u64::MAX, &mut take)? {
            self.read += end - self.looked;
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

/// What was true at a mark, and the mark.
fn write_anew(path: &Path, log: &File, mark: &Mark) -> io::Result<File> {
    let noted = noted_in(log, mark.end)?;
    let file = File::options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(path)?;
    let mut file = io::BufWriter::new(file);
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
    file.write_all(&frames::mark(&mark.name))?;
    let file = file.into_inner()?;
    file.sync_all()?;
    Ok(file)
}

fn take_below(noted: &mut Noted, folder: &Place) -> Vec<(Place, (Stamp, Digest))> {
    let below = noted.range(folder.clone()..).map(|(place, _)| place);
    let below = below.take_while(|place| place.space == folder.space && place.path.is_within(&folder.path));
    let below: Vec<Place> = below.cloned().collect();
    let taken = below.into_iter().filter_map(|place| noted.remove_entry(&place));
    taken.collect()
}

/// What is known only by the log, as it was when it was so long.
fn noted_in(file: &File, end: u64) -> io::Result<Noted> {
    let mut noted = Noted::new();
    let mut take = |kind: u8, frame: Frame| match kind {
        GONE => drop(take_below(&mut noted, &frame.place)),
        MOVED => {
            let carried = take_below(&mut noted, &frame.place);
            let Some(moved) = frame.moved() else { return };
            drop(take_below(&mut noted, &moved.to));
            noted.extend(carried.into_iter().filter_map(|(place, (stamp, digest))| {
                let (place, stamp) = moved.carry(&place, stamp)?;
                Some((place, (stamp, digest)))
            }));
        }
        FILES => noted.extend(frame.files()),
        RECORDED => {
            for (place, _) in frame.files() {
                noted.remove(&place);
            }
        }
        _ => {}
    };
    replay(file, 0..end, &mut take)?;
    Ok(noted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::known::Known;
    use crate::content::stored::Stored;
    use crate::entry::Mtime;
    use crate::path::Space;
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
        let notes = reopened(&path);
        (folder, path, notes)
    }

    fn reopened(path: &Path) -> Notes {
        knowing(path, &Stored::default())
    }

    fn knowing(path: &Path, stored: &Stored) -> Notes {
        Notes::open(path, &mut Recovery::new(&mut Known::default(), stored, None)).unwrap()
    }

    fn told(notes: &Notes) -> Vec<(String, u64)> {
        let (all, _) = notes.all().unwrap();
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
        let notes = reopened(&path);
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
            let notes = reopened(&path);
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
        let notes = reopened(&path);
        notes.add(&at("ann", ""), &[file("a", 1)]).unwrap();
        assert_eq!(told(&reopened(&path)).len(), 1);
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
        notes.compact(&notes.mark().unwrap()).unwrap();
        assert!(fs::metadata(&path).unwrap().len() * 4 < len);
        assert_eq!(told(&notes), before);
        notes.add(&at("bob", ""), &[file("b", 2)]).unwrap();
        assert_eq!(told(&notes).len(), 1002);
        drop(notes);
        assert_eq!(told(&reopened(&path)).len(), 1002);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_noted_since_is_not_taken_back_by_what_was_found_before() {
        let (_folder, _path, notes) = opened();
        let files = [file("d/a", 1), file("d/b", 1), file("d/c", 1), file("e", 1)];
        notes.add(&at("ann", ""), &files).unwrap();
        let (_, mut first) = notes.all().unwrap();
        let now = |version| {
            let Unpacked { stamp, digest, .. } = file("x", version);
            Some((stamp, digest))
        };
        let renewed = |path: &str, now, since: &mut Since| notes.renew(&at("ann", path), now, since).unwrap();
        notes.add(&at("ann", "d"), &[file("a", 2)]).unwrap();
        // Another who reads all does not make the first one believe that nothing came.
        let (_, mut second) = notes.all().unwrap();
        assert!(!renewed("d/a", now(9), &mut first));
        assert!(renewed("d/b", now(3), &mut first));
        assert!(
            !renewed("d/b", None, &mut second),
            "the first one's word is newer"
        );
        assert!(renewed("d/a", None, &mut second));
        notes.forget(&at("ann", "d")).unwrap();
        assert!(!renewed("d/c", now(9), &mut second));
        assert!(renewed("e", now(4), &mut second));
        assert_eq!(told(&notes), [("home/ann/e".to_owned(), 4)]);
    }

    #[test]
    fn who_renews_much_is_not_stopped_by_its_own_words() {
        let (_folder, path, notes) = opened();
        let deep = format!("{}/", "n".repeat(250)).repeat(15);
        let name = |index: u64| format!("{deep}{index}");
        let files: Vec<Unpacked> = (0..100).map(|index| file(&name(index), 1)).collect();
        notes.add(&at("ann", ""), &files).unwrap();
        let (_, mut since) = notes.all().unwrap();
        let Unpacked { stamp, digest, .. } = file("x", 2);
        let mut index = 0;
        while fs::metadata(&path).unwrap().len() < LOOKED_THROUGH + SHORT {
            let place = at("ann", &name(index % 100));
            assert!(notes.renew(&place, Some((stamp, digest)), &mut since).unwrap());
            index += 1;
        }
        // A log that was written anew cannot be looked through.
        notes.compact(&notes.mark().unwrap()).unwrap();
        assert!(!notes.renew(&at("ann", &name(0)), None, &mut since).unwrap());
    }

    #[test]
    fn what_moved_is_known_where_it_lies() {
        let (_folder, path, notes) = opened();
        let files = [
            file("a", 1),
            file("d/b", 2),
            file("d/sub/c", 3),
            file("dd", 4),
            file("e/b", 5),
        ];
        notes.add(&at("ann", ""), &files).unwrap();
        let node = |from: &str, to: Place, file| Moved {
            from: at("ann", from),
            to,
            file,
        };
        let stamps = |before, after| Some((file("x", before).stamp, file("x", after).stamp));
        let (_, mut since) = notes.all().unwrap();
        notes.moved(&node("d", at("bob", "e"), None)).unwrap();
        notes.moved(&node("e", at("ann", "g"), None)).unwrap();
        notes.moved(&node("dd", at("ann", "g/b"), stamps(9, 4))).unwrap();
        assert!(!notes.renew(&at("ann", "d/b"), None, &mut since).unwrap());
        let left = [
            ("home/ann/a".to_owned(), 1),
            ("home/bob/e/b".to_owned(), 2),
            ("home/bob/e/sub/c".to_owned(), 3),
        ];
        assert_eq!(
            told(&notes),
            left,
            "what was not the file that moved is not known"
        );
        drop(notes);
        let notes = reopened(&path);
        assert_eq!(told(&notes), left);
        // A file that moves has another stamp, which names it after a restart.
        let (before, after) = (
            file("x", 1).stamp,
            Stamp {
                inode: 3,
                ..file("x", 1).stamp
            },
        );
        notes
            .moved(&node("a", at("ann", "z"), Some((before, after))))
            .unwrap();
        let (all, _) = notes.all().unwrap();
        assert_eq!(all[&at("ann", "z")], (after, file("x", 1).digest));
        drop(notes);
        let stored = Stored::default();
        knowing(&path, &stored);
        assert!(
            stored.contradicts(&after, &file("x", 2).digest)
                && !stored.contradicts(&after, &file("x", 1).digest)
        );
    }

    #[test]
    fn what_stands_in_it_is_known_by_its_stamp_after_a_restart() {
        let (_folder, path, notes) = opened();
        notes.add(&at("ann", "d"), &[file("a", 1), file("b", 2)]).unwrap();
        notes.forget(&at("ann", "d/b")).unwrap();
        drop(notes);
        let stored = Stored::default();
        knowing(&path, &stored);
        let [a, b, c] = [1, 2, 3].map(|version| file("x", version));
        assert!(stored.contradicts(&a.stamp, &b.digest) && !stored.contradicts(&a.stamp, &a.digest));
        assert!(stored.is_known(&b.stamp), "a file that moved is the same");
        assert!(!stored.is_known(&c.stamp));
    }
}
