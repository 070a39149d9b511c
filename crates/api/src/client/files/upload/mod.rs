//! Sending trees: what is there already is not sent, small files travel packed, large ones in chunks.

mod chunked;
mod compare;
mod delta;
mod packed;
mod stream;

use std::path::Path;
use std::sync::Arc;

use paddlecloud_pfs::{Node, PfsPath, RelPath, Root};

pub(super) use self::compare::asked_together;
use super::both_ways::Way;
use super::engine::{Engine, blocking};
use super::item::{Item, Tree};
use super::tally::Tally;
use super::{FileClient, Progress, Summary, TransferError, TransferOptions, Upload};
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
        let engine = Engine::new(self.patient(), options, &tally);
        let mut items = Vec::new();
        for upload in uploads {
            items.extend(engine.items_to_send(upload).await);
        }
        engine.plan(&items);
        engine.send_all(items).await;
        tally.into_summary()
    }
}

impl Engine<'_> {
    async fn send_all(&self, items: Vec<Item>) {
        let wanted = self.compare_with_remote(items).await;
        if self.options.dry_run {
            return self.pretend(Way::Up, &wanted);
        }
        self.small_then_large(Way::Up, wanted).await;
    }

    async fn items_to_send(&self, upload: Upload) -> Vec<Item> {
        let shown = match &upload {
            Upload::File { local, .. } | Upload::Tree { local, .. } => local.display().to_string(),
        };
        let collected = match upload {
            Upload::File { local, remote } => {
                let item = blocking(move || single(&local, &remote)).await;
                item.map(|item| vec![item])
            }
            Upload::Tree {
                local,
                remote,
                entries,
            } => {
                let opened = blocking(move || Root::open(&local)).await;
                let shown = shown.clone();
                opened
                    .map(|local| self.items_of(Tree { local, remote, shown }, entries))
                    .map_err(TransferError::from)
            }
        };
        collected.unwrap_or_else(|error| {
            self.tally.failed(shown, error);
            Vec::new()
        })
    }
}

/// The path on this side.
fn source(item: &Item) -> String {
    Way::Up.source(item)
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
