//! Copies and moves. There is no rename: a move copies and then removes, and others can see the steps.
//!
//! Others may write meanwhile. Only objects that have not changed since they were copied are removed; if others are left, an error says
//! so. Each object is checked immediately before its removal. A window of milliseconds remains, because not every service supports
//! conditional deletes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStoreExt};
use paddlecloud_pfs::store::FileStore;
use paddlecloud_pfs::{Existing, Place, RootError, Space};

use super::http::time_to_move;
use super::listing::Below;
use super::{AT_ONCE, S3Store};
use crate::copy_through::copy_through;
use crate::tree::for_each;

/// The service does not copy larger objects itself.
const COPIED_WHOLE: u64 = 5 << 30;

impl S3Store {
    pub(super) fn move_object(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        self.check_place(to, existing)?;
        let Some(found) = self.head(from)? else {
            return Err(RootError::NotFound(from.path.clone()));
        };
        self.copy_object(from, to, found.meta.size, existing)?;
        self.remove_copied_object(from, &found.meta)
    }

    /// Removes a copied object unless it was replaced since.
    pub(super) fn remove_copied_object(&self, place: &Place, copied: &ObjectMeta) -> Result<(), RootError> {
        match self.head(place)? {
            Some(now) if !is_same(&now.meta, copied) => Err(RootError::Changing(place.path.clone())),
            _ => self.remove_object(place),
        }
    }

    pub(super) fn remove_object(&self, place: &Place) -> Result<(), RootError> {
        self.delete_key(&place.path, &self.0.keys.of(place)?)?;
        self.keep_parent(place)
    }

    pub(super) fn move_folder(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        self.check_folder_target(from, to)?;
        let below = self.below(from)?;
        self.copy_below(from, &below, to, existing)?;
        self.remove_copied(from, &below)
    }

    /// Removes the copied objects of a folder that were not replaced since; returns an error if others are left.
    pub(super) fn remove_copied(&self, folder: &Place, copied: &[Below]) -> Result<(), RootError> {
        let found = self.below(folder)?;
        self.remove_found(folder, &found, copied)
    }

    /// The same for the result of a second listing. The removal may take minutes.
    pub(super) fn remove_found(
        &self,
        folder: &Place,
        found: &[Below],
        copied: &[Below],
    ) -> Result<(), RootError> {
        let copied = copied.iter().map(|one| (&one.object.location, &one.object));
        let copied: HashMap<&Key, &ObjectMeta> = copied.collect();
        let is_left = AtomicBool::new(false);
        for_each(found, AT_ONCE, |one| {
            let before = copied.get(&one.object.location).copied();
            if !self.remove_if_copied(&folder.space, one, before)? {
                is_left.store(true, Ordering::Relaxed);
            }
            Ok(())
        })?;
        self.keep_parent(folder)?;
        match is_left.into_inner() {
            true => Err(RootError::Changing(folder.path.clone())),
            false => Ok(()),
        }
    }

    /// Removes an object if it is unchanged since it was copied; returns whether it was.
    fn remove_if_copied(
        &self,
        space: &Space,
        found: &Below,
        copied: Option<&ObjectMeta>,
    ) -> Result<bool, RootError> {
        let Some(copied) = copied else {
            return Ok(false);
        };
        if !found.is_marker {
            let place = Place {
                space: space.clone(),
                path: found.path.clone(),
            };
            let is_other = !is_same(&found.object, copied);
            if is_other || self.head(&place)?.is_some_and(|now| !is_still(&now.meta, copied)) {
                return Ok(false);
            }
        }
        self.delete_key(&found.path, &found.object.location)?;
        Ok(true)
    }

    pub(super) fn copy_object(
        &self,
        from: &Place,
        to: &Place,
        size: u64,
        existing: Existing,
    ) -> Result<(), RootError> {
        if size > COPIED_WHOLE {
            return copy_through(self, from, to, existing).map(drop);
        }
        let (source, target) = (self.0.keys.of(from)?, self.new_key(to)?);
        self.check_nothing_to_keep(to, existing)?;
        let more = time_to_move(size);
        self.ask_longer(more, "copy", &from.path, move |client| async move {
            client.copy(&source, &target).await
        })
    }

    /// Copies the objects below a folder; none of them if one cannot be stored at the target.
    pub(super) fn copy_below(
        &self,
        from: &Place,
        below: &[Below],
        to: &Place,
        existing: Existing,
    ) -> Result<(), RootError> {
        let mut steps = Vec::with_capacity(below.len());
        for one in below {
            // For a marker, the folder that it marks.
            let node = match one.is_marker {
                true => one.path.parent().unwrap_or_default(),
                false => one.path.clone(),
            };
            let rest = node.strip_prefix(&from.path).unwrap_or_default();
            let target = Place {
                space: to.space.clone(),
                path: to.path.join(&rest)?,
            };
            self.new_key(&target)?;
            steps.push((one, target));
        }
        self.make_folder(to)?;
        for_each(&steps, AT_ONCE, |(one, target)| {
            if one.is_marker {
                return self.mark_folder(target);
            }
            let source = Place {
                space: from.space.clone(),
                path: one.path.clone(),
            };
            self.copy_object(&source, target, one.object.size, existing)
        })
    }

    /// A folder may only replace nothing or an empty folder.
    fn check_folder_target(&self, from: &Place, to: &Place) -> Result<(), RootError> {
        self.check_not_into_itself(from, to)?;
        self.check_parent(to)?;
        if self.object(to)?.is_some() {
            return Err(RootError::NotAFolder(to.path.clone()));
        }
        match self.is_empty_folder(to)? {
            Some(false) => Err(RootError::NotEmpty(to.path.clone())),
            Some(true) | None => Ok(()),
        }
    }

    pub(super) fn check_not_into_itself(&self, from: &Place, to: &Place) -> Result<(), RootError> {
        match from.space == to.space && to.path.is_within(&from.path) {
            true => Err(RootError::IntoItself {
                from: from.path.clone(),
                to: to.path.clone(),
            }),
            false => Ok(()),
        }
    }
}

/// Whether an object is still the listed one. Not every listing has tags, and an object's own times have no fractions of a
/// second.
fn is_still(now: &ObjectMeta, listed: &ObjectMeta) -> bool {
    let is_same = match (&now.e_tag, &listed.e_tag) {
        (Some(now), Some(listed)) => bare(now) == bare(listed),
        _ => now.last_modified.timestamp() == listed.last_modified.timestamp(),
    };
    is_same && now.size == listed.size
}

/// A tag without the quotes and prefixes that proxies and services add.
pub(super) fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

/// Whether an object is unchanged between two queries or two listings.
fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    (&one.e_tag, one.size, one.last_modified) == (&other.e_tag, other.size, other.last_modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(e_tag: Option<&str>, size: u64, second: &str) -> ObjectMeta {
        ObjectMeta {
            location: Key::from("k"),
            last_modified: format!("2026-11-16T09:00:{second}Z").parse().unwrap(),
            size,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        }
    }

    #[test]
    fn a_stat_and_a_listing_of_one_object_agree() {
        let looked = object(Some("\"a1\""), 3, "07");
        for listed in [Some("\"a1\""), Some("a1"), Some("W/\"a1\""), None] {
            assert!(is_still(&looked, &object(listed, 3, "07.25")), "{listed:?}");
        }
        assert!(!is_still(&looked, &object(Some("b2"), 3, "07")), "another tag");
        assert!(!is_still(&looked, &object(None, 3, "08.25")), "another time");
        assert!(!is_still(&looked, &object(Some("a1"), 4, "07")), "another size");
    }
}
