//! Copies and moves. There is no rename: what moves is copied and then removed, which others can see.
//!
//! Others may write meanwhile. Only what is still as it was copied is removed; where something else is left, that is told.

use std::collections::HashMap;

use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStoreExt};
use paddlecloud_pfs::store::FileStore;
use paddlecloud_pfs::{Existing, Place, RootError};

use super::listing::Below;
use super::{AT_ONCE, S3Store};
use crate::copy_through::copy_through;
use crate::tree::for_each;

/// Larger objects the service does not copy by itself.
const COPIED_WHOLE: u64 = 5 << 30;

impl S3Store {
    pub(super) fn move_object(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        self.check_place(to, existing)?;
        let Some(found) = self.head(from)? else {
            return Err(RootError::NotFound(from.path.clone()));
        };
        self.copy_object(from, to, found.meta.size)?;
        self.remove_copied_object(from, &found.meta)
    }

    /// Removes an object that was copied, unless somebody has replaced it since.
    pub(super) fn remove_copied_object(&self, place: &Place, copied: &ObjectMeta) -> Result<(), RootError> {
        match self.head(place)? {
            Some(now) if !is_same(&now.meta, copied) => Err(RootError::Changing(place.path.clone())),
            _ => self.remove_object(place),
        }
    }

    pub(super) fn remove_object(&self, place: &Place) -> Result<(), RootError> {
        self.delete_keys(&place.path, vec![self.0.keys.of(place)?])?;
        self.keep_parent(place)
    }

    pub(super) fn move_folder(&self, from: &Place, to: &Place, existing: Existing) -> Result<(), RootError> {
        self.check_folder_target(from, to)?;
        let below = self.below(from)?;
        self.copy_below(from, &below, to, existing)?;
        self.remove_copied(from, &below)
    }

    /// Removes those objects of a folder that were copied and that nobody has replaced since; says so when others are left.
    pub(super) fn remove_copied(&self, folder: &Place, copied: &[Below]) -> Result<(), RootError> {
        let copied: HashMap<&Key, &Below> = copied.iter().map(|one| (&one.object.location, one)).collect();
        let as_copied = |now: &Below| {
            let before = copied.get(&now.object.location);
            before.is_some_and(|before| now.is_marker || is_same(&now.object, &before.object))
        };
        let (same, left): (Vec<Below>, Vec<Below>) = self.below(folder)?.into_iter().partition(as_copied);
        let keys = same.into_iter().map(|one| one.object.location);
        self.delete_keys(&folder.path, keys.collect())?;
        self.keep_parent(folder)?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(RootError::Changing(folder.path.clone())),
        }
    }

    pub(super) fn copy_object(&self, from: &Place, to: &Place, size: u64) -> Result<(), RootError> {
        if size > COPIED_WHOLE {
            return copy_through(self, from, to, Existing::Replace).map(drop);
        }
        let (source, target) = (self.0.keys.of(from)?, self.new_key(to)?);
        self.ask("copy", &from.path, move |client| async move {
            client.copy(&source, &target).await
        })
    }

    /// Copies objects that were found below a folder; none, if one of them could not be kept there.
    pub(super) fn copy_below(
        &self,
        from: &Place,
        below: &[Below],
        to: &Place,
        existing: Existing,
    ) -> Result<(), RootError> {
        let mut steps = Vec::with_capacity(below.len());
        for one in below {
            // Of a mark, the folder that it marks.
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
            if existing == Existing::Keep && self.object(target)?.is_some() {
                return Err(RootError::Exists(target.path.clone()));
            }
            let source = Place {
                space: from.space.clone(),
                path: one.path.clone(),
            };
            self.copy_object(&source, target, one.object.size)
        })
    }

    /// A folder takes a place only when nothing or an empty folder is there.
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

/// Whether nobody has written an object between two looks at it.
fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    (&one.e_tag, one.size, one.last_modified) == (&other.e_tag, other.size, other.last_modified)
}
