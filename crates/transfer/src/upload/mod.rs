//! Uploads trees: files that the server already has are skipped, small files are packed, large ones are sent in chunks.

mod chunked;
mod compare;
mod delta;
mod packed;
mod stream;

use std::path::Path;
use std::vec::IntoIter;

use paddlecloud_pfs::{Node, PfsPath, RelPath, Root, RootError};

pub(super) use self::compare::asked_together;
use super::both_ways::{Way, amount_of};
use super::engine::{Engine, blocking};
use super::gathering::Gathering;
use super::item::{Item, Tree};
use super::tally::Tally;
use super::{FileClient, Progress, Summary, TransferError, TransferOptions, Upload};
use paddlecloud_api::files::split_last;

impl FileClient<'_> {
    /// Uploads files and trees. The summary lists files that failed; all others were stored.
    pub async fn upload(
        &self,
        uploads: Vec<Upload>,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let tally = Tally::new(progress);
        let engine = Engine::new(self.patient(), options, &tally);
        let mut uploads = uploads.into_iter();
        let items = engine.items_to_send(&mut uploads).await;
        engine.plan(&items, uploads.as_slice().iter().map(foreseen));
        engine.send_all(items).await;
        while uploads.len() > 0 {
            let items = engine.items_to_send(&mut uploads).await;
            engine.send_all(items).await;
        }
        tally.into_summary()
    }

    /// Uploads files of a folder into an announced package, which lacks them. A broken pack is not sent again: the server keeps
    /// its whole files, and the caller asks what is still missing.
    pub async fn fill_package(&self, files: Upload, progress: &dyn Progress) -> Summary {
        let tally = Tally::new(progress);
        let options = TransferOptions::default();
        let mut engine = Engine::new(self.patient(), &options, &tally);
        engine.packs_once = true;
        let items = engine.items_to_send(&mut vec![files].into_iter()).await;
        engine.small_then_large(Way::Up, items).await;
        tally.into_summary()
    }
}

impl Engine<'_> {
    async fn send_all(&self, items: Vec<Item>) {
        if self.tally.is_over() {
            return self.give_up(items.iter().filter(|item| !item.is_dir()), source);
        }
        let wanted = self.compare_with_remote(items).await;
        if self.options.dry_run {
            return self.pretend(Way::Up, &wanted);
        }
        self.small_then_large(Way::Up, wanted).await;
    }

    /// The items of the next uploads, as many as folders may be open at a time.
    async fn items_to_send(&self, uploads: &mut IntoIter<Upload>) -> Vec<Item> {
        let mut gathering = Gathering::default();
        while !gathering.is_full()
            && let Some(upload) = uploads.next()
        {
            let shown = match &upload {
                Upload::File { local, .. } | Upload::Tree { local, .. } => local.display().to_string(),
            };
            let added;
            (gathering, added) = self.add_to_send(gathering, upload, &shown).await;
            if let Err(error) = added {
                self.tally.failed(shown, error);
            }
        }
        gathering.into_items()
    }

    async fn add_to_send(
        &self,
        mut gathering: Gathering,
        upload: Upload,
        shown: &str,
    ) -> (Gathering, Result<(), TransferError>) {
        match upload {
            Upload::File { local, remote } => {
                blocking(move || {
                    let added = add_single(&mut gathering, &local, &remote);
                    (gathering, added)
                })
                .await
            }
            Upload::Tree {
                local,
                remote,
                entries,
            } => {
                let opened = blocking(move || Root::open(&local)).await;
                let shown = shown.to_owned();
                let added = opened.map(|local| {
                    gathering.add_tree(self.items_of(Tree { local, remote, shown }, entries));
                });
                (gathering, added.map_err(TransferError::from))
            }
        }
    }
}

/// The local path.
fn source(item: &Item) -> String {
    Way::Up.source(item)
}

/// The expected files and bytes.
fn foreseen(upload: &Upload) -> (u64, u64) {
    match upload {
        // A file that cannot be inspected fails at its turn.
        Upload::File { local, .. } => (1, local.metadata().map_or(0, |meta| meta.len())),
        Upload::Tree { entries, .. } => amount_of(entries),
    }
}

/// Adds one file, whose remote name may differ.
fn add_single(gathering: &mut Gathering, local: &Path, remote: &PfsPath) -> Result<(), TransferError> {
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
        local: gathering.root(parent, |parent| Ok(Root::open(parent)?))?,
        remote: folder,
        shown: local
            .parent()
            .map(|parent| parent.display().to_string())
            .unwrap_or_default(),
    };
    let local = RelPath::from_bytes(own.as_encoded_bytes()).map_err(RootError::from)?;
    let meta = tree.local.stat(&local)?;
    if !meta.is_file() {
        return Err(TransferError::NotAFile);
    }
    let tree = gathering.shared(parent, tree);
    gathering.add_file(Item {
        tree,
        local,
        remote: name,
        node: Node::File {
            size: meta.size,
            executable: meta.executable,
            digest: None,
        },
        mtime: meta.mtime,
    });
    Ok(())
}
