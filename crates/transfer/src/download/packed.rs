//! Downloads many small files in one reply.

use paddlecloud_api::client::{Call, Client, Replay, Target};
use paddlecloud_api::files::{FILES, PackRequest};
use paddlecloud_pfs::pack::{
    Merged, PackError, PackLimits, PackParser, PlacedStamps, StagedTree, Unpacked, Unpacker,
};
use paddlecloud_pfs::{Existing, RelPath, RootError};

use super::source;
use crate::item::Item;
use crate::mover::{Arrivals, Mover};
use crate::{Outcome, TransferError};

/// The result of a pack.
struct Fetched {
    merged: Merged,
    /// Files that the server left out.
    absent: Vec<RelPath>,
}

impl Mover<'_> {
    /// Fetches some files in one request. Returns those that must be fetched one by one.
    pub(crate) async fn fetch_pack(&self, items: &[Item]) -> Result<Vec<Item>, TransferError> {
        match self.get_pack(items).await {
            Ok(fetched) => Ok(self.tally_fetched_pack(items, &fetched)),
            // The local disk failed, not the server.
            Err(TransferError::Pack(PackError::Storage(error))) => Err(TransferError::Local(error)),
            Err(TransferError::Pack(error)) => {
                let broken = self.files.client.broken(format!("sent a bad pack: {error}"));
                Err(TransferError::Server(broken))
            }
            Err(error) => Err(error),
        }
    }

    async fn get_pack(&self, items: &[Item]) -> Result<Fetched, TransferError> {
        let _permit = self.permit().await;
        let request = PackRequest {
            path: (&items[0].tree.remote).into(),
            files: items.iter().map(|item| item.remote.clone()).collect(),
        };
        let names: Vec<(RelPath, RelPath)> = items
            .iter()
            .map(|item| (item.remote.clone(), item.local.clone()))
            .collect();
        let (root, existing) = (items[0].tree.local.clone(), self.options.existing());
        let mut flow = self.tally.flow(items.iter().map(Item::size).sum());
        let fetched = self.receiving(&mut flow, async move |client, arrivals| {
            let staged = StagedTree::create(&root)?;
            match receive(client, arrivals, &request, &staged).await {
                Ok(parser) => place(staged, parser, &names, existing),
                Err(error) => {
                    // A staged tree that cannot be removed is cleared with other leftovers.
                    let _ = staged.discard();
                    Err(error)
                }
            }
        });
        let fetched = fetched.await.flatten();
        if fetched.is_err() {
            flow.broke_but(0);
        }
        fetched
    }

    fn tally_fetched_pack(&self, items: &[Item], fetched: &Fetched) -> Vec<Item> {
        let mut late = Vec::new();
        for item in items {
            if fetched.absent.contains(&item.remote) {
                // Fetched alone, it succeeds or reports its error.
                late.push(item.clone());
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
                    self.tally.failed(source(item), error);
                }
                None if fetched.merged.kept.contains(&item.local) => {
                    self.tally.finished(&source(item), Outcome::Kept, item.size());
                }
                None => self
                    .tally
                    .finished(&source(item), Outcome::Transferred, item.size()),
            }
        }
        late
    }
}

/// Requests a pack and unpacks it. Blocks on the disk.
async fn receive(
    client: &Client,
    arrivals: &Arrivals,
    request: &PackRequest,
    staged: &StagedTree,
) -> Result<PackParser<Unpacker>, TransferError> {
    let call = Call::post(Target::new(FILES).word("pack"), request).replay(Replay::Safe);
    let mut reply = client.open(&call).await?;
    let mut parser = staged.unpacker(PackLimits::default());
    while let Some(piece) = arrivals.piece(&mut reply, client).await? {
        parser.feed(&piece)?;
    }
    Ok(parser)
}

/// Checks the whole pack and publishes its files.
fn place(
    staged: StagedTree,
    parser: PackParser<Unpacker>,
    names: &[(RelPath, RelPath)],
    existing: Existing,
) -> Result<Fetched, TransferError> {
    let checked = parser.finish_unpacking().map_err(TransferError::from);
    let absent = checked.and_then(|(_, came)| arrange(&staged, &came, names).map_err(TransferError::from));
    match absent {
        Ok(absent) => Ok(Fetched {
            merged: staged.merge(&RelPath::root(), existing, PlacedStamps::Omit)?,
            absent,
        }),
        Err(error) => {
            let _ = staged.discard();
            Err(error)
        }
    }
}

/// Gives renamed files their local names; returns what did not arrive.
fn arrange(
    staged: &StagedTree,
    came: &[Unpacked],
    names: &[(RelPath, RelPath)],
) -> Result<Vec<RelPath>, RootError> {
    let mut absent = Vec::new();
    for (remote, local) in names {
        if came.binary_search_by_key(&remote, |file| &file.path).is_err() {
            absent.push(remote.clone());
        } else if remote != local {
            staged.tree().rename(remote, local, Existing::Replace)?;
        }
    }
    Ok(absent)
}
