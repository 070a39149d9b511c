//! An item of a transfer, in either direction, and how items share a request.

use std::collections::HashSet;
use std::sync::Arc;

use paddlecloud_api::files::{FileKind, FileMeta, PACK_BYTES, PACK_ENTRIES, SMALL_FILE, below};
use paddlecloud_pfs::{Digest, Entry, Existing, KEEPS_EXECUTABLE_BITS, Mtime, Node, PfsPath, RelPath, Root};

use super::TransferError;

/// Two corresponding folders, one on each side.
pub(super) struct Tree {
    pub(super) local: Root,
    pub(super) remote: PfsPath,
    /// The prefix of source paths, for display.
    pub(super) shown: String,
}

/// A file, folder or link of a tree. Its local and remote names differ only if a single file is renamed.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) tree: Arc<Tree>,
    pub(super) local: RelPath,
    pub(super) remote: RelPath,
    pub(super) node: Node,
    pub(super) mtime: Mtime,
}

/// What to do with an item, given its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Transfer,
    Unchanged,
    Keep,
    /// The destination is of this kind and must stay.
    Refuse(FileKind),
}

/// How the contents of a file compare with those at its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Same,
    Differ,
}

impl Contents {
    pub(super) fn same_if(same: bool) -> Contents {
        match same {
            true => Contents::Same,
            false => Contents::Differ,
        }
    }
}

impl Item {
    pub(super) fn of_tree(tree: &Arc<Tree>, entry: Entry) -> Item {
        Item {
            tree: tree.clone(),
            local: entry.path.clone(),
            remote: entry.path,
            node: entry.node,
            mtime: entry.mtime,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            Node::Dir | Node::Symlink { .. } => 0,
        }
    }

    /// The digest of its content, if the listing contained it.
    pub(super) fn digest(&self) -> Option<Digest> {
        match self.node {
            Node::File { digest, .. } => digest,
            Node::Dir | Node::Symlink { .. } => None,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.node == Node::Dir
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.node, Node::File { .. })
    }

    /// Whether it is sent alone, in chunks.
    pub(super) fn is_large(&self) -> bool {
        self.size() > SMALL_FILE
    }

    pub(super) fn remote_path(&self) -> Result<PfsPath, TransferError> {
        below(&self.tree.remote, &self.remote).map_err(|error| TransferError::Io {
            action: "name the file",
            source: std::io::Error::other(error),
        })
    }

    /// Its entry in a pack.
    pub(super) fn entry(&self) -> Entry {
        Entry {
            path: self.remote.clone(),
            node: self.node.clone(),
            mtime: self.mtime,
        }
    }

    /// The path for display.
    pub(super) fn shown(&self, name: &RelPath) -> String {
        match (self.tree.shown.as_str(), name.is_root()) {
            ("", _) => name.to_string(),
            (folder, true) => folder.to_owned(),
            (folder, false) => format!("{}/{name}", folder.trim_end_matches('/')),
        }
    }

    /// Compares with the destination; `contents` matter only if sizes and kinds agree.
    pub(super) fn judge(&self, there: Option<&FileMeta>, contents: Contents, existing: Existing) -> Verdict {
        let Some(there) = there else {
            return Verdict::Transfer;
        };
        let same = match &self.node {
            Node::Dir => there.is_folder(),
            Node::Symlink { target } => there.target.as_ref() == Some(target),
            Node::File { size, executable, .. } => {
                there.kind == FileKind::File
                    && there.size == *size
                    && (there.executable == *executable || !KEEPS_EXECUTABLE_BITS)
                    && contents == Contents::Same
            }
        };
        let is_other_kind = match there.kind {
            FileKind::Folder => !self.is_dir(),
            FileKind::File => self.is_dir(),
            // A link may lead to a folder, and files go into that.
            FileKind::Link | FileKind::Special => false,
        };
        match (same, existing) {
            (true, _) => Verdict::Unchanged,
            (false, Existing::Keep) if is_other_kind => Verdict::Refuse(there.kind),
            (false, Existing::Keep) if !self.is_dir() => Verdict::Keep,
            _ if there.kind == FileKind::Special => Verdict::Refuse(there.kind),
            _ => Verdict::Transfer,
        }
    }

    /// Why it does not replace what is at `path`.
    pub(super) fn refused_at(&self, path: String, there: FileKind) -> TransferError {
        let reason = match (there, self.is_dir()) {
            (FileKind::Folder, _) => return TransferError::InItsPlace("folder"),
            (FileKind::File, _) => return TransferError::InItsPlace("file"),
            (_, true) => "is a socket, pipe or device, not a folder",
            (_, false) => "is a socket, pipe or device and cannot be replaced by a file",
        };
        TransferError::NotReplaced {
            path,
            reason: reason.to_owned(),
        }
    }

    /// Whether it is inside a refused folder.
    pub(super) fn lies_in(&self, refused: Option<&Item>) -> bool {
        refused.is_some_and(|folder| {
            folder.is_dir() && Arc::ptr_eq(&self.tree, &folder.tree) && self.local.is_within(&folder.local)
        })
    }
}

/// Splits small items into batches of one request each. Items of one tree must be adjacent and sorted; a name that occurs twice
/// goes into two batches, because a pack has each name once.
pub(super) fn batches(items: Vec<Item>) -> Vec<Vec<Item>> {
    let mut batches: Vec<Vec<Item>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let size = item.size();
        let fits = batches.last().is_some_and(|batch| {
            batch.len() < PACK_ENTRIES
                && bytes + size <= PACK_BYTES
                && batch
                    .last()
                    .is_some_and(|last| Arc::ptr_eq(&last.tree, &item.tree) && last.remote < item.remote)
        });
        if !fits {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        batches.last_mut().expect("just made").push(item);
    }
    batches
}

/// The entries of a pack: the items, each preceded by its folders.
///
/// The second part is the index of the item; `None` for a folder that is no item itself.
pub(super) fn pack_entries(items: &[Item]) -> Vec<(Entry, Option<usize>)> {
    let mut entries = Vec::with_capacity(items.len());
    let mut seen: HashSet<RelPath> = HashSet::from([RelPath::root()]);
    for (index, item) in items.iter().enumerate() {
        let mut missing = Vec::new();
        let mut parent = item.remote.parent();
        while let Some(folder) = parent.filter(|folder| !seen.contains(folder)) {
            parent = folder.parent();
            missing.push(folder);
        }
        for folder in missing.into_iter().rev() {
            seen.insert(folder.clone());
            entries.push((
                Entry {
                    path: folder,
                    node: Node::Dir,
                    mtime: item.mtime,
                },
                None,
            ));
        }
        if item.is_dir() {
            seen.insert(item.remote.clone());
        }
        entries.push((item.entry(), Some(index)));
    }
    entries
}

/// Separates folders that contain files to fetch from the rest.
pub(super) fn with_files(bare: Vec<Item>, files: &[Item]) -> (Vec<Item>, Vec<Item>) {
    let mut full = HashSet::new();
    for file in files {
        let mut folder = file.local.parent();
        while let Some(path) = folder {
            folder = path.parent();
            if !full.insert((Arc::as_ptr(&file.tree), path)) {
                break;
            }
        }
    }
    bare.into_iter()
        .partition(|item| item.is_dir() && full.contains(&(Arc::as_ptr(&item.tree), item.local.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Arc<Tree>) {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree {
            local: Root::open(folder.path()).unwrap(),
            remote: "/pfs/dc/home/me/d".parse().unwrap(),
            shown: "d".to_owned(),
        };
        (folder, Arc::new(tree))
    }

    fn file(path: &str, size: u64) -> Entry {
        Entry {
            path: path.parse().unwrap(),
            node: Node::File {
                size,
                executable: false,
                digest: None,
            },
            mtime: Mtime::from_nanos(1),
        }
    }

    fn folder(path: &str) -> Entry {
        Entry {
            path: path.parse().unwrap(),
            node: Node::Dir,
            mtime: Mtime::from_nanos(1),
        }
    }

    #[test]
    fn every_entry_of_a_pack_comes_after_its_folders_once() {
        let (_folder, tree) = tree();
        let items: Vec<Item> = ["a/b/c", "a/b/d", "a/e"]
            .iter()
            .map(|path| Item::of_tree(&tree, file(path, 1)))
            .collect();
        let paths: Vec<String> = pack_entries(&items)
            .iter()
            .map(|(entry, index)| format!("{}{}", entry.path, if index.is_some() { "" } else { "/" }))
            .collect();
        assert_eq!(paths, ["a/", "a/b/", "a/b/c", "a/b/d", "a/e"]);
    }

    #[test]
    fn a_batch_is_bounded_by_bytes_and_by_tree() {
        let (_a, first) = tree();
        let (_b, second) = tree();
        let items = vec![
            Item::of_tree(&first, file("a", PACK_BYTES - 1)),
            Item::of_tree(&first, file("b", 1)),
            Item::of_tree(&first, file("c", 1)),
            Item::of_tree(&second, file("d", 1)),
        ];
        let sizes: Vec<usize> = batches(items).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }

    #[test]
    fn a_repeated_name_is_sent_twice() {
        let (_folder, tree) = tree();
        let items = ["a", "b", "b", "c"].map(|path| Item::of_tree(&tree, file(path, 1)));
        let sizes: Vec<usize> = batches(items.to_vec()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2]);
    }

    #[test]
    fn folders_of_sent_files_are_separated_from_other_folders() {
        let (_a, first) = tree();
        let (_b, second) = tree();
        let bare = [(&first, "a"), (&first, "a/b"), (&first, "empty"), (&second, "a")];
        let bare = bare.map(|(tree, path)| Item::of_tree(tree, folder(path)));
        let files = [Item::of_tree(&first, file("a/b/c", 1))];
        let (full, rest) = with_files(bare.to_vec(), &files);
        let shown =
            |items: &[Item]| -> Vec<String> { items.iter().map(|item| item.local.to_string()).collect() };
        assert_eq!(shown(&full), ["a", "a/b"]);
        assert_eq!(shown(&rest), ["empty", "a"]);
    }

    #[test]
    fn no_overwrite_keeps_what_differs_and_nothing_else() {
        let (_folder, tree) = tree();
        let item = Item::of_tree(&tree, file("a", 3));
        let mut there = FileMeta {
            kind: FileKind::File,
            size: 3,
            mtime: Mtime::from_nanos(1),
            executable: false,
            target: None,
            digest: None,
            version: None,
        };
        assert_eq!(
            item.judge(None, Contents::Differ, Existing::Keep),
            Verdict::Transfer
        );
        assert_eq!(
            item.judge(Some(&there), Contents::Same, Existing::Keep),
            Verdict::Unchanged
        );
        assert_eq!(
            item.judge(Some(&there), Contents::Differ, Existing::Keep),
            Verdict::Keep
        );
        there.size = 4;
        assert_eq!(
            item.judge(Some(&there), Contents::Same, Existing::Replace),
            Verdict::Transfer
        );
    }

    fn there(kind: FileKind) -> FileMeta {
        FileMeta {
            kind,
            size: 0,
            mtime: Mtime::from_nanos(1),
            executable: false,
            target: None,
            digest: None,
            version: None,
        }
    }

    #[test]
    fn no_overwrite_keeps_no_folder_in_the_place_of_a_file_nor_the_other_way_round() {
        let (_folder, tree) = tree();
        for (entry, kind) in [(file("a", 0), FileKind::Folder), (folder("a"), FileKind::File)] {
            let item = Item::of_tree(&tree, entry);
            assert_eq!(
                item.judge(Some(&there(kind)), Contents::Same, Existing::Keep),
                Verdict::Refuse(kind)
            );
            assert_eq!(
                item.judge(Some(&there(kind)), Contents::Same, Existing::Replace),
                Verdict::Transfer
            );
        }
        let link = there(FileKind::Link);
        let judged = |entry| Item::of_tree(&tree, entry).judge(Some(&link), Contents::Same, Existing::Keep);
        assert_eq!(judged(file("a", 0)), Verdict::Keep);
        assert_eq!(judged(folder("a")), Verdict::Transfer, "it may lead to a folder");
    }

    #[test]
    fn special_files_are_not_replaced() {
        let (_folder, tree) = tree();
        let there = there(FileKind::Special);
        for entry in [file("a", 0), folder("a")] {
            let item = Item::of_tree(&tree, entry);
            let refused = Verdict::Refuse(FileKind::Special);
            assert_eq!(
                item.judge(Some(&there), Contents::Same, Existing::Replace),
                refused
            );
        }
        let item = Item::of_tree(&tree, file("a", 0));
        assert_eq!(
            item.judge(Some(&there), Contents::Same, Existing::Keep),
            Verdict::Keep
        );
    }
}
