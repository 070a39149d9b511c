//! A node that was given another place: what is known of it, and of what it holds, is true there.

use crate::path::Place;
use crate::root::{Meta, Stamp};

/// What a rename did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub(super) from: Place,
    pub(super) to: Place,
    /// A file's stamp before and after: a rename changes it. What a folder holds keeps its own.
    pub(super) file: Option<(Stamp, Stamp)>,
}

impl Moved {
    /// From what was there before, and what is there now; nothing where these are not one and the same.
    pub fn new(from: &Place, to: &Place, before: &Meta, after: &Meta) -> Option<Self> {
        let kept = |meta: &Meta| {
            let Stamp { device, inode, .. } = meta.stamp;
            (device, inode, meta.is_dir())
        };
        let written = |meta: &Meta| (meta.stamp.size, meta.stamp.mtime);
        let is_dir = after.is_dir();
        let is_same = kept(before) == kept(after) && (is_dir || written(before) == written(after));
        let into_itself = from.space == to.space && to.path.is_within(&from.path);
        (is_same && !into_itself).then(|| Self {
            from: from.clone(),
            to: to.clone(),
            file: (!is_dir).then_some((before.stamp, after.stamp)),
        })
    }

    /// Where a file lies now that was known before, and its stamp there.
    pub(super) fn carry(&self, place: &Place, stamp: Stamp) -> Option<(Place, Stamp)> {
        let below = place.path.strip_prefix(&self.from.path)?;
        let stamp = match self.file {
            Some((before, after)) => (stamp == before).then_some(after)?,
            None => stamp,
        };
        let place = Place {
            space: self.to.space.clone(),
            path: self.to.path.join(&below).ok()?,
        };
        Some((place, stamp))
    }
}
