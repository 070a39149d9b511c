//! Reading and killing jobs.

use std::sync::Arc;
use std::time::Duration;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::jobs::{JobDetail, JobView, KillOptions, WorkerView};
use paddlecloud_core::job::{AfterKill, Job, Worker};
use paddlecloud_core::names::{JobId, JobName, JobRef};
use paddlecloud_core::ports::{JobStore, PageRequest};

use super::find::KILL;
use super::{App, AppError, What, view};
use crate::reconcile::Killed;

/// Default page size.
const PAGE: usize = 100;
/// Largest page size.
const MOST: usize = 1000;

/// Which jobs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Include ended jobs.
    pub all: bool,
    /// Include jobs of all users, for administrators.
    pub all_users: bool,
    pub name: Option<JobName>,
    pub after: Option<JobId>,
    pub limit: Option<usize>,
    /// Say why each waiting job waits.
    pub reasons: bool,
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct JobList {
    pub jobs: Vec<JobView>,
    /// The last job of this page, if there are more.
    pub next: Option<JobId>,
}

/// How waiting for a job ended.
#[derive(Debug, Clone)]
pub enum WaitEnd {
    Final(JobDetail),
    /// The time limit expired; this is the current state.
    Timeout(JobDetail),
}

impl WaitEnd {
    pub fn detail(self) -> JobDetail {
        match self {
            WaitEnd::Final(detail) | WaitEnd::Timeout(detail) => detail,
        }
    }
}

impl App {
    /// One page of the caller's jobs, latest first.
    pub async fn job_list(&self, caller: &Caller, query: &ListQuery) -> Result<JobList, AppError> {
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MOST);
        if query.all_users {
            self.check_all_users(caller, "jobs.list").await?;
        }
        let (jobs, more) = match query.all {
            true => self.history(caller, query, limit).await?,
            false => self.unfinished(caller, query, limit),
        };
        let mut views: Vec<JobView> = jobs.iter().map(|job| self.job_view(job)).collect();
        if query.reasons {
            let shown = views.iter_mut().zip(jobs.iter().map(Arc::as_ref));
            self.add_waiting_reasons(caller, shown.collect()).await;
        }
        let next = jobs.last().filter(|_| more).map(|job| job.id.clone());
        Ok(JobList { jobs: views, next })
    }

    /// A job with its workers and timeline.
    pub async fn job_show(&self, caller: &Caller, target: &JobRef) -> Result<JobDetail, AppError> {
        let job = self.job_find(caller, target, "job.show").await?;
        Ok(self.job_detail_with_reason(caller, &job).await)
    }

    async fn job_detail_with_reason(&self, caller: &Caller, job: &Job) -> JobDetail {
        let mut detail = self.job_detail(job);
        self.add_waiting_reasons(caller, vec![(&mut detail.job, job)])
            .await;
        let obstacles = self.obstacles(job);
        if let Some(message) = &mut detail.job.message {
            message.push_str(&obstacles);
        }
        detail
    }

    /// Kills a job. With `remove` it also leaves the history; with `now` its workers get no grace period. Workers terminate in
    /// the background.
    pub async fn job_kill(
        &self,
        caller: &Caller,
        target: &JobRef,
        options: KillOptions,
    ) -> Result<Killed, AppError> {
        let job = self.job_find(caller, target, KILL).await?;
        let id = JobRef::Id(job.id.clone());
        let after = match options.remove {
            true => AfterKill::Remove,
            false => AfterKill::KeepInHistory,
        };
        let killed = self.jobs.kill(&job.user, id, after).await?;
        if options.now {
            self.jobs.skip_grace(&job.id).await?;
        }
        Ok(killed)
    }

    /// Waits until a job is final, for a limited time, without polling.
    pub async fn job_wait(
        &self,
        caller: &Caller,
        target: &JobRef,
        limit: Option<Duration>,
    ) -> Result<WaitEnd, AppError> {
        let job = self.job_find(caller, target, "job.wait").await?;
        let id = job.id.clone();
        let pause = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.jobs.wait_final(&job.id) => {}
            () = pause => return Ok(WaitEnd::Timeout(self.job_now(caller, &id).await?)),
            () = self.stop.cancelled() => return Err(AppError::Stopping),
        }
        Ok(WaitEnd::Final(self.job_now(caller, &id).await?))
    }

    /// The current state of a job that the caller was just allowed to see.
    async fn job_now(&self, caller: &Caller, id: &JobId) -> Result<JobDetail, AppError> {
        match self.jobs.get_any(id).await? {
            Some(job) => Ok(self.job_detail_with_reason(caller, &job).await),
            None => Err(AppError::NoSuch {
                what: What::Job,
                name: id.to_string(),
            }),
        }
    }

    /// Workers of a job, including earlier runs of its name that are still stopping; without a job, of all running jobs of the
    /// caller or of all users.
    pub async fn worker_list(
        &self,
        caller: &Caller,
        target: Option<&JobRef>,
        all_users: bool,
    ) -> Result<Vec<WorkerView>, AppError> {
        if all_users {
            self.check_all_users(caller, "workers.list").await?;
        }
        let mut active = self.jobs.active();
        active.sort_by(|left, right| right.id.cmp(&left.id));
        let jobs = match target {
            None => {
                active.retain(|job| all_users || job.user == caller.user);
                active
            }
            Some(target) => {
                let job = self.job_find(caller, target, "job.workers").await?;
                let by_name = matches!(target, JobRef::Name(_) | JobRef::Of(..));
                let same = |other: &Job| other.user == job.user && other.spec.name == job.spec.name;
                let earlier = |other: &Arc<Job>| by_name && other.id < job.id && same(other);
                active.retain(earlier);
                std::iter::once(job).chain(active).collect()
            }
        };
        let view = |job: &Job, worker: &Worker| WorkerView {
            user: all_users.then(|| job.user.to_string()),
            ..self.worker_view(job, worker)
        };
        let mut views = Vec::new();
        for job in &jobs {
            views.extend(view::shown_workers(job).iter().map(|worker| view(job, worker)));
        }
        Ok(views)
    }

    fn unfinished(&self, caller: &Caller, query: &ListQuery, limit: usize) -> (Vec<Arc<Job>>, bool) {
        let is_selected = |job: &Job| {
            (query.all_users || job.user == caller.user)
                && query.name.as_ref().is_none_or(|name| job.spec.name == *name)
        };
        let mut jobs = self
            .jobs
            .latest_active(query.after.as_ref(), limit + 1, is_selected);
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        (jobs, more)
    }

    async fn history(
        &self,
        caller: &Caller,
        query: &ListQuery,
        limit: usize,
    ) -> Result<(Vec<Arc<Job>>, bool), AppError> {
        let request = PageRequest {
            user: (!query.all_users).then(|| caller.user.clone()),
            name: query.name.clone(),
            before: query.after.clone(),
            limit,
        };
        let page = self.store.page(&request).await?;
        Ok((page.jobs, page.more))
    }
}
