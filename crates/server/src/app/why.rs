//! Why a job waits, or how it ended.

use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::jobs::{FailureView, JobView, WhyView};
use paddlecloud_core::job::{Job, Phase, Worker};
use paddlecloud_core::names::{JobId, JobRef, UserName};

use super::{App, view};
use crate::auth::Caller;

/// Lines of a failed worker's log that are shown as evidence.
const LAST_LINES: usize = 20;
/// How many workers are named before they are only counted.
const NAMED: usize = 5;
/// What a proposal to end a job begins with, as the scheduler says it.
const KILL: &str = "`paddlectl kill ";
/// What is said of a job that the reader may not see.
const ANOTHERS: &str = "a job of another user";

impl App {
    pub async fn job_why(&self, caller: &Caller, target: &JobRef) -> Result<WhyView, ErrorBody> {
        let job = self.job_find(caller, target).await?;
        let mut answer = WhyView {
            job: self.job_view(&job),
            reason: self.reason(&job),
            ahead: Vec::new(),
            ahead_total: 0,
            estimate: None,
            estimate_basis: None,
            change: None,
            first_failure: self.first_failure(&job).await,
        };
        if job.phase != Phase::Pending {
            return Ok(answer);
        }
        if let Some(why) = self.jobs.explain(&job.id).await {
            let shown = |id| self.shown_to(&caller.user, caller.admin, id);
            answer.ahead = why.ahead.iter().map(shown).collect();
            answer.ahead_total = why.ahead_total;
            answer.estimate = why.estimate.as_ref().map(|estimate| estimate.at);
            answer.estimate_basis = why.estimate.map(|estimate| estimate.basis);
            answer.change = why
                .change
                .and_then(|change| self.change_for(&caller.user, caller.admin, change));
            answer.reason = self.with_names(&caller.user, caller.admin, &why.reason);
        }
        Ok(answer)
    }

    /// Puts the scheduler's own words into the view of a job that waits.
    pub(super) async fn tell_why_it_waits(&self, view: &mut JobView, job: &Job) {
        if job.phase != Phase::Pending {
            return;
        }
        if let Some(why) = self.jobs.explain(&job.id).await {
            view.message = Some(self.with_names(&job.user, false, &why.reason));
        }
    }

    fn reason(&self, job: &Job) -> String {
        let told = view::message(job).unwrap_or_else(|| "it runs".to_owned());
        match waits_for(job) {
            Some(waits) => format!("{told}; {waits}"),
            None => told,
        }
    }

    /// Name and id of the reader's own jobs; of others' only that they are there.
    fn shown_to(&self, user: &UserName, admin: bool, id: &JobId) -> String {
        match self.jobs.get(id) {
            Some(job) if job.user == *user || admin => format!("{} ({id})", job.spec.name),
            Some(_) => ANOTHERS.to_owned(),
            None => id.to_string(),
        }
    }

    /// The scheduler knows jobs by their ids, people by their names.
    fn with_names(&self, user: &UserName, admin: bool, reason: &str) -> String {
        let named = |part: &str| match part.parse() {
            Ok(id) => self.shown_to(user, admin, &id),
            Err(_) => part.to_owned(),
        };
        let parts: Vec<String> = reason.split('`').map(named).collect();
        parts.join("`").replace(&format!("`{ANOTHERS}`"), ANOTHERS)
    }

    /// A proposal to end a job is for those who may do that, and by the job's name where that means it.
    fn change_for(&self, user: &UserName, admin: bool, change: String) -> Option<String> {
        let Some((_, id)) = change.split_once(KILL) else {
            return Some(change);
        };
        let job = self.jobs.get(&id.trim_end_matches('`').parse().ok()?)?;
        let is_own = job.user == *user;
        if is_own && job.holds_name() {
            return Some(change.replace(job.id.as_str(), job.spec.name.as_str()));
        }
        (is_own || admin).then_some(change)
    }

    async fn first_failure(&self, job: &Job) -> Option<FailureView> {
        let culprit = job.worker(job.culprit?)?;
        let others = job
            .workers
            .iter()
            .filter(|worker| job.was_stopped(worker) && !worker.succeeded());
        Some(FailureView {
            worker: view::worker_view(job, culprit),
            exit: job
                .exit_in_words(culprit.key)
                .unwrap_or_else(|| "it vanished".to_owned()),
            others: others.count() as u32,
            last_lines: self.logs.last_lines(job, culprit.key, LAST_LINES).await,
        })
    }
}

/// What keeps a job that is being stopped from its end.
fn waits_for(job: &Job) -> Option<String> {
    let live = |worker: &&Worker| worker.status.is_live();
    let left: Vec<String> = job
        .workers
        .iter()
        .filter(live)
        .map(|worker| worker.key.to_string())
        .collect();
    let stopping = matches!(job.phase, Phase::Stopping(_)) && !left.is_empty();
    let named = match left.get(NAMED..).unwrap_or_default().len() {
        0 => left.join(", "),
        more => format!("{} and {more} more", left[..NAMED].join(", ")),
    };
    stopping.then(|| {
        let grace = job.spec.grace;
        format!("waits for the end of {named}; who is still there after the grace of {grace:#} is killed")
    })
}
