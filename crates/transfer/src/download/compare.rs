//! Finds out which files are already here.

use std::sync::Arc;

use paddlecloud_api::client::ClientError;
use paddlecloud_api::files::{FileMeta, StatsRequest};
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::{Digest, Existing, RelPath};

use super::source;
use crate::both_ways::Way;
use crate::item::{Contents, Item, Verdict};
use crate::local::hashed;
use crate::mover::{Mover, blocking, same_again};
use crate::upload::{ServerReads, asked_together};

impl Mover<'_> {
    /// Returns the items to fetch; the others are reported as done.
    pub(super) async fn compare_with_local(&self, items: Vec<Item>) -> Vec<Item> {
        let (checksum, existing) = (self.options.checksum, self.options.existing());
        let judged = blocking(move || {
            let here = look(&items);
            items
                .into_iter()
                .zip(here)
                .map(|(item, here)| {
                    let (verdict, digest) = judge(&item, here, checksum, existing);
                    (item, verdict, digest)
                })
                .collect::<Vec<_>>()
        })
        .await;
        let mut to_transfer = Vec::new();
        let mut undecided = Vec::new();
        let mut refused: Option<Item> = None;
        for (item, verdict, digest) in judged {
            match digest {
                Some(_) if item.lies_in(refused.as_ref()) => {}
                Some(digest) => undecided.push((item, digest)),
                None => to_transfer.extend(self.judged(Way::Down, item, verdict, &mut refused)),
            }
        }
        to_transfer.extend(self.compare_digests(&undecided).await);
        to_transfer
    }

    /// Decides about files of the same size whose local digest is known: requests the server's digests, one request per tree.
    async fn compare_digests(&self, undecided: &[(Item, Digest)]) -> Vec<Item> {
        let mut to_transfer = Vec::new();
        let mut rest = undecided;
        while !rest.is_empty() {
            let together = asked_together(rest.iter().map(|(item, _)| item), ServerReads::Contents);
            let (some, after) = rest.split_at(together);
            rest = after;
            if self.tally.is_over() {
                self.give_up(some.iter().map(|(item, _)| item), source);
                continue;
            }
            match self.digests_there(some).await {
                Ok(there) => {
                    for ((item, here), there) in some.iter().zip(there) {
                        let verdict = match (there == Some(*here), self.options.existing()) {
                            (true, _) => Verdict::Unchanged,
                            (false, Existing::Keep) => Verdict::Keep,
                            (false, Existing::Replace) => Verdict::Transfer,
                        };
                        to_transfer.extend(self.judged(Way::Down, item.clone(), verdict, &mut None));
                    }
                }
                Err(error) => {
                    for (item, _) in some {
                        self.tally.failed(source(item), same_again(&error).into());
                    }
                }
            }
        }
        to_transfer
    }

    /// The server's digests of files of one tree; requests only those that no listing contained.
    async fn digests_there(&self, some: &[(Item, Digest)]) -> Result<Vec<Option<Digest>>, ClientError> {
        let unknown = some.iter().filter(|(item, _)| item.digest().is_none());
        let request = StatsRequest {
            path: (&some[0].0.tree.remote).into(),
            files: unknown.map(|(item, _)| item.remote.clone()).collect(),
            digest: true,
        };
        let asked = match request.files.is_empty() {
            true => Vec::new(),
            false => self.files.stats(&request).await?,
        };
        let mut asked = asked.into_iter();
        let mut next = || asked.next().flatten().and_then(|meta| meta.digest);
        Ok(some
            .iter()
            .map(|(item, _)| item.digest().or_else(&mut next))
            .collect())
    }
}

/// The metadata of what is at the items' paths. A path that cannot be inspected fails when it is written.
fn look(items: &[Item]) -> Vec<Option<Meta>> {
    let trees = items.chunk_by(|left, right| Arc::ptr_eq(&left.tree, &right.tree));
    trees
        .flat_map(|items| {
            let root = &items[0].tree.local;
            let paths: Vec<RelPath> = items.iter().map(|item| item.local.clone()).collect();
            root.stat_many(&paths)
                .unwrap_or_else(|_| paths.iter().map(|path| root.stat_link(path).ok()).collect())
        })
        .collect()
}

/// Compares an item with the local file. A returned digest means that only the contents can decide.
fn judge(item: &Item, here: Option<Meta>, checksum: bool, existing: Existing) -> (Verdict, Option<Digest>) {
    let here = here.map(|meta| FileMeta::of(&meta));
    let same_time = here
        .as_ref()
        .is_some_and(|here| here.mtime.is_same_moment(item.mtime));
    let by_time = item.judge(here.as_ref(), Contents::same_if(same_time), existing);
    let by_content = item.judge(here.as_ref(), Contents::Same, existing);
    if !checksum || !item.is_file() || by_content != Verdict::Unchanged {
        return (by_time, None);
    }
    let hashed = hashed(&item.tree.local, &item.local).ok();
    (Verdict::Transfer, hashed.map(|(digest, _)| digest))
}
