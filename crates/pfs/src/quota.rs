//! How much each space may hold and holds: exact for what goes through the service.
//!
//! A write reserves its share before its first byte; a reservation that is not settled is given back. A write that takes
//! the place of a file reserves only what it adds. What jobs write past the service is found by measuring and put in
//! with [`Ledger::measured`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::path::{Place, Space};
use crate::relpath::RelPath;
use crate::root::Usage;

/// Limits of a space; absent means none.
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
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        let files = self.files.saturating_add(other.files);
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files,
        }
    }

    /// What is left without the other; never less than nothing.
    pub fn minus(self, other: Self) -> Self {
        let files = self.files.saturating_sub(other.files);
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            files,
        }
    }

    /// What both have.
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

/// What does not fit; where more is used than may be, that is also what adds nothing.
fn refused(asked: &u64, what: &str) -> String {
    match asked {
        0 => "nothing may be written until something is removed".to_owned(),
        asked => format!("{asked} more {what} do not fit"),
    }
}

impl QuotaError {
    /// The same as if what was set aside for the write before had been asked for just now, with the rest.
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
    /// Promised to writes that still run.
    reserved: Amount,
    /// What they write beside that and what does not count, as it takes the place of something that does.
    instead: Amount,
    /// Files that a running write takes the place of.
    giving_way: HashSet<RelPath>,
    /// All that was ever written; tells what a measurement may have missed.
    written: Amount,
    /// All that writes were ever allowed; tells what they may have staged meanwhile.
    allowed: Amount,
}

impl Account {
    fn counted(&self) -> Amount {
        self.used.plus(self.reserved)
    }

    /// What of an amount gives way to one more write: nothing, if it does so to another already.
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

/// A measurement that has begun.
#[derive(Debug)]
pub struct Measuring {
    written: Amount,
    allowed: Amount,
    /// What running writes may have staged then.
    open: Amount,
}

/// The accounts of all spaces; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<HashMap<Space, Account>>>);

impl Ledger {
    /// A ledger in which nothing is limited yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what a space may hold.
    pub fn limit(&self, space: &Space, quota: Quota) {
        self.lock().entry(space.clone()).or_default().quota = quota;
    }

    /// Begins to measure a space.
    pub fn measure(&self, space: &Space) -> Measuring {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        Measuring {
            written: account.written,
            allowed: account.allowed,
            open: account.reserved.plus(account.instead),
        }
    }

    /// What of all that lies staged no write has set room aside for: somebody else put it there, and it counts.
    pub fn nobodys(&self, space: &Space, since: &Measuring, staged: Amount) -> Amount {
        let mut accounts = self.lock();
        let allowed = accounts.entry(space.clone()).or_default().allowed;
        staged.minus(since.open.plus(allowed.minus(since.allowed)))
    }

    /// Puts in what a space was found to hold; running writes stay on top of it, and so does what was written while
    /// it was measured, whether that was seen or not: the next measurement tells.
    pub fn measured(&self, space: &Space, since: Measuring, used: Amount) {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        account.used = used.plus(account.written.minus(since.written));
    }

    /// What a space may hold, and what it holds with running writes counted in.
    pub fn report(&self, space: &Space) -> (Quota, Amount) {
        let accounts = self.lock();
        accounts
            .get(space)
            .map(|account| (account.quota, account.counted()))
            .unwrap_or_default()
    }

    /// Whether a space already holds more than it may; then nothing new is begun.
    pub fn is_over(&self, space: &Space) -> bool {
        let (quota, used) = self.report(space);
        quota.bytes.is_some_and(|limit| used.bytes > limit)
            || quota.files.is_some_and(|limit| used.files > limit)
    }

    /// Whether so much would fit if as much as `going` were gone; says why not.
    pub fn would_fit(&self, space: &Space, asked: Amount, going: Amount) -> Result<(), QuotaError> {
        let (quota, used) = self.report(space);
        check(space, quota, used.minus(going), asked, Amount::default())
    }

    /// Sets an amount aside for a write, or says why it does not fit.
    pub fn reserve(&self, space: &Space, asked: Amount) -> Result<Reservation, QuotaError> {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        check(space, account.quota, account.counted(), asked, Amount::default())?;
        account.begin(asked, Amount::default());
        Ok(self.reservation(space, asked))
    }

    /// The same for a write to a place where now lies as much as `old`: it counts with what it adds.
    ///
    /// Of several that are to replace one file, one counts so and the others in full: of all that is staged no more
    /// than what is there comes on top of the limit.
    ///
    /// What was not measured yet gives no way, and where more is used than may be, nothing does: a job makes a file of
    /// any length that takes no room on the disk.
    pub fn reserve_at(&self, place: &Place, asked: Amount, old: Amount) -> Result<Reservation, QuotaError> {
        let mut accounts = self.lock();
        let account = accounts.entry(place.space.clone()).or_default();
        let counts = account.used.minus(account.instead);
        let instead = account.given_way(place, asked.common(old)).common(counts);
        let (quota, used) = (account.quota, account.counted());
        check(&place.space, quota, used, asked.minus(instead), instead)?;
        Ok(self.begin_at(account, place, asked.minus(instead), instead))
    }

    /// Sets an amount aside that is there already, whether it fits or not.
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

    /// Notes that something was removed.
    pub fn removed(&self, space: &Space, amount: Amount) {
        let mut accounts = self.lock();
        let account = accounts.entry(space.clone()).or_default();
        account.used = account.used.minus(amount);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Space, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether so much fits, with what is written beside it in place of something.
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

/// An amount set aside. Dropped without [`Reservation::settle`], it is given back.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    space: Space,
    amount: Amount,
    /// What is written beside that in place of what is there.
    instead: Amount,
    replaces: Option<RelPath>,
}

impl Reservation {
    /// The space it counts in.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// All that may be written, also what does not count because something gives way.
    pub fn whole(&self) -> Amount {
        self.amount.plus(self.instead)
    }

    /// Sets aside more, for writes whose size shows only on the way.
    pub fn grow(&mut self, more: Amount) -> Result<(), QuotaError> {
        self.grow_beside(more, Amount::default())
    }

    fn grow_beside(&mut self, more: Amount, instead: Amount) -> Result<(), QuotaError> {
        let mut accounts = self.ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        check(&self.space, account.quota, account.counted(), more, instead)?;
        account.begin(more, Amount::default());
        self.amount = self.amount.plus(more);
        Ok(())
    }

    /// Sees, just before the write takes its place, that all it adds is set aside: what was to give way may have gone
    /// since, or become smaller, and its room may be somebody else's.
    pub fn fit(&mut self, written: Amount, replaced: Amount) -> Result<(), QuotaError> {
        let own = self.amount;
        let beyond = written.minus(own);
        let grown = self.grow_beside(beyond.minus(replaced), beyond.common(replaced));
        grown.map_err(|refused| refused.counting_as_asked(own))
    }

    /// The write is done: what was really written is used now, what it replaced is not any more.
    pub fn settle(mut self, written: Amount, replaced: Amount) {
        let ledger = self.ledger.clone();
        let mut accounts = ledger.lock();
        let account = accounts.entry(self.space.clone()).or_default();
        self.give_back(account);
        account.used = account.used.plus(written).minus(replaced);
        account.written = account.written.plus(written);
    }

    /// Ends it; a second time does nothing.
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
