//! A job store in memory. It keeps every promise of the port except surviving the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::conductor::Write;
use crate::job::{IdempotencyKey, Job};
use crate::names::{JobId, JobName, UserName};
use crate::ports::{JobStore, Page, PageRequest, StoreError};

#[derive(Debug, Default)]
struct Inner {
    rows: BTreeMap<JobId, Arc<Job>>,
    failing: usize,
}

/// Clones share the same rows, like connections to one database.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Inner>>);

impl MemoryStore {
    /// Makes this many saves fail and change nothing.
    pub fn fail_saves(&self, count: usize) {
        self.lock().failing = count;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest_where(&self, matches: impl Fn(&Job) -> bool) -> Option<Arc<Job>> {
        self.lock().rows.values().rev().find(|job| matches(job)).cloned()
    }
}

impl JobStore for MemoryStore {
    async fn save(&self, writes: &[Write]) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if inner.failing > 0 {
            inner.failing -= 1;
            return Err(StoreError::Write("no space left on device".into()));
        }
        for write in writes {
            match write {
                Write::Save(job) => drop(inner.rows.insert(job.id.clone(), Arc::clone(job))),
                Write::Remove(id) => drop(inner.rows.remove(id)),
            }
        }
        Ok(())
    }

    async fn load_active(&self) -> Result<Vec<Job>, StoreError> {
        let inner = self.lock();
        let active = inner.rows.values().filter(|job| !job.phase.is_final());
        let mut jobs: Vec<Job> = active.map(|job| Job::clone(job)).collect();
        jobs.sort_by_key(|job| job.order);
        Ok(jobs)
    }

    async fn get(&self, job: &JobId) -> Result<Option<Arc<Job>>, StoreError> {
        Ok(self.lock().rows.get(job).cloned())
    }

    async fn latest(&self, user: &UserName, name: Option<&JobName>) -> Result<Option<Arc<Job>>, StoreError> {
        let matches = |job: &Job| job.user == *user && name.is_none_or(|name| job.spec.name == *name);
        Ok(self.latest_where(matches))
    }

    async fn find_by_key(&self, user: &UserName, key: &IdempotencyKey) -> Result<Option<JobId>, StoreError> {
        let made = |job: &Job| job.user == *user && job.key.as_ref() == Some(key);
        Ok(self.latest_where(made).map(|job| job.id.clone()))
    }

    async fn page(&self, request: &PageRequest) -> Result<Page, StoreError> {
        let inner = self.lock();
        let matches = |job: &&Arc<Job>| {
            request.user.as_ref().is_none_or(|user| job.user == *user)
                && request.name.as_ref().is_none_or(|name| job.spec.name == *name)
        };
        let older = |job: &&Arc<Job>| request.before.as_ref().is_none_or(|before| job.id < *before);
        let mut jobs: Vec<Arc<Job>> = inner
            .rows
            .values()
            .rev()
            .filter(older)
            .filter(matches)
            .take(request.limit + 1)
            .cloned()
            .collect();
        let more = jobs.len() > request.limit;
        jobs.truncate(request.limit);
        Ok(Page { jobs, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, job_store_suite, samples};

    #[test]
    fn the_memory_store_passes_the_suite_of_its_port() {
        block_on(job_store_suite::job_store_suite(async || MemoryStore::default()));
        let shared = MemoryStore::default();
        block_on(job_store_suite::survives_reopening(async || shared.clone()));
    }

    #[test]
    fn a_failed_save_changes_nothing() {
        let store = MemoryStore::default();
        let job = samples::pending(1, samples::spec("a", 0, 1));
        store.fail_saves(1);
        let write = [Write::Save(Arc::new(job.clone()))];
        assert!(block_on(store.save(&write)).is_err());
        assert_eq!(block_on(store.get(&job.id)).unwrap(), None);
        assert!(block_on(store.save(&write)).is_ok());
    }
}
