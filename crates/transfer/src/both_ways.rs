//! The steps of a transfer that are the same in both directions.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_pfs::{Entry, RootError};

use super::gathering::Gathering;
use super::item::{Item, Verdict, batches};
use super::mover::{Mover, blocking, same_again};
use super::patience::{Patience, may_pass};
use super::{Outcome, TransferError};

/// After this many packs have arrived, the next ones are twice as large again.
const GROW_AFTER: u32 = 16;

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    /// The source path of an item, for display.
    pub(super) fn source(self, item: &Item) -> String {
        match self {
            Way::Up => item.shown(&item.local),
            Way::Down => item.shown(&item.remote),
        }
    }

    /// The destination path of an item, for display.
    fn dest(self, item: &Item) -> String {
        match self {
            Way::Up => item
                .remote_path()
                .map_or_else(|_| item.remote.to_string(), |path| path.to_string()),
            Way::Down => item.local.to_string(),
        }
    }
}

/// Number and bytes of the files among entries.
pub(super) fn amount_of(entries: &[Entry]) -> (u64, u64) {
    let files = entries.iter().filter(|entry| !entry.is_dir());
    files.fold((0, 0), |(files, bytes), entry| (files + 1, bytes + entry.size()))
}

impl Mover<'_> {
    /// Reports files and bytes of what will be transferred.
    pub(super) fn plan(&self, foreseen: impl Iterator<Item = (u64, u64)>) {
        let (files, bytes) = foreseen.fold((0, 0), |all, next| (all.0 + next.0, all.1 + next.1));
        self.tally.planned(files, bytes);
    }

    /// The items of the next sources, as many as folders may be open at a time.
    pub(super) async fn gathered<S: Send + 'static>(
        &self,
        sources: &mut IntoIter<S>,
        add: impl Fn(&mut Gathering, S) + Send + 'static,
    ) -> Vec<Item> {
        let mut waiting = std::mem::take(sources);
        let mut gathering = Gathering::default();
        (*sources, gathering) = blocking(move || {
            while !gathering.is_full()
                && let Some(source) = waiting.next()
            {
                add(&mut gathering, source);
            }
            (waiting, gathering)
        })
        .await;
        for (shown, error) in std::mem::take(&mut gathering.failed) {
            self.tally.failed(shown, error);
        }
        gathering.into_items()
    }

    /// Returns an item that must move; reports any other. What lies in a refused folder is skipped.
    pub(super) fn judged(
        &self,
        way: Way,
        item: Item,
        verdict: Verdict,
        refused: &mut Option<Item>,
    ) -> Option<Item> {
        if item.lies_in(refused.as_ref()) {
            return None;
        }
        let outcome = match verdict {
            Verdict::Transfer => return Some(item),
            Verdict::Unchanged => Outcome::Unchanged,
            Verdict::Keep => Outcome::Kept,
            Verdict::Refuse(kind) => {
                let error = item.refused_at(way.dest(&item), kind);
                self.tally.failed(way.source(&item), error);
                *refused = Some(item);
                return None;
            }
        };
        if !item.is_dir() {
            self.tally.reused(item.size());
            self.tally.finished(&way.source(&item), outcome, item.size());
        }
        None
    }

    /// Reports what would be transferred.
    pub(super) fn pretend(&self, way: Way, to_transfer: &[Item]) {
        for item in to_transfer.iter().filter(|item| !item.is_dir()) {
            self.tally
                .finished(&way.source(item), Outcome::Transferred, item.size());
        }
    }

    /// Moves small items in packs first, then large ones one by one, together with those that turned out not to fit a pack.
    pub(super) async fn small_then_large(&self, way: Way, items: Vec<Item>) {
        let (large, small): (Vec<Item>, Vec<Item>) = items.into_iter().partition(Item::is_large);
        let late = Mutex::new(Vec::new());
        self.for_each(batches(small), async |batch| {
            let left = self.in_packs(way, batch).await;
            late.lock().expect("nobody panics with it").extend(left);
        })
        .await;
        let late = late.into_inner().expect("nobody panics with it");
        self.for_each(large.into_iter().chain(late), async |item| match way {
            Way::Up => self.send_chunked(item).await,
            Way::Down => self.fetch_chunked(item).await,
        })
        .await;
    }

    /// Moves a batch in one request. Returns the items that must be sent one by one.
    ///
    /// A broken connection costs at most the batch. The next batches are sent in halves, until enough of them have arrived: a
    /// server that was restarted breaks connections too.
    async fn in_packs(&self, way: Way, batch: Vec<Item>) -> Vec<Item> {
        let mut late = Vec::new();
        let (whole, mut waiting) = (batch.len(), vec![batch]);
        let mut patience = Patience::new(self.files.client);
        while let Some(mut items) = waiting.pop() {
            if self.tally.is_over() {
                self.give_up(items.iter().filter(|item| !item.is_dir()), |item| {
                    way.source(item)
                });
                continue;
            }
            let halvings = self.halvings.load(Ordering::Relaxed);
            if items.len() > (whole >> halvings).max(1) {
                let second = items.split_off(items.len() / 2);
                waiting.extend([second, items]);
                continue;
            }
            let moved = match way {
                Way::Up => self.send_pack(&items).await,
                Way::Down => self.fetch_pack(&items).await,
            };
            let error = match moved {
                Ok(left) => {
                    patience.renew();
                    if self.arrived.fetch_add(1, Ordering::Relaxed) % GROW_AFTER == GROW_AFTER - 1 {
                        self.halvings
                            .fetch_min(halvings.saturating_sub(1), Ordering::Relaxed);
                    }
                    late.extend(left);
                    continue;
                }
                Err(TransferError::Server(error)) => error,
                Err(error) => {
                    self.fail_all(way, &items, |item| here(item, &error));
                    continue;
                }
            };
            if self.packs_once {
                self.fail_all(way, &items, |_| same_again(&error).into());
                continue;
            }
            if items.len() == 1 && may_pass(&error) && patience.tries() > 1 && items[0].is_file() {
                late.append(&mut items);
                continue;
            }
            let is_lost = matches!(error, ClientError::Broken { .. });
            if items.len() > 1 && (is_lost || error.refusal() == Some(ErrorName::Damaged)) {
                self.halvings.fetch_max(halvings + 1, Ordering::Relaxed);
            }
            match patience.after(error).await {
                Ok(()) => waiting.push(items),
                Err(error) => self.fail_all(way, &items, |_| same_again(&error).into()),
            }
        }
        late
    }

    fn fail_all(&self, way: Way, items: &[Item], error: impl Fn(&Item) -> TransferError) {
        for item in items {
            self.tally.failed(way.source(item), error(item));
        }
    }
}

/// A problem of this machine, for one of the files that it fails.
fn here(item: &Item, error: &TransferError) -> TransferError {
    match error {
        TransferError::Local(RootError::NoSpace(_)) => RootError::NoSpace(item.local.clone()).into(),
        TransferError::Local(RootError::FsQuota(_)) => RootError::FsQuota(item.local.clone()).into(),
        other => TransferError::Io {
            action: "write what was fetched",
            source: std::io::Error::other(other.to_string()),
        },
    }
}
