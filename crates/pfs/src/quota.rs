//! Limits and usage of each space; exact for writes through the service.
//!
//! A write reserves its whole size before its first byte, also one that replaces a file: both exist until it is published. A
//! reservation that is not charged is released. Files that jobs write directly are found by measuring and entered with
//! [`Ledger::measured`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::path::Space;
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
}

/// A write that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error("{}: {used} of {limit} bytes are used in {}", refused(.asked, "bytes"), .space.in_words())]
    Bytes {
        space: Space,
        asked: u64,
        used: u64,
        limit: u64,
    },
    #[error("{}: {used} of {limit} files are used in {}", refused(.asked, "files"), .space.in_words())]
    Files {
        space: Space,
        asked: u64,
        used: u64,
        limit: u64,
    },
    #[error("nothing may be written until the space is measured: the server may not read `{folder}` in {}", .space.in_words())]
    Unreadable { space: Space, folder: RelPath },
}

/// Describes what does not fit. Over the limit not even an empty file fits.
fn refused(asked: &u64, what: &str) -> String {
    match asked {
        0 => "nothing may be written until something is removed".to_owned(),
        asked => format!("{asked} more {what} do not fit"),
    }
}

#[derive(Debug, Default)]
struct Account {
    quota: Quota,
    used: Amount,
    /// A folder whose contents the last measurement could not count.
    unreadable: Option<RelPath>,
    /// Reserved by running writes.
    reserved: Amount,
    /// Total ever written; shows what a measurement may have missed.
    written: Amount,
    /// Total ever reserved; shows what writes may have staged during a measurement.
    allowed: Amount,
}

impl Account {
    fn counted(&self) -> Amount {
        self.used.plus(self.reserved)
    }

    /// A space that was not counted completely is treated as one above its limit.
    fn check(&self, space: &Space, asked: Amount) -> Result<(), QuotaError> {
        match &self.unreadable {
            Some(folder) => Err(QuotaError::Unreadable {
                space: space.clone(),
                folder: folder.clone(),
            }),
            None => check(space, self.quota, self.counted(), asked),
        }
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
            open: account.reserved,
        }
    }

    /// The part of the staged bytes and files that no write has reserved: others put it there, and it counts.
    pub fn unreserved(&self, space: &Space, since: &Measuring, staged: Amount) -> Amount {
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

    /// Records a folder whose contents the measurement could not count, or that there is none.
    pub fn unreadable(&self, space: &Space, folder: Option<RelPath>) {
        self.lock().entry(space.clone()).or_default().unreadable = folder;
    }

    /// The limits of a space, and its usage including running writes.
    pub fn report(&self, space: &Space) -> (Quota, Amount) {
        let accounts = self.lock();
        accounts
            .get(space)
            .map(|account| (account.quota, account.counted()))
            .unwrap_or_default()
    }

    /// Fails if a space is over its limit, or was not counted completely.
    pub fn not_over(&self, space: &Space) -> Result<(), QuotaError> {
        match self.lock().get(space) {
            Some(account) => account.check(space, Amount::default()),
            None => Ok(()),
        }
    }

    /// Reserves an amount for a write; fails if it does not fit.
    pub fn reserve(&self, space: &Space, asked: Amount) -> Result<Reservation, QuotaError> {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        if asked != Amount::default() {
            account.check(space, asked)?;
        }
        Ok(self.begin(account, space, asked))
    }

    /// Reserves an amount for a write that began earlier, even if it does not fit.
    pub fn claim(&self, space: &Space, amount: Amount) -> Reservation {
        let mut accounts = self.lock();
        self.begin(accounts.entry(space.clone()).or_default(), space, amount)
    }

    fn begin(&self, account: &mut Account, space: &Space, amount: Amount) -> Reservation {
        account.reserved = account.reserved.plus(amount);
        account.allowed = account.allowed.plus(amount);
        Reservation {
            ledger: self.clone(),
            space: space.clone(),
            amount,
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

/// Checks whether `asked` fits.
fn check(space: &Space, quota: Quota, used: Amount, asked: Amount) -> Result<(), QuotaError> {
    let after = used.plus(asked);
    match quota {
        Quota {
            bytes: Some(limit), ..
        } if after.bytes > limit => Err(QuotaError::Bytes {
            space: space.clone(),
            asked: asked.bytes,
            used: used.bytes,
            limit,
        }),
        Quota {
            files: Some(limit), ..
        } if after.files > limit => Err(QuotaError::Files {
            space: space.clone(),
            asked: asked.files,
            used: used.files,
            limit,
        }),
        _ => Ok(()),
    }
}

/// A reserved amount. It is released on drop, unless [`Reservation::charge`] was called.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    space: Space,
    amount: Amount,
}

impl Reservation {
    /// The space that is charged.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// What may be written.
    pub fn amount(&self) -> Amount {
        self.amount
    }

    /// Ends the write: charges what was actually written and releases what it replaced.
    pub fn charge(mut self, written: Amount, replaced: Amount) {
        let ledger = self.ledger.clone();
        let mut accounts = ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        account.reserved = account.reserved.minus(std::mem::take(&mut self.amount));
        account.used = account.used.plus(written).minus(replaced);
        account.written = account.written.plus(written);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut accounts = self.ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        account.reserved = account.reserved.minus(self.amount);
    }
}

#[cfg(test)]
mod tests;
