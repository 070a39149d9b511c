//! Remembers what files contain, so that it need not be sent again and damage is noticed.
//!
//! Of large files, and of those somebody asked about, that is kept in memory, saved from time to time and noted in a log
//! (`notes`) until then; of small ones, which are many, in that log alone for checks, and as little of it in memory (`stored`)
//! as it takes to notice that one is damaged.
//!
//! The published file is the only copy of its bytes, and people change it behind our back: every answer is
//! checked against the file's stamp, and again by hashing while the bytes are copied. And an answer is given only
//! for spaces the asker may read: a digest is no key to another user's file.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::Moved;
use super::hash::hash_range;
use super::known::Known;
use super::notes::{Mark, Notes, Recovery, Since};
use super::sealed;
use super::stored::Stored;
use crate::digest::Digest;
use crate::pack::Unpacked;
use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::{Existing, FileAttributes, Meta, RootError, Stamp, copy_source};
use crate::store::OpenSpace;

/// A file that had a certain content when it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    pub place: Place,
    pub stamp: Stamp,
    pub digest: Digest,
}

/// A file that somebody wants to have, as he describes it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub digest: Digest,
    pub size: u64,
    pub attributes: FileAttributes,
}

const MAGIC: &[u8; 8] = b"PFSHINT2";
/// Files that are tried for one content: what became of them behind the service is found out one by one.
const CANDIDATES: usize = 16;

/// What was known in memory.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// Behind it the log has what came later.
    mark: Option<String>,
    hints: Vec<Hint>,
}

/// All hints of a storage.
#[derive(Debug, Default)]
pub struct HintStore {
    known: Mutex<Known>,
    /// Absent for a store that nobody saves.
    notes: Option<Notes>,
    stored: Stored,
    /// One at a time saves: what the log keeps for what was saved first must not go before what is saved next is there.
    saving: Mutex<()>,
    /// Held while hints are carried elsewhere in steps, and while all are looked at to be saved: nobody saves half of that.
    carrying: Mutex<()>,
}

/// Where a hint is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    Memory,
    Log,
}

/// When all hints were told: what became known of a file since is the later word.
#[derive(Debug)]
pub struct Told(Option<Since>);

/// So many are forgotten or carried elsewhere before others have their turn.
pub(super) const AT_ONCE: usize = 1000;

impl HintStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads saved hints, and what was noted since. A file that is missing, damaged or from another version gives none.
    pub fn load(path: &Path) -> Self {
        let saved: Option<Saved> =
            sealed::read(path, MAGIC).and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mark = saved.as_ref().map(|saved| saved.mark.clone().unwrap_or_default());
        let (mut known, stored) = (Known::default(), Stored::default());
        let hints = saved.into_iter().flat_map(|saved| saved.hints);
        hints.for_each(|hint| known.record(hint));
        let mut recovery = Recovery::new(&mut known, &stored, mark.as_deref());
        // Without it small files are not known, as on a disk that is full.
        let notes = Notes::open(&path.with_extension("small"), &mut recovery).ok();
        let is_marked = recovery.is_marked;
        let store = Self {
            known: Mutex::new(known),
            notes,
            stored,
            ..Self::default()
        };
        if !is_marked {
            // What is noted from now on is told from what was before. On a disk that is full the next one does it.
            let _ = store.save(path);
        }
        store
    }

    /// Saves all hints in one step; what is known of small files is on the disk already.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let _alone = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let (hints, mark) = self.marked()?;
        let saved = Saved {
            mark: mark.as_ref().map(|mark| mark.name.clone()),
            hints,
        };
        let body = serde_json::to_vec(&saved).expect("strings and numbers always become JSON");
        sealed::write(path, MAGIC, &body)?;
        // What is saved there leaves the log.
        fs::File::open(path)?.sync_all()?;
        match self.notes.as_ref().zip(mark) {
            Some((notes, mark)) => notes.compact(&mark),
            None => Ok(()),
        }
    }

    /// All that is known in memory, and the mark behind which the log has what comes later.
    fn marked(&self) -> io::Result<(Vec<Hint>, Option<Mark>)> {
        let _whole = self.carrying.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.lock();
        let mark = self.notes.as_ref().map(Notes::mark).transpose()?;
        Ok((known.hints().collect(), mark))
    }

    /// Notes what small files contain that were just published below a folder: all at once.
    pub fn note(&self, folder: &Place, files: &[Unpacked]) -> Result<(), RootError> {
        let mut known = self.lock();
        if known.len() > 0 {
            for file in files {
                known.remove(&Place {
                    space: folder.space.clone(),
                    path: folder.path.join(&file.path)?,
                });
            }
        }
        let noted = self
            .notes
            .as_ref()
            .map_or(Ok(()), |notes| notes.add(folder, files));
        drop(known);
        for file in files {
            self.stored.insert(&file.stamp, &file.digest);
        }
        noted.map_err(|error| RootError::io("note what is known of", &folder.path, error))
    }

    /// Notes what a file contains.
    pub fn record(&self, hint: Hint) {
        self.record_in(&mut self.lock(), hint);
    }

    /// The same while fewer than `most` files are known. Else only a file that is known already is known anew, and
    /// another one's last word, which is no longer true, is forgotten.
    pub fn record_within(&self, hint: Hint, most: usize) {
        let mut known = self.lock();
        match known.len() < most || known.get(&hint.place).is_some() {
            true => self.record_in(&mut known, hint),
            false => self.forget_noted(&hint.place),
        }
    }

    /// Memory and log hear of changes in the same order, so both are told while one is held.
    fn record_in(&self, known: &mut Known, hint: Hint) {
        if known.get(&hint.place) == Some((hint.stamp, hint.digest)) {
            return;
        }
        // A check after an unclean end then finds that something changed, which it did.
        let _ = self.notes.as_ref().map(|notes| notes.record(&hint));
        known.record(hint);
    }

    /// Drops what was known of a file.
    pub fn forget(&self, place: &Place) {
        let mut known = self.lock();
        known.remove(place);
        self.forget_noted(place);
    }

    /// Drops what was known of everything at or below a place.
    pub fn forget_below(&self, place: &Place) {
        let _known = self.at_last(|known| known.remove_below(place, AT_ONCE));
        self.forget_noted(place);
    }

    /// Knows of a node that was given another place, and of all it holds, what was known of it before; nothing any more of
    /// what it replaced.
    pub fn moved(&self, moved: &Moved) {
        let _whole = self.carrying.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.at_last(|known| known.remove_below(&moved.to, AT_ONCE)));
        let _known = self.at_last(|known| known.carry(moved, AT_ONCE));
        if let Some((before, after)) = &moved.file {
            self.stored.carry(before, after);
        }
        // A check then finds that it went, which it did.
        let _ = self.notes.as_ref().map(|notes| notes.moved(moved));
    }

    /// Takes steps, between which others have their turn, until there are no more of them; nobody comes behind the last.
    fn at_last(&self, step: impl Fn(&mut Known) -> bool) -> MutexGuard<'_, Known> {
        loop {
            let mut known = self.lock();
            if !step(&mut known) {
                return known;
            }
        }
    }

    fn forget_noted(&self, place: &Place) {
        // A check then finds that something changed, which it did.
        let _ = self.notes.as_ref().map(|notes| notes.forget(place));
    }

    /// Puts what a check found in the place of the hint it was told, or nothing where it found nothing; not if something became
    /// known of the file since.
    pub fn renew(
        &self,
        hint: &Hint,
        remembered: Remembered,
        found: Option<(Stamp, Digest)>,
        told: &mut Told,
    ) {
        let mut known = self.lock();
        match (known.get(&hint.place), remembered) {
            (Some(now), _) if now == (hint.stamp, hint.digest) => match found {
                Some((stamp, digest)) => {
                    let place = hint.place.clone();
                    self.record_in(&mut known, Hint { place, stamp, digest });
                }
                None => {
                    known.remove(&hint.place);
                    self.forget_noted(&hint.place);
                }
            },
            (None, Remembered::Log) => {
                drop(known);
                if let (Some(notes), Told(Some(since))) = (&self.notes, told) {
                    // What cannot be noted is found again.
                    let renewed = notes.renew(&hint.place, found, since).unwrap_or(false);
                    if let Some((stamp, digest)) = found.filter(|_| renewed) {
                        self.stored.insert(&stamp, &digest);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether it is known what a small file with this stamp was when it was stored.
    pub fn is_stored(&self, stamp: &Stamp) -> bool {
        self.stored.is_known(stamp)
    }

    /// Whether a small file that has this stamp and this content was stored with another: the disk lies.
    pub fn is_damaged(&self, stamp: &Stamp, content: &Digest) -> bool {
        self.stored.contradicts(stamp, content)
    }

    /// What a file is known to contain, if it still has the stamp it had then.
    pub fn digest_of(&self, place: &Place, stamp: &Stamp) -> Option<Digest> {
        let known = self.lock().get(place);
        known.filter(|(seen, _)| seen == stamp).map(|(_, digest)| digest)
    }

    /// All hints, for checking them against the files, and what to [`HintStore::renew`] them with.
    pub fn all(&self) -> (Vec<(Hint, Remembered)>, Told) {
        // Notes that cannot be read are none.
        let noted = self.notes.as_ref().and_then(|notes| notes.all().ok());
        let (noted, since) = noted.unzip();
        let known = self.lock();
        let mut all: Vec<(Hint, Remembered)> = known.hints().map(|hint| (hint, Remembered::Memory)).collect();
        let noted = noted.unwrap_or_default().into_iter();
        let only_noted = noted.filter(|(place, _)| known.get(place).is_none());
        let hint = |(place, (stamp, digest))| Hint { place, stamp, digest };
        all.extend(only_noted.map(|noted| (hint(noted), Remembered::Log)));
        (all, Told(since))
    }

    /// How many files are known in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing is known there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a file with the wanted content out of one that has it, if the asker may read such a one.
    ///
    /// `readable` are the spaces he may read, opened. Answers what was made. What a file is known to be that is gone or another
    /// by now stays known: a check tells of it.
    pub fn reuse(
        &self,
        wanted: &Wanted,
        readable: &[(Space, OpenSpace)],
        target: &OpenSpace,
        path: &RelPath,
        existing: Existing,
    ) -> Result<Option<Meta>, RootError> {
        for (place, root) in self.candidates(wanted.digest, readable) {
            let made = self.try_copy(wanted, &place, root, (target, path), existing)?;
            if made.is_some() {
                return Ok(made);
            }
        }
        Ok(None)
    }

    /// Whether the asker may read a file that has this content, as far as its stamp tells.
    pub fn has(&self, digest: Digest, readable: &[(Space, OpenSpace)]) -> bool {
        self.candidates(digest, readable).any(|(place, root)| {
            let meta = root.stat_link(&place.path).ok();
            meta.is_some_and(|meta| self.digest_of(&place, &meta.stamp) == Some(digest))
        })
    }

    /// Files with this content that the asker may read, looked for one after the other: the first one will mostly do.
    fn candidates<'a>(
        &'a self,
        digest: Digest,
        readable: &'a [(Space, OpenSpace)],
    ) -> impl Iterator<Item = (Arc<Place>, &'a OpenSpace)> + 'a {
        let first = self.lock().next_with(digest, None);
        let all = std::iter::successors(first, move |place| {
            self.lock().next_with(digest, Some(place.clone()))
        });
        let open = |place: Arc<Place>| {
            let (_, root) = readable.iter().find(|(space, _)| *space == place.space)?;
            Some((place, root))
        };
        all.filter_map(open).take(CANDIDATES)
    }

    fn try_copy(
        &self,
        wanted: &Wanted,
        place: &Place,
        root: &OpenSpace,
        (target, path): (&OpenSpace, &RelPath),
        existing: Existing,
    ) -> Result<Option<Meta>, RootError> {
        let digest = wanted.digest;
        let Ok(file) = root.open_no_links(&place.path) else {
            return Ok(None);
        };
        let meta = file.meta().clone();
        // Room is set aside for the size that was asked for.
        if self.digest_of(place, &meta.stamp) != Some(digest) || meta.size != wanted.size {
            return Ok(None);
        }
        let staged = target.staging().stage_file(wanted.attributes)?;
        let failed = |error| RootError::io("copy to", path, error);
        copy_source(&*file, 0, staged.file(), 0, meta.size).map_err(failed)?;
        let mut hasher = blake3::Hasher::new();
        hash_range(staged.file(), 0, u64::MAX, &mut hasher).map_err(failed)?;
        if Digest::from(hasher.finalize()) != digest {
            // The disk lies, or somebody is just writing to it. What it was is kept: by that a check finds the damage.
            return Ok(None);
        }
        target.publish_staged(staged, path, existing).map(Some)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
