//! Collects the items of a transfer that move together.
//!
//! Files that were named one by one share their folder's tree, so that they are packed like the folder itself. The number of open
//! folders is limited.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_pfs::pack::PackError;
use paddlecloud_pfs::{Entry, PfsPath, RelPath, Root, links_outside};

use super::TransferError;
use super::item::{Item, Tree};

/// The most folders that are open at a time. Some systems allow a process 256 descriptors, and connections need some of them.
const OPEN_AT_ONCE: usize = 64;

/// Items, and the folders that are open for them.
#[derive(Default)]
pub(super) struct Gathering {
    items: Vec<Item>,
    /// Local folders that several files may share.
    roots: HashMap<PathBuf, Root>,
    /// Trees that several files may share.
    trees: HashMap<(PathBuf, PfsPath, String), Arc<Tree>>,
    /// Folders that were opened for one source alone.
    unshared: usize,
    /// What cannot be transferred.
    pub(super) failed: Vec<(String, TransferError)>,
}

impl Gathering {
    /// Whether further sources must wait until these items are done.
    pub(super) fn is_full(&self) -> bool {
        self.roots.len() + self.unshared >= OPEN_AT_ONCE
    }

    /// Adds the items of a folder. Links that lead out of it fail.
    pub(super) fn add_tree(&mut self, tree: Tree, entries: Vec<Entry>) {
        self.unshared += 1;
        let tree = Arc::new(tree);
        let outside = links_outside(&entries);
        let left_out: HashSet<&RelPath> = outside.iter().map(|link| &link.path).collect();
        let stay = entries
            .into_iter()
            .filter(|entry| !left_out.contains(&entry.path));
        self.items.extend(stay.map(|entry| Item::of_tree(&tree, entry)));
        for link in outside {
            let path = format!("{}/{}", tree.shown, link.path);
            self.failed.push((path, PackError::LinkOutside(link).into()));
        }
    }

    pub(super) fn add_file(&mut self, item: Item) {
        self.items.push(item);
    }

    /// The local folder of a file, opened once for all its files.
    pub(super) fn root(
        &mut self,
        folder: &Path,
        open: impl FnOnce(&Path) -> Result<Root, TransferError>,
    ) -> Result<Root, TransferError> {
        if let Some(root) = self.roots.get(folder) {
            return Ok(root.clone());
        }
        let root = open(folder)?;
        self.roots.insert(folder.to_owned(), root.clone());
        Ok(root)
    }

    /// The tree of all files of `folder` with the same remote folder and display path.
    pub(super) fn shared(&mut self, folder: &Path, tree: Tree) -> Arc<Tree> {
        let key = (folder.to_owned(), tree.remote.clone(), tree.shown.clone());
        let tree = self.trees.entry(key).or_insert_with(|| Arc::new(tree));
        tree.clone()
    }

    /// All items, grouped by tree and sorted by their remote names, as packs require.
    pub(super) fn into_items(self) -> Vec<Item> {
        let mut items = self.items;
        let mut turns = HashMap::new();
        for item in &items {
            let next = turns.len();
            turns.entry(Arc::as_ptr(&item.tree)).or_insert(next);
        }
        let turn = |item: &Item| turns[&Arc::as_ptr(&item.tree)];
        items.sort_by(|a, b| turn(a).cmp(&turn(b)).then_with(|| a.remote.cmp(&b.remote)));
        items
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::{Mtime, Node};

    use super::*;

    fn open(folder: &Path) -> Result<Root, TransferError> {
        Ok(Root::open(folder)?)
    }

    fn add(gathering: &mut Gathering, folder: &Path, remote: &str, name: &str) {
        let tree = Tree {
            local: gathering.root(folder, open).unwrap(),
            remote: remote.parse().unwrap(),
            shown: folder.display().to_string(),
        };
        let tree = gathering.shared(folder, tree);
        let entry = Entry {
            path: name.parse().unwrap(),
            node: Node::file(1, false),
            mtime: Mtime::from_nanos(1),
        };
        gathering.add_file(Item::of_tree(&tree, entry));
    }

    #[test]
    fn files_of_one_folder_share_a_tree() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut gathering = Gathering::default();
        for (folder, remote, name) in [
            (&one, "/pfs/dc/home/me/d", "b"),
            (&other, "/pfs/dc/home/me/d", "c"),
            (&one, "/pfs/dc/home/me/e", "x"),
            (&one, "/pfs/dc/home/me/d", "a"),
        ] {
            add(&mut gathering, folder.path(), remote, name);
        }
        let items = gathering.into_items();
        let trees = items.chunk_by(|a, b| Arc::ptr_eq(&a.tree, &b.tree));
        let names: Vec<String> = trees
            .map(|items| items.iter().map(|item| item.remote.to_string()).collect())
            .collect();
        assert_eq!(names, ["ab", "c", "x"]);
    }

    #[test]
    fn a_folder_is_opened_once_and_the_number_of_open_folders_is_bounded() {
        let above = tempfile::tempdir().unwrap();
        let mut gathering = Gathering::default();
        let mut folders = 0;
        while !gathering.is_full() {
            let folder = above.path().join(folders.to_string());
            std::fs::create_dir(&folder).unwrap();
            for name in ["a", "b", "c"] {
                add(&mut gathering, &folder, "/pfs/dc/home/me/d", name);
            }
            folders += 1;
        }
        assert_eq!(folders, OPEN_AT_ONCE);
    }
}
