//! Logs of a job: as a stream of frames, or as text.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use paddlecloud_accounts::auth::Caller;
use paddlecloud_accounts::refusals::Limit;
use paddlecloud_api::logs::LogQuery;
use paddlecloud_core::names::{JobRef, UserName};
use rustix::process::{Resource, getrlimit};

use super::{App, AppError};

impl App {
    /// The frames of a job's log. The stream ends when the server stops; a follower resumes by offset.
    pub async fn log_stream(
        &self,
        caller: &Caller,
        target: &JobRef,
        query: LogQuery,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<>, AppError> {
        let job = self.job_find(caller, target, "job.logs").await?;
        let reading = self.log_read_begin(caller, job.workers_with_logs().len())?;
        let opened = self.logs.open(job, &query).await?;
        let portions = stream::unfold((opened, reading), async |(mut log, reading)| {
            let portion = log.next().await?;
            Some((portion.map(Bytes::from).map_err(io::Error::other), (log, reading)))
        });
        Ok(portions.take_until(self.stop.clone().cancelled_owned()))
    }

    /// A job's output so far, as text.
    pub async fn log_show(
        &self,
        caller: &Caller,
        target: &JobRef,
        query: LogQuery,
    ) -> Result<String, AppError> {
        let job = self.job_find(caller, target, "job.logs").await?;
        let _reading = self.log_read_begin(caller, job.workers_with_logs().len())?;
        Ok(self.logs.text(job, &query).await?)
    }

    fn log_read_begin(&self, caller: &Caller, workers: usize) -> Result<Reading, AppError> {
        let reading = self.log_readers.begin(&caller.user, workers);
        reading.ok_or_else(|| {
            self.metrics.refusals.count(Limit::LogReaders);
            AppError::TooManyLogReaders
        })
    }
}

/// Limits concurrent log reads: each takes file descriptors, and the server needs some for itself.
#[derive(Debug)]
pub struct LogReaders {
    most: usize,
    most_of_one: usize,
    open: Mutex<HashMap<UserName, usize>>,
}

impl LogReaders {
    /// Uses an eighth of this process's file descriptors, two per log. One user gets a quarter of them, unless there are no others.
    pub fn of_this_process(single_user: bool) -> Arc<LogReaders> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors / 16).unwrap_or(usize::MAX);
        LogReaders::with(most, if single_user { most } else { most / 4 })
    }

    fn with(most: usize, most_of_one: usize) -> Arc<LogReaders> {
        Arc::new(LogReaders {
            most,
            most_of_one,
            open: Mutex::default(),
        })
    }

    /// Registers a user's read of the logs of this many workers. A user who reads nothing else may read any job.
    fn begin(self: &Arc<Self>, user: &UserName, workers: usize) -> Option<Reading> {
        let workers = workers.max(1);
        let mut open = self.open();
        let own = open.get(user).copied().unwrap_or(0);
        let all: usize = open.values().sum();
        if own > 0 && (own + workers > self.most_of_one || all + workers > self.most) {
            return None;
        }
        *open.entry(user.clone()).or_default() += workers;
        Some(Reading {
            readers: Arc::clone(self),
            user: user.clone(),
            workers,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<UserName, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of logs, counted until it is dropped.
struct Reading {
    readers: Arc<LogReaders>,
    user: UserName,
    workers: usize,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut open = self.readers.open();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= self.workers;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_log_readers_of_a_user_are_limited_but_one_is_always_allowed() {
        let readers = LogReaders::with(40, 10);
        let (ada, bob) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let large = readers.begin(&ada, 100).expect("the first one, however large");
        assert!(readers.begin(&ada, 1).is_none());
        let other = readers.begin(&bob, 4).expect("others are not kept from theirs");
        drop(large);
        let more: Vec<_> = (0..10).map_while(|_| readers.begin(&ada, 2)).collect();
        assert_eq!(more.len(), 5, "a quarter is for one user");
        drop((more, other));
        assert!(readers.open().is_empty(), "nothing is kept");
    }
}
