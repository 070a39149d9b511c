//! Many small files in one reply.

use paddlecloud_pfs::pack::{Merged, PackLimits, PackParser, StagedTree, Unpacker};
use paddlecloud_pfs::{Existing, RelPath, RootError};

use super::source;
use crate::client::call::{Call, Replay};
use crate::client::files::engine::{Engine, blocking, same_again};
use crate::client::files::item::Item;
use crate::client::files::patience::{Patience, may_pass};
use crate::client::files::{Outcome, TransferError};
use crate::client::query::Target;
use crate::files::{FILES, PackRequest};

/// What a pack brought.
struct Fetched {
    merged: Merged,
    /// Files the server left out.
    absent: Vec<RelPath>,
}

impl Engine<'_> {
    /// Fetches a batch. What must travel alone after all is handed back.
    pub(super) async fn fetch_packed(&self, batch: Vec<Item>) -> Vec<Item> {
        let mut late = Vec::new();
        let mut waiting = vec![batch];
        let mut patience = Patience::new(self.files.client);
        while let Some(mut items) = waiting.pop() {
            if self.tally.is_over() {
                self.give_up(&items, source);
                continue;
            }
            let error = match self.get_pack(&items).await {
                Ok(fetched) => {
                    patience.renew();
                    late.extend(self.settle_pack(items, &fetched));
                    continue;
                }
                Err(TransferError::Server(error)) => error,
                Err(TransferError::Pack(error)) => {
                    self.files.client.broken(format!("sent a bad pack: {error}"))
                }
                Err(error) => {
                    // This machine's own trouble is every file's.
                    let text = error.to_string();
                    for item in &items {
                        let source_error = std::io::Error::other(text.clone());
                        let error = TransferError::Io {
                            action: "write what was fetched",
                            source: source_error,
                        };
                        self.tally.failed(source(item), error);
                    }
                    continue;
                }
            };
            if items.len() == 1 && may_pass(&error) && patience.tries() > 1 {
                late.append(&mut items);
                continue;
            }
            match patience.after(error).await {
                Ok(()) if items.len() > 1 => {
                    let second = items.split_off(items.len() / 2);
                    waiting.extend([second, items]);
                }
                Ok(()) => waiting.push(items),
                Err(error) => {
                    for item in &items {
                        self.tally.failed(source(item), same_again(&error).into());
                    }
                }
            }
        }
        late
    }

    async fn get_pack(&self, items: &[Item]) -> Result<Fetched, TransferError> {
        let _permit = self.permit().await;
        let request = PackRequest {
            path: (&items[0].tree.remote).into(),
            files: items.iter().map(|item| item.remote.clone()).collect(),
        };
        for item in items {
            self.tally.started(&source(item));
        }
        let call = Call::post(Target::new(FILES).word("pack"), &request).replay(Replay::Safe);
        let mut reply = self.files.client.open(&call).await?;
        let root = items[0].tree.local.clone();
        let staged = blocking(move || StagedTree::create(&root)).await?;
        let mut parser = staged.unpacker(PackLimits::default());
        let outcome = loop {
            match reply.piece(self.files.client).await {
                Ok(Some(piece)) => {
                    self.received(piece.len() as u64).await;
                    let (back, fed) = blocking(move || feed(parser, &piece)).await;
                    parser = back;
                    if let Err(error) = fed {
                        break Err(TransferError::from(error));
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        let names: Vec<(RelPath, RelPath)> = items
            .iter()
            .map(|item| (item.remote.clone(), item.local.clone()))
            .collect();
        let existing = self.existing();
        blocking(move || match outcome {
            Ok(()) => place(staged, parser, &names, existing),
            Err(error) => {
                drop(parser);
                staged.discard()?;
                Err(error)
            }
        })
        .await
    }

    /// Counts bytes that came in, and waits where they came too fast.
    pub(super) async fn received(&self, bytes: u64) {
        self.tally.moved(bytes);
        if let Some(throttle) = &self.throttle {
            tokio::time::sleep(throttle.delay(bytes)).await;
        }
    }

    fn settle_pack(&self, items: Vec<Item>, fetched: &Fetched) -> Vec<Item> {
        let mut late = Vec::new();
        for item in items {
            if fetched.absent.contains(&item.remote) {
                // Alone it either succeeds or says what is wrong with it.
                late.push(item);
                continue;
            }
            let failure = fetched
                .merged
                .failed
                .iter()
                .find(|(path, _)| item.local.is_within(path));
            match failure {
                Some((_, error)) => {
                    let error = TransferError::Io {
                        action: "write the file",
                        source: std::io::Error::other(error.to_string()),
                    };
                    self.tally.failed(source(&item), error);
                }
                None if fetched.merged.kept.contains(&item.local) => {
                    self.tally.finished(&source(&item), Outcome::Kept, item.size());
                }
                None => self
                    .tally
                    .finished(&source(&item), Outcome::Transferred, item.size()),
            }
        }
        late
    }
}

fn feed(
    mut parser: PackParser<Unpacker>,
    piece: &[u8],
) -> (PackParser<Unpacker>, Result<(), paddlecloud_pfs::pack::PackError>) {
    let fed = parser.feed(piece);
    (parser, fed)
}

/// Accepts the whole pack and moves its files to their places.
fn place(
    staged: StagedTree,
    parser: PackParser<Unpacker>,
    names: &[(RelPath, RelPath)],
    existing: Existing,
) -> Result<Fetched, TransferError> {
    let checked = parser.finish_unpacking().map_err(TransferError::from);
    let absent = checked.and_then(|_| arrange(&staged, names).map_err(TransferError::from));
    match absent {
        Ok(absent) => Ok(Fetched {
            merged: staged.merge(&RelPath::root(), existing, false)?,
            absent,
        }),
        Err(error) => {
            staged.discard()?;
            Err(error)
        }
    }
}

/// Gives renamed files their names here; returns what did not come.
fn arrange(staged: &StagedTree, names: &[(RelPath, RelPath)]) -> Result<Vec<RelPath>, RootError> {
    let mut absent = Vec::new();
    for (remote, local) in names {
        if !staged.tree().exists(remote)? {
            absent.push(remote.clone());
        } else if remote != local {
            staged.tree().rename(remote, local, Existing::Replace)?;
        }
    }
    Ok(absent)
}
