//! Sending trees: what is there already is not sent, small files travel packed, large ones in chunks.

mod chunked;
mod compare;
mod delta;
mod packed;
mod stream;

use std::path::Path;
use std::sync::Arc;

use paddlecloud_pfs::{Node, PfsPath, RelPath, Root};

use super::engine::{Engine, blocking};
use super::item::{Item, Tree, batches, links_outside};
use super::tally::Tally;
use super::{FileClient, Outcome, Progress, Summary, TransferError, TransferOptions, Upload};
use crate::files::split_last;

impl FileClient<'_> {
    /// Sends files and trees. Failures of single files are in the summary; the others got there.
    pub async fn upload(
        &self,
        uploads: Vec<Upload>,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let tally = Tally::new(progress);
        let engine = Engine::new(*self, options, &tally);
        let mut items = Vec::new();
        for upload in uploads {
            items.extend(collect(upload, &tally).await);
        }
        let files = items.iter().filter(|item| !item.is_dir()).count() as u64;
        tally.planned(files, items.iter().map(Item::size).sum());
        engine.send_all(items).await;
        tally.into_summary()
    }
}

impl Engine<'_> {
    async fn send_all(&self, items: Vec<Item>) {
        let wanted = self.compare_with_remote(items).await;
        if self.options.dry_run {
            for item in wanted.iter().filter(|item| !item.is_dir()) {
                self.tally
                    .finished(&source(item), Outcome::Transferred, item.size());
            }
            return;
        }
        let (large, small): (Vec<Item>, Vec<Item>) = wanted.into_iter().partition(Item::is_large);
        let late = std::sync::Mutex::new(Vec::new());
        self.for_each(batches(small), async |batch| {
            let left = self.send_packed(batch).await;
            late.lock().expect("nobody panics with it").extend(left);
        })
        .await;
        let late = late.into_inner().expect("nobody panics with it");
        self.for_each(large.into_iter().chain(late), async |item| {
            self.send_chunked(item).await;
        })
        .await;
    }
}

/// The path on this side.
fn source(item: &Item) -> String {
    item.shown(&item.local)
}

async fn collect(upload: Upload, tally: &Tally<'_>) -> Vec<Item> {
    match upload {
        Upload::File { local, remote } => {
            let shown = local.display().to_string();
            match blocking(move || single(&local, &remote)).await {
                Ok(item) => vec![item],
                Err(error) => {
                    tally.failed(shown, error);
                    Vec::new()
                }
            }
        }
        Upload::Tree {
            local,
            remote,
            entries,
        } => {
            let shown = local.display().to_string();
            let opened = blocking(move || Root::open(&local)).await;
            let local = match opened {
                Ok(local) => local,
                Err(error) => {
                    tally.failed(shown, error.into());
                    return Vec::new();
                }
            };
            let tree = Arc::new(Tree { local, remote, shown });
            let outside = links_outside(&entries);
            let items: Vec<Item> = entries
                .into_iter()
                .filter(|entry| !outside.iter().any(|(path, _)| *path == entry.path))
                .map(|entry| Item::of_tree(&tree, entry))
                .collect();
            for (path, error) in outside {
                tally.failed(format!("{}/{path}", tree.shown), error.into());
            }
            items
        }
    }
}

/// One file, whose name may change on the way.
fn single(local: &Path, remote: &PfsPath) -> Result<Item, TransferError> {
    let (folder, name) = split_last(remote).ok_or(TransferError::NotAFile)?;
    let failed = |source| TransferError::Io {
        action: "open the file",
        source,
    };
    let real = std::fs::canonicalize(local).map_err(failed)?;
    let (Some(parent), Some(own)) = (real.parent(), real.file_name()) else {
        return Err(TransferError::NotAFile);
    };
    let tree = Tree {
        local: Root::open(parent)?,
        remote: folder,
        shown: local
            .parent()
            .map(|parent| parent.display().to_string())
            .unwrap_or_default(),
    };
    let local = RelPath::from_bytes(own.as_encoded_bytes()).map_err(paddlecloud_pfs::RootError::from)?;
    let meta = tree.local.stat(&local)?;
    if !meta.is_file() {
        return Err(TransferError::NotAFile);
    }
    Ok(Item {
        tree: Arc::new(tree),
        local,
        remote: name,
        node: Node::File {
            size: meta.size,
            executable: meta.executable,
            digest: None,
        },
        mtime: meta.mtime,
    })
}
