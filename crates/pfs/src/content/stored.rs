//! What small files were when they were stored, in memory: enough to notice that one has other bytes since.
//!
//! A file is known by its stamp, which changes with it, so that nothing has to be forgotten. Of the stamp 96 bits of a hash
//! are kept and of the digest 32: a file that was never stored is practically never taken for another one, and of
//! 4 billion damaged ones one stays unnoticed. What has to be known exactly stands in the log (`notes`).

use std::sync::{PoisonError, RwLock};

use crate::digest::Digest;
use crate::root::Stamp;

/// Slots of one generation, 16 bytes each; there are two of them.
const MOST: usize = 1 << 19;
/// Slots in the beginning.
const FEWEST: usize = 1 << 10;

/// Digests by stamps, as many as fit: those that came last.
#[derive(Debug, Default)]
pub(super) struct Stored(RwLock<Generations>);

impl Stored {
    /// Notes what a file is. One whose stamp would not tell a change is not.
    ///
    /// Whoever writes to a file gives it one moment for both its times. Who stores it gives it the time it had elsewhere: as
    /// long as that is another than the moment in which it was stored, a stamp that is the same has not been written to since.
    pub fn insert(&self, stamp: &Stamp, digest: &Digest) {
        self.put(stamp, short(digest));
    }

    /// Whether it is known what a file with this stamp is.
    pub fn is_known(&self, stamp: &Stamp) -> bool {
        self.find(Key::of(stamp)).is_some()
    }

    /// Whether a file with this stamp was another one when it was stored.
    pub fn contradicts(&self, stamp: &Stamp, digest: &Digest) -> bool {
        self.find(Key::of(stamp))
            .is_some_and(|known| known != short(digest))
    }

    /// Knows of a file that has another stamp now what was known of it before.
    pub fn carry(&self, before: &Stamp, after: &Stamp) {
        if let Some(digest) = self.find(Key::of(before)) {
            self.put(after, digest);
        }
    }

    fn put(&self, stamp: &Stamp, digest: u32) {
        if stamp.mtime != stamp.ctime {
            let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
            all.insert(Slot::of(stamp, digest), MOST);
        }
    }

    fn find(&self, key: Key) -> Option<u32> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.young.find(key).or_else(|| all.old.find(key))
    }
}

/// What comes goes to the young. Once they are many they are the old, and those that were it go.
#[derive(Debug, Default)]
struct Generations {
    young: Slots,
    old: Slots,
}

impl Generations {
    fn insert(&mut self, slot: Slot, most: usize) {
        if self.young.filled == room_in(most) && self.young.find(slot.key()).is_none() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(slot);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Never nothing: that is an empty slot.
    high: u64,
    low: u32,
}

impl Key {
    fn of(stamp: &Stamp) -> Self {
        let times = [stamp.mtime, stamp.ctime].map(|time| time.as_nanos() as u64);
        let numbers = [stamp.device, stamp.inode, stamp.size, times[0], times[1]];
        let mut bytes = [0; 40];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let hash = blake3::hash(&bytes);
        let (high, rest) = hash.as_bytes().split_first_chunk().expect("32 bytes");
        Self {
            high: u64::from_le_bytes(*high).max(1),
            low: u32::from_le_bytes(*rest.first_chunk().expect("24 bytes")),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    high: u64,
    low: u32,
    digest: u32,
}

impl Slot {
    fn of(stamp: &Stamp, digest: u32) -> Self {
        let Key { high, low } = Key::of(stamp);
        Self { high, low, digest }
    }

    fn key(self) -> Key {
        let Self { high, low, .. } = self;
        Key { high, low }
    }

    fn is_empty(self) -> bool {
        self.high == 0
    }
}

fn short(digest: &Digest) -> u32 {
    u32::from_le_bytes(*digest.as_bytes().first_chunk().expect("a digest has 32 bytes"))
}

/// A table that is looked through from the place a key asks for up to the next empty slot.
#[derive(Debug, Default)]
struct Slots {
    /// None, or as many as a power of two.
    slots: Vec<Slot>,
    filled: usize,
}

/// With so many of them filled the next empty slot is still near.
fn room_in(slots: usize) -> usize {
    slots / 8 * 7
}

impl Slots {
    /// The slot of a key, or the empty one in which it would be.
    fn place(&self, key: Key) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut at = key.high as usize & last;
        while self.slots[at].key() != key && !self.slots[at].is_empty() {
            at = (at + 1) & last;
        }
        Some(at)
    }

    fn find(&self, key: Key) -> Option<u32> {
        let slot = self.slots[self.place(key)?];
        (slot.key() == key).then_some(slot.digest)
    }

    fn insert(&mut self, slot: Slot) {
        let known = self.place(slot.key()).filter(|at| !self.slots[*at].is_empty());
        if known.is_none() && self.filled == room_in(self.slots.len()) {
            self.grow();
        }
        let at = self.place(slot.key()).expect("there is room");
        self.filled += usize::from(known.is_none());
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let more = vec![Slot::default(); (self.slots.len() * 2).max(FEWEST)];
        let known = std::mem::replace(&mut self.slots, more);
        for slot in known.into_iter().filter(|slot| !slot.is_empty()) {
            let at = self.place(slot.key()).expect("there is room");
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Mtime;

    fn stamp(inode: u64) -> Stamp {
        Stamp {
            device: 1,
            inode,
            size: 10,
            mtime: Mtime::from_nanos(5),
            ctime: Mtime::from_nanos(9),
        }
    }

    #[test]
    fn other_bytes_under_the_same_stamp_contradict_and_nothing_else_does() {
        let stored = Stored::default();
        let (right, wrong) = (Digest::of(b"right"), Digest::of(b"wrong"));
        assert!(!stored.is_known(&stamp(1)) && !stored.contradicts(&stamp(1), &wrong));
        stored.insert(&stamp(1), &right);
        assert!(stored.is_known(&stamp(1)));
        assert!(stored.contradicts(&stamp(1), &wrong) && !stored.contradicts(&stamp(1), &right));
        let (seen, later) = (stamp(1), Mtime::from_nanos(6));
        for other in [
            Stamp { device: 2, ..seen },
            Stamp { inode: 2, ..seen },
            Stamp { size: 11, ..seen },
            Stamp { mtime: later, ..seen },
            Stamp { ctime: later, ..seen },
        ] {
            assert!(
                !stored.is_known(&other) && !stored.contradicts(&other, &wrong),
                "{other:?}"
            );
        }
        // A rename changes the stamp and nothing else.
        stored.carry(&stamp(1), &stamp(7));
        stored.carry(&stamp(2), &stamp(8));
        assert!(stored.contradicts(&stamp(7), &wrong) && !stored.contradicts(&stamp(7), &right));
        assert!(!stored.is_known(&stamp(8)));
        // A number that is used again, in the same moment and with the same time.
        stored.insert(&stamp(1), &wrong);
        assert!(stored.contradicts(&stamp(1), &right) && !stored.contradicts(&stamp(1), &wrong));
    }

    #[test]
    fn a_stamp_that_would_not_tell_a_change_is_no_word_on_a_file() {
        let stored = Stored::default();
        let written_now = Stamp {
            mtime: Mtime::from_nanos(9),
            ..stamp(1)
        };
        stored.insert(&written_now, &Digest::of(b"right"));
        assert!(!stored.contradicts(&written_now, &Digest::of(b"wrong")));
    }

    #[test]
    fn those_that_came_last_are_known_however_many_came() {
        let (most, digest) = (2 * FEWEST, 7);
        let room = room_in(most) as u64;
        let mut all = Generations::default();
        for inode in 0..10 * room {
            all.insert(Slot::of(&stamp(inode), digest), most);
            // What is known already takes no further room.
            all.insert(Slot::of(&stamp(inode), digest), most);
            assert!(all.young.slots.len() <= most && all.old.slots.len() <= most);
        }
        let stored = Stored(RwLock::new(all));
        let known = |inode: u64| stored.is_known(&stamp(inode));
        assert!((9 * room..10 * room).all(known));
        assert!(!(0..8 * room).any(known));
        assert!(!known(10 * room));
    }

    #[test]
    fn a_file_takes_sixteen_bytes() {
        assert_eq!(size_of::<Slot>(), 16);
    }
}
