//! Limits and usage of each space; exact for writes through the service.
//!
//! A write reserves its size before its first byte, and a reservation that is not settled is released. A write that replaces a
//! file reserves only what it adds. Files that jobs write directly are found by measuring and entered with [`Ledger::measured`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::Usage;

/// Limits of a space; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

/// An amount of bytes and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    pub bytes: u64,
    pub files: u64,
}

impl From<Usage> for Amount {
    fn from(usage: Usage) -> Self {
        Self {
            bytes: usage.bytes,
            files: usage.files,
        }
    }
}

impl Amount {
    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        let files = self.files.saturating_add(other.files);
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files,
        }
    }

    /// The difference, at least zero.
    pub fn minus(self, other: Self) -> Self {
        let files = self.files.saturating_sub(other.files);
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            files,
        }
    }

    /// The minimum of both, for bytes and files separately.
    pub fn common(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            files: self.files.min(other.files),
        }
    }
}

/// A write that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error("{}: {used} of {limit} bytes are used in {space}", refused(.asked, "bytes"))]
    Bytes {
        space: Space,
        asked: u64,
        used: u64,
        limit: u64,
    },
    #[error("{}: {used} of {limit} files are used in {space}", refused(.asked, "files"))]
    Files {
        space: Space,
        asked: u64,
        used: u64,
        limit: u64,
    },
}

/// Describes what does not fit. Over the limit, even a write that adds nothing is refused.
fn refused(asked: &u64, what: &str) -> String {
    match asked {
        0 => "nothing may be written until something is removed".to_owned(),
        asked => format!("{asked} more {what} do not fit"),
    }
}

impl QuotaError {
    /// Reports the error as if the write's own reservation had been requested just now, with the rest.
    fn counting_as_asked(mut self, own: Amount) -> Self {
        let (asked, used, own) = match &mut self {
            Self::Bytes { asked, used, .. } => (asked, used, own.bytes),
            Self::Files { asked, used, .. } => (asked, used, own.files),
        };
        *asked = asked.saturating_add(own);
        *used = used.saturating_sub(own);
        self
    }
}

#[derive(Debug, Default)]
struct Account {
    quota: Quota,
    used: Amount,
    /// Reserved by running writes.
    reserved: Amount,
    /// What running writes write in addition, without being charged, because it replaces something counted in `used`.
    instead: Amount,
    /// Files that a running write will replace.
    giving_way: HashSet<RelPath>,
    /// Total ever written; shows what a measurement may have missed.
    written: Amount,
    /// Total ever reserved; shows what writes may have staged during a measurement.
    allowed: Amount,
}

impl Account {
    fn counted(&self) -> Amount {
        self.used.plus(self.reserved)
    }

    /// The part of an amount that is credited to a new write: none if another write already replaces the file.
    fn given_way(&self, place: &Place, amount: Amount) -> Amount {
        match self.giving_way.contains(&place.path) {
            true => Amount::default(),
            false => amount,
        }
    }

    fn begin(&mut self, amount: Amount, instead: Amount) {
        self.reserved = self.reserved.plus(amount);
        self.instead = self.instead.plus(instead);
        self.allowed = self.allowed.plus(amount).plus(instead);
    }
}

/// A measurement in progress.
#[derive(Debug)]
pub struct Measuring {
    written: Amount,
    allowed: Amount,
    /// What running writes may have staged at its start.
    open: Amount,
}

/// The accounts of all spaces; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<HashMap<Space, Account>>>);

impl Ledger {
    /// A ledger without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limits of a space.
    pub fn limit(&self, space: &Space, quota: Quota) {
        self.lock().entry(space.clone()).or_default().quota = quota;
    }

    /// Starts to measure a space.
    pub fn measure(&self, space: &Space) -> Measuring {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        Measuring {
            written: account.written,
            allowed: account.allowed,
            open: account.reserved.plus(account.instead),
        }
    }

    /// The part of the staged bytes and files that no write has reserved: others put it there, and it counts.
    pub fn nobodys(&self, space: &Space, since: &Measuring, staged: Amount) -> Amount {
        let mut accounts = self.lock();
        let allowed = accounts.entry(space.clone()).or_default().allowed;
        staged.minus(since.open.plus(allowed.minus(since.allowed)))
    }

    /// Sets the measured usage. Running writes are added to it, and so is what was written during the measurement, seen or not:
    /// the next measurement corrects that.
    pub fn measured(&self, space: &Space, since: Measuring, used: Amount) {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        account.used = used.plus(account.written.minus(since.written));
    }

    /// The limits of a space, and its usage including running writes.
    pub fn report(&self, space: &Space) -> (Quota, Amount) {
        let accounts = self.lock();
        accounts
            .get(space)
            .map(|account| (account.quota, account.counted()))
            .unwrap_or_default()
    }

    /// Whether a space is over its limit; then no new write starts.
    pub fn is_over(&self, space: &Space) -> bool {
        let (quota, used) = self.report(space);
        quota.bytes.is_some_and(|limit| used.bytes > limit)
            || quota.files.is_some_and(|limit| used.files > limit)
    }

    /// Reserves an amount for a write; fails if it does not fit.
    pub fn reserve(&self, space: &Space, asked: Amount) -> Result<Reservation, QuotaError> {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        check(space, account.quota, account.counted(), asked, Amount::default())?;
        account.begin(asked, Amount::default());
        Ok(self.reservation(space, asked))
    }

    /// Like [`Self::reserve`] for a write that replaces `old` at a place: only what it adds is charged.
    ///
    /// Of concurrent writes to one file, the first is charged the difference and the others in full, so that staged bytes exceed
    /// the limit by no more than the existing file.
    ///
    /// `old` is credited only as far as it was measured, and not at all over the limit: a job can create a file of any length
    /// that takes no disk space.
    pub fn reserve_at(&self, place: &Place, asked: Amount, old: Amount) -> Result<Reservation, QuotaError> {
        let mut accounts = self.lock();
        let account = accounts.entry(place.space.clone()).or_default();
        let counts = account.used.minus(account.instead);
        let instead = account.given_way(place, asked.common(old)).common(counts);
        let (quota, used) = (account.quota, account.counted());
        check(&place.space, quota, used, asked.minus(instead), instead)?;
        Ok(self.begin_at(account, place, asked.minus(instead), instead))
    }

    /// Reserves an amount for a write that began earlier, even if it does not fit.
    pub fn claim_at(&self, place: &Place, amount: Amount, old: Amount) -> Reservation {
        let mut accounts = self.lock();
        let account = accounts.entry(place.space.clone()).or_default();
        let instead = account.given_way(place, amount.common(old));
        self.begin_at(account, place, amount.minus(instead), instead)
    }

    fn begin_at(&self, account: &mut Account, place: &Place, amount: Amount, instead: Amount) -> Reservation {
        account.begin(amount, instead);
        let mut reservation = self.reservation(&place.space, amount);
        if instead != Amount::default() {
            account.giving_way.insert(place.path.clone());
            reservation.instead = instead;
            reservation.replaces = Some(place.path.clone());
        }
        reservation
    }

    fn reservation(&self, space: &Space, amount: Amount) -> Reservation {
        Reservation {
            ledger: self.clone(),
            space: space.clone(),
            amount,
            instead: Amount::default(),
            replaces: None,
        }
    }

    /// Records a removal.
    pub fn removed(&self, space: &Space, amount: Amount) {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        account.used = account.used.minus(amount);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Space, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks whether `asked` fits, together with `instead`, which replaces something.
fn check(
    space: &Space,
    quota: Quota,
    used: Amount,
    asked: Amount,
    instead: Amount,
) -> Result<(), QuotaError> {
    let written = asked.plus(instead);
    let after = used.plus(asked);
    match quota {
        Quota {
            bytes: Some(limit), ..
        } if after.bytes > limit && written.bytes > 0 => Err(QuotaError::Bytes {
            space: space.clone(),
            asked: asked.bytes,
            used: used.bytes,
            limit,
        }),
        Quota {
            files: Some(limit), ..
        } if after.files > limit && written.files > 0 => Err(QuotaError::Files {
            space: space.clone(),
            asked: asked.files,
            used: used.files,
            limit,
        }),
        _ => Ok(()),
    }
}

/// A reserved amount. It is released on drop, unless [`Reservation::settle`] was called.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    space: Space,
    amount: Amount,
    /// What is written in addition, in place of existing bytes and files.
    instead: Amount,
    replaces: Option<RelPath>,
}

impl Reservation {
    /// The space that is charged.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The total that may be written, including the part that is not charged because it replaces something.
    pub fn whole(&self) -> Amount {
        self.amount.plus(self.instead)
    }

    fn grow_beside(&mut self, more: Amount, instead: Amount) -> Result<(), QuotaError> {
        let mut accounts = self.ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        check(&self.space, account.quota, account.counted(), more, instead)?;
        account.begin(more, Amount::default());
        self.amount = self.amount.plus(more);
        Ok(())
    }

    /// Ensures, just before publishing, that everything the write adds is reserved: the file to replace may have been removed or
    /// become smaller, and its space taken by another write.
    pub fn fit(&mut self, written: Amount, replaced: Amount) -> Result<(), QuotaError> {
        let own = self.amount;
        let beyond = written.minus(own);
        let grown = self.grow_beside(beyond.minus(replaced), beyond.common(replaced));
        grown.map_err(|refused| refused.counting_as_asked(own))
    }

    /// Ends the write: charges what was actually written and releases what it replaced.
    pub fn settle(mut self, written: Amount, replaced: Amount) {
        let ledger = self.ledger.clone();
        let mut accounts = ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        self.give_back(account);
        account.used = account.used.plus(written).minus(replaced);
        account.written = account.written.plus(written);
    }

    /// Releases the reservation; a second call does nothing.
    fn give_back(&mut self, account: &mut Account) {
        account.reserved = account.reserved.minus(std::mem::take(&mut self.amount));
        account.instead = account.instead.minus(std::mem::take(&mut self.instead));
        if let Some(path) = self.replaces.take() {
            account.giving_way.remove(&path);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let ledger = self.ledger.clone();
        let mut accounts = ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        self.give_back(account);
    }
}

#[cfg(test)]
mod tests;
