//! Hints in memory, found by place, by folder and by content: each in steps that grow with the logarithm of how many there
//! are, also when a hundred thousand files are equal.
//!
//! A place is kept once, for both orders. Locking is the caller's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{Hint, Moved};
use crate::digest::Digest;
use crate::path::Place;
use crate::root::Stamp;

/// What files contain, as far as it is remembered.
#[derive(Debug, Default)]
pub(super) struct Known {
    by_place: BTreeMap<Arc<Place>, (Stamp, Digest)>,
    /// Every place behind its digest; no place at all comes before the first one.
    by_digest: BTreeSet<(Digest, Option<Arc<Place>>)>,
}

impl Known {
    pub(super) fn record(&mut self, hint: Hint) {
        self.remove(&hint.place);
        let place = Arc::new(hint.place);
        self.by_digest.insert((hint.digest, Some(place.clone())));
        self.by_place.insert(place, (hint.stamp, hint.digest));
    }

    pub(super) fn remove(&mut self, place: &Place) {
        if let Some((place, (_, digest))) = self.by_place.remove_entry(place) {
            self.by_digest.remove(&(digest, Some(place)));
        }
    }

    /// Removes up to so many at or below a place; answers whether there may be more.
    pub(super) fn remove_below(&mut self, place: &Place, most: usize) -> bool {
        let gone = self.below(place, most);
        gone.iter().for_each(|place| self.remove(place));
        gone.len() == most
    }

    /// Carries up to so many to where they lie now; answers whether there may be more.
    pub(super) fn carry(&mut self, moved: &Moved, most: usize) -> bool {
        let gone = self.below(&moved.from, most);
        for place in &gone {
            let known = self.get(place);
            self.remove(place);
            if let Some((stamp, digest)) = known
                && let Some((place, stamp)) = moved.carry(place, stamp)
            {
                self.record(Hint { place, stamp, digest });
            }
        }
        gone.len() == most
    }

    /// Up to so many at or below a place.
    fn below(&self, place: &Place, most: usize) -> Vec<Arc<Place>> {
        // A folder comes directly before what it holds.
        let on = self
            .by_place
            .range::<Place, _>((Bound::Included(place), Bound::Unbounded));
        let is_below = |known: &&Arc<Place>| known.space == place.space && known.path.is_within(&place.path);
        let below = on.map(|(known, _)| known).take_while(is_below);
        below.take(most).cloned().collect()
    }

    pub(super) fn get(&self, place: &Place) -> Option<(Stamp, Digest)> {
        self.by_place.get(place).copied()
    }

    /// The next place with this content; the first one when there is none before it.
    pub(super) fn next_with(&self, digest: Digest, before: Option<Arc<Place>>) -> Option<Arc<Place>> {
        let behind = (Bound::Excluded((digest, before)), Bound::Unbounded);
        let (found, place) = self.by_digest.range(behind).next()?;
        place.clone().filter(|_| *found == digest)
    }

    /// All of them, by place.
    pub(super) fn hints(&self) -> impl Iterator<Item = Hint> + '_ {
        self.by_place.iter().map(|(place, (stamp, digest))| Hint {
            place: Place::clone(place),
            stamp: *stamp,
            digest: *digest,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::entry::Mtime;
    use crate::path::Space;
    use crate::testing::rel;

    fn at(space: &Space, path: &str) -> Place {
        Place {
            space: space.clone(),
            path: rel(path),
        }
    }

    fn hint(place: Place, content: u8) -> Hint {
        let stamp = Stamp {
            device: 0,
            inode: 0,
            size: content.into(),
            mtime: Mtime::default(),
            ctime: Mtime::default(),
        };
        Hint {
            place,
            stamp,
            digest: Digest::of(&[content]),
        }
    }

    fn with(known: &Known, content: u8) -> Vec<Arc<Place>> {
        let digest = Digest::of(&[content]);
        std::iter::successors(known.next_with(digest, None), |place| {
            known.next_with(digest, Some(place.clone()))
        })
        .collect()
    }

    proptest! {
        /// Whatever is recorded and removed, both orders say what a plain map says.
        #[test]
        fn it_knows_what_a_plain_map_knows(
            steps in prop::collection::vec((0..4u8, 0..2u8, "[ab](/[ab.]b){0,2}", 0..3u8), 0..60),
        ) {
            let (mut known, mut plain) = (Known::default(), HashMap::new());
            for (kind, space, path, content) in steps {
                let space = [Space::Public, Space::Home("ann".parse().unwrap())][usize::from(space)].clone();
                let place = at(&space, &path);
                match kind {
                    0 | 1 => {
                        known.record(hint(place.clone(), content));
                        plain.insert(place, content);
                    }
                    2 => {
                        known.remove(&place);
                        plain.remove(&place);
                    }
                    _ => {
                        while known.remove_below(&place, 2) {}
                        plain.retain(|other, _| {
                            other.space != place.space || !other.path.is_within(&place.path)
                        });
                    }
                }
            }
            let mut left: Vec<Hint> = plain.iter().map(|(place, content)| hint(place.clone(), *content)).collect();
            left.sort_by(|a, b| a.place.cmp(&b.place));
            prop_assert_eq!(known.len(), left.len());
            for content in 0..3 {
                let same = left.iter().filter(|hint| hint.digest == Digest::of(&[content]));
                let same: Vec<Place> = same.map(|hint| hint.place.clone()).collect();
                let found: Vec<Place> = with(&known, content).iter().map(|place| Place::clone(place)).collect();
                prop_assert_eq!(found, same);
            }
            for hint in &left {
                prop_assert_eq!(known.get(&hint.place), Some((hint.stamp, hint.digest)));
            }
            prop_assert_eq!(known.hints().collect::<Vec<_>>(), left);
        }
    }

    /// So many that comparing each with all others would be noticed by whoever runs the tests.
    #[test]
    fn a_hundred_thousand_equal_files_come_and_go_one_by_one_and_by_folders() {
        let mut known = Known::default();
        let place = |folder: u32, file: u32| at(&Space::Public, &format!("d{folder:04}/{file}"));
        for folder in 0..5000 {
            for file in 0..20 {
                known.record(hint(place(folder, file), 0));
            }
        }
        assert_eq!(with(&known, 0).len(), 100_000);
        for folder in 0..5000 {
            known.remove(&place(folder, 7));
            assert!(!known.remove_below(&at(&Space::Public, &format!("d{folder:04}")), 20));
        }
        assert_eq!((known.len(), with(&known, 0).len()), (0, 0));
    }
}
