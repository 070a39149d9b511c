//! Fetching trees: what is here already is not fetched, small files travel packed, large ones in parts.

mod chunked;
mod compare;
mod packed;
mod parts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_pfs::root::Durability;
use paddlecloud_pfs::{Existing, Node, PfsPath, RelPath, Root, RootError};

use super::both_ways::Way;
use super::engine::{Engine, blocking};
use super::item::{Item, Tree, with_files};
use super::tally::Tally;
use super::{Download, FileClient, Outcome, Progress, Summary, TransferError, TransferOptions};
use crate::files::split_last;

impl FileClient<'_> {
    /// Fetches files and trees. Failures of single files are in the summary; the others are here.
    pub async fn download(
        &self,
        downloads: Vec<Download>,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let tally = Tally::new(progress);
        let engine = Engine::new(*self, options, &tally);
        let mut items = Vec::new();
        for download in downloads {
            items.extend(engine.items_to_fetch(download).await);
        }
        engine.plan(&items);
        engine.fetch_all(items).await;
        tally.into_summary()
    }
}

impl Engine<'_> {
    async fn fetch_all(&self, items: Vec<Item>) {
        let wanted = self.compare_with_local(items).await;
        if self.options.dry_run {
            return self.pretend(Way::Down, &wanted);
        }
        let (files, bare): (Vec<Item>, Vec<Item>) = wanted.into_iter().partition(Item::is_file);
        // A folder that comes with its files takes its place as a whole, if nothing is there.
        let (full, bare) = with_files(bare, &files);
        self.make(bare).await;
        self.small_then_large(Way::Down, files).await;
        self.make(full).await;
    }

    /// Makes folders and links.
    async fn make(&self, items: Vec<Item>) {
        let existing = self.existing();
        for (item, made) in blocking(move || make_bare(items, existing)).await {
            match made {
                Ok(()) if item.is_dir() => {}
                Ok(()) => self.tally.finished(&source(&item), Outcome::Transferred, 0),
                Err(error) => self.tally.failed(source(&item), error.into()),
            }
        }
    }

    pub(super) fn existing(&self) -> Existing {
        match self.options.no_overwrite {
            true => Existing::Keep,
            false => Existing::Replace,
        }
    }

    async fn items_to_fetch(&self, download: Download) -> Vec<Item> {
        let shown = match &download {
            Download::File { remote, .. } | Download::Tree { remote, .. } => remote.to_string(),
        };
        let collected = match download {
            Download::File { remote, local } => self.single(&remote, local).await.map(|item| vec![item]),
            Download::Tree {
                remote,
                local,
                entries,
            } => {
                let opened = match self.options.dry_run {
                    // A dry run makes nothing, and in a folder that is not there nothing is.
                    true => blocking(move || open_or_nearest(&local)).await,
                    false => blocking(move || open_or_make(&local)).await,
                };
                let shown = shown.clone();
                opened.map(|local| self.items_of(Tree { local, remote, shown }, entries))
            }
        };
        collected.unwrap_or_else(|error| {
            self.tally.failed(shown, error);
            Vec::new()
        })
    }

    async fn single(&self, remote: &PfsPath, local: PathBuf) -> Result<Item, TransferError> {
        let (folder, name) = split_last(remote).ok_or(TransferError::NotAFile)?;
        let meta = self.files.stat(remote).await?;
        if !meta.is_file() {
            return Err(TransferError::NotAFile);
        }
        let own = local.file_name().ok_or(TransferError::NotAFile)?;
        let own = RelPath::from_bytes(own.as_encoded_bytes()).map_err(RootError::from)?;
        let parent = match local.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let root = blocking(move || Root::open(parent)).await?;
        let tree = Tree {
            local: root.with_durability(Durability::Contents),
            shown: folder.to_string(),
            remote: folder,
        };
        Ok(Item {
            tree: Arc::new(tree),
            local: own,
            remote: name,
            node: Node::File {
                size: meta.size,
                executable: meta.executable,
                digest: None,
            },
            mtime: meta.mtime,
        })
    }
}

/// The path on the server.
fn source(item: &Item) -> String {
    Way::Down.source(item)
}

fn open_or_make(folder: &Path) -> Result<Root, TransferError> {
    std::fs::create_dir_all(folder).map_err(|source| TransferError::Io {
        action: "make the folder",
        source,
    })?;
    Ok(Root::open(folder)?.with_durability(Durability::Contents))
}

/// For a dry run: a folder that is not there is as good as an empty one.
fn open_or_nearest(folder: &Path) -> Result<Root, TransferError> {
    match Root::open(folder) {
        Err(RootError::NotFound(_)) => {
            let empty =
                std::env::temp_dir().join(format!("paddlectl-{}", crate::client::new_idempotency_key()));
            let root = open_or_make(&empty);
            // Opened, it stays usable; by name it is gone.
            let _ = std::fs::remove_dir(&empty);
            root
        }
        other => Ok(other?),
    }
}

/// Makes folders and links, which are all in their entry.
fn make_bare(items: Vec<Item>, existing: Existing) -> Vec<(Item, Result<(), RootError>)> {
    let make = |item: &Item| -> Result<(), RootError> {
        let root = &item.tree.local;
        match &item.node {
            Node::Dir => root.make_dirs(&item.local),
            Node::Symlink { target } => {
                if let Some(parent) = item.local.parent() {
                    root.make_dirs(&parent)?;
                }
                if existing == Existing::Replace && root.exists(&item.local)? {
                    root.remove(&item.local)?;
                }
                root.make_link(&item.local, target)
            }
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
