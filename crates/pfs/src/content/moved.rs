//! A renamed file or folder: its content is the same at the new place.

use crate::path::Place;
use crate::root::{Meta, Stamp};

/// The effect of a rename.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub from: Place,
    pub to: Place,
    /// A file's stamp before and after, because a rename changes it. Files in a renamed folder keep their stamps.
    pub file: Option<(Stamp, Stamp)>,
}

impl Moved {
    /// Compares the node at `from` before with the node at `to` now; `None` if they are not the same.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Space;
    use crate::root::Existing;
    use crate::testing::{plant, rel, scratch};

    #[test]
    fn only_the_same_unchanged_node_is_known_to_have_moved() {
        let (folder, root) = scratch();
        plant(folder.path(), &[("f", "1"), ("other", "2"), ("d/", "")]);
        let place = |path: &str| Place {
            space: Space::Public,
            path: rel(path),
        };
        let before = root.stat(&rel("f")).unwrap();
        root.rename(&rel("f"), &rel("g"), Existing::Keep).unwrap();
        let after = root.stat(&rel("g")).unwrap();
        let moved = Moved::new(&place("f"), &place("g"), &before, &after).unwrap();
        assert_eq!(moved.file, Some((before.stamp, after.stamp)));
        let other = root.stat(&rel("other")).unwrap();
        assert_eq!(Moved::new(&place("f"), &place("g"), &before, &other), None);
        std::fs::write(folder.path().join("g"), "longer than before").unwrap();
        let written = root.stat(&rel("g")).unwrap();
        assert_eq!(Moved::new(&place("f"), &place("g"), &before, &written), None);
        let d = root.stat(&rel("d")).unwrap();
        assert_eq!(
            Moved::new(&place("d"), &place("d/e"), &d, &d),
            None,
            "into itself"
        );
    }
}
