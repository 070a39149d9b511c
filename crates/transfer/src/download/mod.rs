//! Downloads trees: files that are already here are skipped, small files are packed, large ones arrive in ranges.

mod chunked;
mod compare;
mod leftovers;
mod packed;
mod receiver;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_api::files::{FileMeta, split_last};
use paddlecloud_pfs::root::Durability;
use paddlecloud_pfs::{Existing, LinkTarget, Node, PfsPath, RelPath, Root, RootError};

use super::both_ways::{Way, amount_of};
use super::gathering::Gathering;
use super::item::{Item, Tree, with_files};
use super::local::replaceable;
use super::mover::{Mover, blocking};
use super::tally::Tally;
use super::{Download, FileClient, Outcome, Progress, Summary, TransferError, TransferOptions};

impl FileClient<'_> {
    /// Downloads files and trees. The summary lists files that failed; all others are here. Removes what interrupted downloads
    /// left in the same folders.
    pub async fn download(
        &self,
        downloads: Vec<Download>,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let tally = Tally::new(progress);
        let mover = Mover::new(self.patient(), options, &tally);
        let folders: BTreeSet<PathBuf> = downloads.iter().map(folder_of).collect();
        mover.plan(downloads.iter().map(foreseen));
        let mut downloads = downloads.into_iter();
        let (existing, dry_run) = (options.existing(), options.dry_run);
        while downloads.len() > 0 {
            let add = move |gathering: &mut _, download| add(gathering, download, existing, dry_run);
            let items = mover.gathered(&mut downloads, add).await;
            mover.fetch_all(items).await;
        }
        if !dry_run {
            blocking(move || leftovers::clear_up(&folders)).await;
        }
        tally.into_summary()
    }
}

impl Mover<'_> {
    async fn fetch_all(&self, items: Vec<Item>) {
        if self.tally.is_over() {
            return self.give_up(items.iter().filter(|item| !item.is_dir()), source);
        }
        let to_transfer = self.compare_with_local(items).await;
        if self.options.dry_run {
            return self.pretend(Way::Down, &to_transfer);
        }
        let (files, bare): (Vec<Item>, Vec<Item>) = to_transfer.into_iter().partition(Item::is_file);
        // A folder that arrives with its files is renamed into place as a whole, if it does not exist yet.
        let (full, bare) = with_files(bare, &files);
        self.make(bare).await;
        self.small_then_large(Way::Down, files).await;
        self.make(full).await;
    }

    /// Creates folders and links.
    async fn make(&self, items: Vec<Item>) {
        let existing = self.options.existing();
        for (item, made) in blocking(move || make_bare(items, existing)).await {
            match made {
                Ok(()) if item.is_dir() => {}
                Ok(()) => self.tally.finished(&source(&item), Outcome::Transferred, 0),
                Err(error) => self.tally.failed(source(&item), error.into()),
            }
        }
    }
}

fn add(gathering: &mut Gathering, download: Download, existing: Existing, dry_run: bool) {
    let (shown, added) = match download {
        Download::File { remote, local, meta } => {
            let open = if dry_run { open_or_empty } else { open_folder };
            let added = add_single(gathering, &remote, local, &meta, existing, open);
            (remote.to_string(), added)
        }
        Download::Tree {
            remote,
            local,
            entries,
        } => {
            let open = if dry_run { open_or_empty } else { open_or_make };
            let (shown, opened) = (remote.to_string(), open(&local));
            let tree = opened.map(|local| Tree {
                local,
                remote,
                shown: shown.clone(),
            });
            (shown, tree.map(|tree| gathering.add_tree(tree, entries)))
        }
    };
    gathering.failed.extend(added.err().map(|error| (shown, error)));
}

/// The expected files and bytes.
fn foreseen(download: &Download) -> (u64, u64) {
    match download {
        Download::File { meta, .. } => (1, meta.size),
        Download::Tree { entries, .. } => amount_of(entries),
    }
}

/// Adds one file, whose local name may differ.
fn add_single(
    gathering: &mut Gathering,
    remote: &PfsPath,
    local: PathBuf,
    meta: &FileMeta,
    existing: Existing,
    open: fn(&Path) -> Result<Root, TransferError>,
) -> Result<(), TransferError> {
    let (folder, name) = split_last(remote).ok_or(TransferError::NotAFile)?;
    if !meta.is_file() {
        return Err(TransferError::NotAFile);
    }
    let local = match existing {
        Existing::Keep => local,
        Existing::Replace => place_of(local)?,
    };
    let own = local.file_name().ok_or(TransferError::NotAFile)?;
    let own = RelPath::from_bytes(own.as_encoded_bytes()).map_err(RootError::from)?;
    let parent = folder_above(&local);
    let tree = Tree {
        local: gathering.root(&parent, open)?,
        shown: folder.to_string(),
        remote: folder,
    };
    // A renamed file gets its local name after its pack has arrived. It needs a tree of its own: another file of the pack might
    // have that name.
    let tree = match own == name {
        true => gathering.shared(&parent, tree),
        false => Arc::new(tree),
    };
    gathering.add_file(Item {
        tree,
        local: own,
        remote: name,
        node: Node::file(meta.size, meta.executable),
        mtime: meta.mtime,
    });
    Ok(())
}

/// The path to write to in order to replace what is at `path`.
fn place_of(path: PathBuf) -> Result<PathBuf, TransferError> {
    replaceable(&path).map_err(|reason| TransferError::NotReplaced {
        path: path.display().to_string(),
        reason,
    })
}

/// The folder in which a download stages its files.
fn folder_of(download: &Download) -> PathBuf {
    match download {
        Download::Tree { local, .. } => local.clone(),
        // A link's target is replaced where it is.
        Download::File { local, .. } => {
            let place = replaceable(local);
            folder_above(place.as_deref().unwrap_or(local))
        }
    }
}

fn folder_above(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The path on the server.
fn source(item: &Item) -> String {
    Way::Down.source(item)
}

fn open_or_make(folder: &Path) -> Result<Root, TransferError> {
    std::fs::create_dir_all(folder).map_err(|source| TransferError::Io {
        action: "create the folder",
        source,
    })?;
    open_folder(folder)
}

fn open_folder(folder: &Path) -> Result<Root, TransferError> {
    Ok(Root::open(folder)?.with_durability(Durability::Contents))
}

/// Opens a folder for a dry run, which creates nothing: a missing folder counts as empty.
fn open_or_empty(folder: &Path) -> Result<Root, TransferError> {
    match Root::open(folder) {
        Err(RootError::NotFound(_)) => {
            let empty = std::env::temp_dir().join(format!(
                "paddlectl-{}",
                paddlecloud_api::client::new_idempotency_key()
            ));
            let root = open_or_make(&empty);
            // The open folder stays usable after its name is removed.
            let _ = std::fs::remove_dir(&empty);
            root
        }
        other => Ok(other?),
    }
}

/// Creates folders and links, which have no content.
fn make_bare(items: Vec<Item>, existing: Existing) -> Vec<(Item, Result<(), RootError>)> {
    let make = |item: &Item| -> Result<(), RootError> {
        let root = &item.tree.local;
        match &item.node {
            Node::Dir => root.make_dirs(&item.local),
            Node::Symlink { target } => make_link(root, &item.local, target, existing),
            Node::File { .. } => Ok(()),
        }
    };
    items
        .into_iter()
        .map(|item| {
            let made = make(&item);
            (item, made)
        })
        .collect()
}

/// Creates a link atomically, so that an interruption leaves what existed before. Only an empty folder must be removed first.
fn make_link(root: &Root, path: &RelPath, target: &LinkTarget, existing: Existing) -> Result<(), RootError> {
    if let Some(parent) = path.parent() {
        root.make_dirs(&parent)?;
    }
    match root.publish_link(target, path, existing) {
        Err(RootError::IsAFolder(_)) if existing == Existing::Replace => {
            root.remove(path)?;
            root.publish_link(target, path, existing)
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn link(root: &Root, path: &str, target: &str, existing: Existing) -> Result<(), RootError> {
        make_link(root, &path.parse().unwrap(), &target.parse().unwrap(), existing)
    }

    #[test]
    fn a_link_replaces_a_file_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path())
            .unwrap()
            .with_durability(Durability::Relaxed);
        let path = folder.path().join("link");
        fs::write(&path, "a file").unwrap();
        let is_over = AtomicBool::new(false);
        let missed = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut missed = 0;
                while !is_over.load(Ordering::Relaxed) {
                    missed += usize::from(fs::symlink_metadata(&path).is_err());
                }
                missed
            });
            for number in 0..2000 {
                link(&root, "link", &number.to_string(), Existing::Replace).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            watching.join().unwrap()
        });
        assert_eq!(missed, 0);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("1999"));
    }

    #[test]
    fn a_link_replaces_only_an_empty_folder_and_never_a_kept_entry() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path())
            .unwrap()
            .with_durability(Durability::Relaxed);
        fs::create_dir_all(folder.path().join("empty")).unwrap();
        fs::create_dir_all(folder.path().join("full/of")).unwrap();
        link(&root, "empty", "x", Existing::Replace).unwrap();
        link(&root, "full", "x", Existing::Replace).unwrap_err();
        link(&root, "new/link", "x", Existing::Replace).unwrap();
        let kept = link(&root, "new/link", "y", Existing::Keep).unwrap_err();
        assert!(matches!(kept, RootError::Exists(_)), "{kept}");
        assert!(folder.path().join("full/of").is_dir());
        for name in ["empty", "new/link"] {
            assert_eq!(fs::read_link(folder.path().join(name)).unwrap(), Path::new("x"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_staged_next_to_the_target_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("data")).unwrap();
        fs::write(real.join("data/big"), "").unwrap();
        std::os::unix::fs::symlink("data/big", real.join("link")).unwrap();
        let folder_of = |name: &str| {
            folder_of(&Download::File {
                remote: "/pfs/dc/home/me/big".parse().unwrap(),
                local: real.join(name),
                meta: FileMeta::of(&Root::open(&real).unwrap().stat(&RelPath::root()).unwrap()),
            })
        };
        assert_eq!(folder_of("link"), real.join("data"));
        assert_eq!(folder_of("new"), real);
    }
}
