//! Uploads trees: files that the server already has are skipped, small files are packed, large ones are sent in chunks.

mod chunked;
mod compare;
mod delta;
mod packed;
mod stream;

use std::path::Path;

use paddlecloud_pfs::{Node, PfsPath, RelPath, Root, RootError};

pub(super) use self::compare::{ServerReads, asked_together};
use super::both_ways::{Way, amount_of};
use super::gathering::Gathering;
use super::item::{Item, Tree};
use super::mover::Mover;
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
        let mover = Mover::new(self.patient(), options, &tally);
        mover.plan(uploads.iter().map(foreseen));
        let mut uploads = uploads.into_iter();
        while uploads.len() > 0 {
            let items = mover.gathered(&mut uploads, add).await;
            mover.send_all(items).await;
        }
        tally.into_summary()
    }

    /// Uploads files of a folder into an announced package, which lacks them. A broken pack is not sent again: the server keeps
    /// its whole files, and the caller asks what is still missing.
    pub async fn fill_package(&self, files: Upload, progress: &dyn Progress) -> Summary {
        let tally = Tally::new(progress);
        let options = TransferOptions::default();
        let mut mover = Mover::new(self.patient(), &options, &tally);
        mover.packs_once = true;
        let items = mover.gathered(&mut vec![files].into_iter(), add).await;
        mover.small_then_large(Way::Up, items).await;
        tally.into_summary()
    }
}

impl Mover<'_> {
    async fn send_all(&self, items: Vec<Item>) {
        if self.tally.is_over() {
            return self.give_up(items.iter().filter(|item| !item.is_dir()), source);
        }
        let to_transfer = self.compare_with_remote(items).await;
        if self.options.dry_run {
            return self.pretend(Way::Up, &to_transfer);
        }
        self.small_then_large(Way::Up, to_transfer).await;
    }
}

fn add(gathering: &mut Gathering, upload: Upload) {
    let (shown, added) = match upload {
        Upload::File { local, remote } => {
            let added = add_single(gathering, &local, &remote);
            (local.display().to_string(), added)
        }
        Upload::Tree {
            local,
            remote,
            entries,
        } => {
            let (shown, opened) = (local.display().to_string(), Root::open(&local));
            let tree = opened.map(|local| Tree {
                local,
                remote,
                shown: shown.clone(),
            });
            let added = tree.map(|tree| gathering.add_tree(tree, entries));
            (shown, added.map_err(TransferError::from))
        }
    };
    gathering.failed.extend(added.err().map(|error| (shown, error)));
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
        node: Node::file(meta.size, meta.executable),
        mtime: meta.mtime,
    });
    Ok(())
}
