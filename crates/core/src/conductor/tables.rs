//! Which job holds which name, and which job was created by which key.

use std::collections::{HashMap, VecDeque};

use crate::job::{IdempotencyKey, Job};
use crate::names::{JobId, JobName, UserName};
use crate::planted::{Planted, bug};

/// Every unfinished run, by user and name.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<UserName, HashMap<JobName, Vec<JobId>>>);

impl Names {
    pub(super) fn insert(&mut self, user: &UserName, name: &JobName, id: &JobId) {
        let names = match self.0.get_mut(user) {
            Some(names) => names,
            None => self.0.entry(user.clone()).or_default(),
        };
        names.entry(name.clone()).or_default().push(id.clone());
    }

    /// The latest run is the last.
    pub(super) fn runs(&self, user: &UserName, name: &JobName) -> &[JobId] {
        self.0
            .get(user)
            .and_then(|names| names.get(name))
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn remove(&mut self, user: &UserName, name: &JobName, id: &JobId) {
        let Some(names) = self.0.get_mut(user) else {
            return;
        };
        let Some(runs) = names.get_mut(name) else {
            return;
        };
        runs.retain(|run| run != id);
        if runs.is_empty() {
            names.remove(name);
        }
        if names.is_empty() {
            self.0.remove(user);
        }
    }
}

/// How many keys of final jobs are remembered: more than can end between a caller's store lookup and its submit.
const REMEMBERED: usize = 4096;

/// The job that each key created: unfinished jobs and those that ended recently.
#[derive(Debug, Default)]
pub(super) struct Keys {
    made: HashMap<UserName, HashMap<IdempotencyKey, JobId>>,
    ended: VecDeque<(UserName, IdempotencyKey)>,
}

impl Keys {
    pub(super) fn find(&self, user: &UserName, key: &IdempotencyKey) -> Option<&JobId> {
        self.made.get(user)?.get(key)
    }

    pub(super) fn insert(&mut self, job: &Job) {
        let Some(key) = job.key.clone().filter(|_| !bug(Planted::KeyForgotten)) else {
            return;
        };
        self.made
            .entry(job.user.clone())
            .or_default()
            .insert(key, job.id.clone());
    }

    /// The job is final: its key is remembered for a while.
    pub(super) fn retire(&mut self, job: &Job) {
        let Some(key) = job.key.clone() else {
            return;
        };
        self.ended.push_back((job.user.clone(), key));
        if self.ended.len() > REMEMBERED
            && let Some((user, key)) = self.ended.pop_front()
        {
            self.forget(&user, &key);
        }
    }

    fn forget(&mut self, user: &UserName, key: &IdempotencyKey) {
        let Some(keys) = self.made.get_mut(user) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            self.made.remove(user);
        }
    }
}
