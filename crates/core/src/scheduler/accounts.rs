//! Who may take how much, and which of a user's jobs waits for their quota.

use std::collections::{BTreeMap, HashMap};

use super::queue::{GroupId, Key};
use super::quota::{Quota, Tally};
use crate::names::UserName;

/// Stands for a user in here; names are long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct UserId(usize);

/// What is known about one user.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    pub quota: Quota,
    pub used: Tally,
    /// Where in the queue this user has jobs: the first of each line and what it asks for.
    pub lines: BTreeMap<GroupId, (Key, Tally)>,
    /// The first job that waits for the quota. No later job of the user passes it.
    pub hold: Option<Key>,
}

/// All users ever seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    ids: HashMap<UserName, UserId>,
    accounts: Vec<Account>,
}

impl Account {
    /// False when even an idle user could not start it.
    pub fn could_ever(&self, asked: Tally) -> bool {
        self.quota.allows(Tally::default(), asked)
    }

    /// Whether the quota lets a job try to start, given who holds it back.
    pub fn lets(&self, key: Key, asked: Tally) -> bool {
        self.hold.is_none_or(|hold| key < hold) && (self.quota.is_unlimited() || self.could_ever(asked))
    }

    /// The first job that waits for the quota.
    pub fn find_hold(&self) -> Option<Key> {
        if self.quota.is_unlimited() {
            return None;
        }
        let waits = |asked: Tally| !self.quota.allows(self.used, asked) && self.could_ever(asked);
        let lines = self.lines.values();
        lines
            .filter(|(_, asked)| waits(*asked))
            .map(|(key, _)| *key)
            .min()
    }
}

impl Accounts {
    pub fn find(&self, user: &UserName) -> Option<&Account> {
        self.ids.get(user).map(|id| self.get(*id))
    }

    pub fn id(&mut self, user: &UserName) -> UserId {
        if let Some(id) = self.ids.get(user) {
            return *id;
        }
        let id = UserId(self.accounts.len());
        self.accounts.push(Account::default());
        self.ids.insert(user.clone(), id);
        id
    }

    pub fn get(&self, id: UserId) -> &Account {
        &self.accounts[id.0]
    }

    pub fn get_mut(&mut self, id: UserId) -> &mut Account {
        &mut self.accounts[id.0]
    }
}
