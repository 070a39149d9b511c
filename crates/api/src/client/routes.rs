//! Every route as a method: `<noun>_<verb>`, typed in both directions.

use std::hash::BuildHasher;
use std::time::Duration;

use hyper::Method;
use serde::Serialize;

use super::call::{Call, OnAbsence, Replay};
use super::query::Target;
use super::{Client, ClientError, LogFollow};
use crate::Envelope;
use crate::jobs::{
    JobDetail, JobPage, JobRequest, KillOptions, KillReply, PackageReply, PruneOptions, PruneReply,
    PruneRequest, QuotaRow, SubmitReply, WhyView, WorkerView,
};
use crate::logs::LogQuery;
use crate::server::{ServerInfo, WhoAmI};

/// The longest that one request waits for a job's end; `job_wait` repeats it.
const LONGEST_POLL: Duration = Duration::from_secs(50);

/// Which jobs a list shows.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Include ended jobs.
    pub all: bool,
    /// Jobs of all users, for administrators.
    pub all_users: bool,
    pub limit: Option<u32>,
    pub name: Option<String>,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Say why each waiting job waits, in its message.
    pub reasons: bool,
}

/// A key that makes repeating a submit harmless: 128 random bits.
pub fn new_idempotency_key() -> String {
    let word = || std::collections::hash_map::RandomState::new().hash_one(std::time::Instant::now());
    format!("{:016x}{:016x}", word(), word())
}

/// How long a server that does not signal that it is still working may take for whole trees before it replies.
pub const TREES: Duration = Duration::from_secs(1800);

/// The same for requests that used to be quick: as long as for anything else.
pub const AS_LONG_AS_ANY: Duration = Duration::ZERO;

impl Client {
    pub async fn jobs_list(&self, filter: &JobFilter) -> Result<JobPage, ClientError> {
        let target = Target::new("/jobs")
            .maybe("all", filter.all.then_some("true"))
            .maybe("all_users", filter.all_users.then_some("true"))
            .maybe("limit", filter.limit)
            .maybe("name", filter.name.as_deref())
            .maybe("after", filter.after.as_deref())
            .maybe("reasons", filter.reasons.then_some("true"));
        self.json(&Call::get(target)).await
    }

    /// Starts a job. It is safe to repeat with the same `key`: there will be one job.
    pub async fn job_submit(&self, request: &JobRequest, key: &str) -> Result<SubmitReply, ClientError> {
        let mut call = Call::post(Target::new("/jobs"), request).replay(Replay::Safe);
        call.key = Some(key.to_owned());
        // A home with a quota may be measured first.
        self.json(&call.lasting(AS_LONG_AS_ANY)).await
    }

    /// `job` is a name, an id or `last`, here and below.
    pub async fn job_get(&self, job: &str) -> Result<JobDetail, ClientError> {
        self.message(&Call::get(Target::new("/jobs").word(job))).await
    }

    pub async fn job_kill(&self, job: &str, options: KillOptions) -> Result<KillReply, ClientError> {
        let target = Target::new("/jobs")
            .word(job)
            .maybe("rm", options.remove.then_some("true"))
            .maybe("now", options.now.then_some("true"))
            .into_string();
        // A repeated removal would reply that there is no such job, although the first one worked.
        let replay = if options.remove {
            Replay::Never
        } else {
            Replay::Safe
        };
        self.json(&Call::new(Method::DELETE, target).replay(replay)).await
    }

    pub async fn job_why(&self, job: &str) -> Result<WhyView, ClientError> {
        self.message(&Call::get(Target::new("/jobs").word(job).word("why")))
            .await
    }

    /// Waits until the job is final, or until `limit` has passed (then it returns the current state). A server that is
    /// being restarted is waited for: when it stops, it answers and is gone before the next request.
    pub async fn job_wait(&self, job: &str, limit: Option<Duration>) -> Result<JobDetail, ClientError> {
        let end = limit.map(|limit| std::time::Instant::now() + limit);
        loop {
            let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
            let poll = left.unwrap_or(LONGEST_POLL).min(LONGEST_POLL);
            let seconds = poll.as_millis().div_ceil(1000);
            let target = Target::new("/jobs")
                .word(job)
                .word("wait")
                .pair("timeout", seconds);
            let mut call = Call::get(target);
            call.patience = poll;
            let reply = self.tried(&call, OnAbsence::Wait).await?;
            let detail = self.read::<Envelope<JobDetail>>(&reply)?.msg;
            if detail.job.status.is_final() || left.is_some_and(|left| left <= poll) {
                return Ok(detail);
            }
        }
    }

    /// Submits the job again, under `name` or its own.
    pub async fn job_rerun(
        &self,
        job: &str,
        name: Option<&str>,
        key: &str,
    ) -> Result<SubmitReply, ClientError> {
        let mut target = Target::new("/jobs").word(job).word("rerun");
        if let Some(name) = name {
            target = target.pair("name", name);
        }
        let mut call = Call::post(target, &serde_json::json!({})).replay(Replay::Safe);
        call.key = Some(key.to_owned());
        self.json(&call.lasting(AS_LONG_AS_ANY)).await
    }

    /// Reads the job's logs; with `query.follow` until the job has ended, across lost connections.
    pub fn job_logs(&self, job: &str, query: LogQuery) -> LogFollow<'_> {
        LogFollow::new(self, job.to_owned(), query)
    }

    pub async fn jobs_prune(
        &self,
        older_than: Option<Duration>,
        options: PruneOptions,
    ) -> Result<PruneReply, ClientError> {
        let body = PruneRequest {
            older_than_seconds: older_than.map(|age| age.as_secs().try_into().unwrap_or(u32::MAX)),
            all: older_than.is_none(),
            dry_run: options.dry_run,
            outputs: options.outputs,
        };
        let call = Call::post(Target::new("/prune"), &body).replay(Replay::Safe);
        self.message(&call.lasting(TREES)).await
    }

    /// The workers of one job, or of all running jobs; with `all_users`, of all users.
    pub async fn workers_list(
        &self,
        job: Option<&str>,
        all_users: bool,
    ) -> Result<Vec<WorkerView>, ClientError> {
        let target = Target::new("/workers")
            .maybe("jobname", job)
            .maybe("all_users", all_users.then_some("true"));
        self.message(&Call::get(target)).await
    }

    pub async fn quota_get(&self, all_users: bool) -> Result<Vec<QuotaRow>, ClientError> {
        let target = Target::new("/quota").maybe("all_users", all_users.then_some("true"));
        let call = Call::get(target);
        self.message(&call.lasting(TREES)).await
    }

    /// Whether the server answers; afterwards its version is known.
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.bytes(&Call::new(Method::GET, "/healthz".to_owned()))
            .await
            .map(drop)
    }

    pub async fn server_get(&self) -> Result<ServerInfo, ClientError> {
        self.message(&Call::get(Target::new("/server"))).await
    }

    pub async fn server_stop(&self) -> Result<(), ClientError> {
        let call = Call::post(Target::new("/server").word("stop"), &serde_json::json!({}));
        self.bytes(&call).await.map(drop)
    }

    pub async fn whoami_get(&self) -> Result<WhoAmI, ClientError> {
        self.message(&Call::get(Target::new("/whoami"))).await
    }

    /// Announces a package and returns which of its files the server lacks; if there are none, the package is stored durably.
    pub async fn package_announce(&self, manifest: &impl Serialize) -> Result<PackageReply, ClientError> {
        let call = Call::post(Target::new("/packages"), manifest).replay(Replay::Safe);
        // The server reads and syncs everything it has of the package before it replies.
        self.message(&call.lasting(TREES)).await
    }

    pub(super) async fn message<T: serde::de::DeserializeOwned>(
        &self,
        call: &Call,
    ) -> Result<T, ClientError> {
        self.json::<Envelope<T>>(call).await.map(|envelope| envelope.msg)
    }
}
