//! Finds out which files the server already has.

use std::sync::Arc;

use paddlecloud_api::client::{Call, ClientError, Replay, TREES, Target};
use paddlecloud_api::files::{FILES, FileMeta, StatsRequest};

use super::source;
use crate::both_ways::Way;
use crate::item::{Contents, Item, Verdict};
use crate::local::hashed;
use crate::mover::{Mover, blocking, same_again};

/// Paths per request.
const ASKED_AT_ONCE: usize = 2000;
/// Bytes the server may have to read for one request, to limit the wait for its reply.
const READ_AT_ONCE: u64 = 16 << 30;

/// What the server reads of files to answer a request about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerReads {
    Metadata,
    /// For digests.
    Contents,
}

/// How many of the first items fit into one request: items of one tree, with a limit on bytes if their contents are read.
pub(crate) fn asked_together<'a>(items: impl IntoIterator<Item = &'a Item>, reads: ServerReads) -> usize {
    let mut first: Option<&Item> = None;
    let mut bytes = 0_u64;
    let fit = items.into_iter().take(ASKED_AT_ONCE).take_while(|item| {
        bytes = bytes.saturating_add(item.size());
        let Some(first) = first else {
            first = Some(*item);
            return true;
        };
        Arc::ptr_eq(&item.tree, &first.tree) && (reads == ServerReads::Metadata || bytes <= READ_AT_ONCE)
    });
    fit.count()
}

impl Mover<'_> {
    /// Returns the items to send; the others are reported as done. Those for a new folder are not asked about.
    pub(super) async fn compare_with_remote(&self, items: Vec<Item>) -> Vec<Item> {
        let mut to_transfer = Vec::new();
        let mut refused = None;
        let mut rest = items.as_slice();
        let reads = match self.options.checksum {
            true => ServerReads::Contents,
            false => ServerReads::Metadata,
        };
        while !rest.is_empty() {
            let (group, after) = rest.split_at(asked_together(rest, reads));
            rest = after;
            match self.ask(group).await {
                Ok(there) => {
                    for (item, there) in group.iter().zip(there) {
                        let verdict = self.judge(item, there.as_ref()).await;
                        to_transfer.extend(self.judged(Way::Up, item.clone(), verdict, &mut refused));
                    }
                }
                Err(error) => {
                    for item in group.iter().filter(|item| !item.is_dir()) {
                        self.tally.failed(source(item), same_again(&error).into());
                    }
                }
            }
            if self.tally.is_over() {
                self.give_up(rest.iter().filter(|item| !item.is_dir()), source);
                return Vec::new();
            }
        }
        to_transfer
    }

    async fn ask(&self, group: &[Item]) -> Result<Vec<Option<FileMeta>>, ClientError> {
        if self.options.new_folders.contains(&group[0].tree.remote) {
            return Ok(vec![None; group.len()]);
        }
        let request = StatsRequest {
            path: (&group[0].tree.remote).into(),
            files: group.iter().map(|item| item.remote.clone()).collect(),
            digest: self.options.checksum,
        };
        self.files.stats(&request).await
    }

    async fn judge(&self, item: &Item, there: Option<&FileMeta>) -> Verdict {
        let same_content = match there {
            Some(there) if item.is_file() && there.size == item.size() => {
                if self.options.checksum {
                    let (root, path) = (item.tree.local.clone(), item.local.clone());
                    // Sending an unreadable file will report it.
                    let local = blocking(move || hashed(&root, &path)).await;
                    local.is_ok_and(|(digest, _)| there.digest == Some(digest))
                } else {
                    there.mtime.is_same_moment(item.mtime)
                }
            }
            _ => false,
        };
        item.judge(there, Contents::same_if(same_content), self.options.existing())
    }
}

impl crate::FileClient<'_> {
    /// The metadata of some paths below a folder, in the order of the request; `None` for those that do not exist.
    pub(crate) async fn stats(&self, request: &StatsRequest) -> Result<Vec<Option<FileMeta>>, ClientError> {
        let call = Call::post(Target::new(FILES).word("stats"), request).replay(Replay::Safe);
        let call = call.lasting(TREES);
        let there: Vec<Option<FileMeta>> = self.message(&call).await?;
        if there.len() != request.files.len() {
            return Err(self
                .client
                .broken("replied about other files than those in the request"));
        }
        Ok(there)
    }
}
