//! Explains why a job waits or how it ended, in words that the reader may see.
//!
//! The scheduler returns ids and amounts. Every id first becomes a [`Mention`], which knows what the reader may see; [`words`]
//! accepts nothing else, so another user's job cannot appear in a sentence.

mod words;

use std::sync::Arc;

use paddlecloud_accounts::auth::{Action, Caller};
use paddlecloud_api::jobs::{FailureView, JobView, WhyView};
use paddlecloud_core::job::{Job, Phase, Worker, some_of};
use paddlecloud_core::names::{JobRef, UserName};
use paddlecloud_core::scheduler::Change;

use super::{App, AppError, machine_cause};

/// Lines of a failed worker's log that are shown as evidence.
const LAST_LINES: usize = 20;

/// Most jobs whose reasons are found without taking a submit in between.
const EXPLAINED_AT_ONCE: usize = 100;

/// Another job, as one reader may see it.
#[derive(Debug, Clone)]
enum Mention {
    /// The reader's own.
    Own(Arc<Job>),
    /// Another user's, for a reader who may see everything.
    Seen(Arc<Job>),
    /// Another user's: only its existence may be seen.
    Hidden,
    /// It ended while the answer was computed; its owner is not looked up.
    Ended,
}

/// Whose job the answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Reader,
    /// Another user, for a reader who may see everything.
    Another,
}

impl Owner {
    fn of(job: &Job, reader: &UserName) -> Owner {
        match job.user == *reader {
            true => Owner::Reader,
            false => Owner::Another,
        }
    }
}

/// The user who reads the answer.
#[derive(Clone, Copy)]
struct Reader<'a> {
    user: &'a UserName,
    sees_all: bool,
}

impl Reader<'_> {
    /// What this reader may see of a job; `None` is one that no longer exists.
    fn mention(self, job: Option<Arc<Job>>) -> Mention {
        match job {
            Some(job) if job.user == *self.user => Mention::Own(job),
            Some(job) if self.sees_all => Mention::Seen(job),
            Some(_) => Mention::Hidden,
            None => Mention::Ended,
        }
    }
}

impl App {
    pub async fn job_why(&self, caller: &Caller, target: &JobRef) -> Result<WhyView, AppError> {
        let job = self.job_find(caller, target, "job.why").await?;
        let mut answer = WhyView {
            job: self.job_view(&job),
            reason: reason(&job),
            ahead: Vec::new(),
            ahead_total: 0,
            estimate: None,
            estimate_basis: None,
            change: None,
            first_failure: self.first_failure(&job).await,
        };
        if job.phase != Phase::Pending {
            machine_cause::add(&mut answer, &self.degraded);
            if job.lacks_worker_since().is_some()
                && let Some(recovery) = self.jobs.recovery(&job.id).await
            {
                answer.reason.push_str("; ");
                answer.reason.push_str(&words::recovery(&recovery));
            }
            self.add_missing_module(&mut answer, &job).await;
            answer.reason.push_str(&self.obstacles(&job));
            return Ok(answer);
        }
        let reader = Reader {
            user: &caller.user,
            sees_all: caller.may(Action::Administer),
        };
        if let Some(why) = self.jobs.explain(&job.id).await {
            let why = why.map_jobs(|id| reader.mention(self.jobs.get(&id)));
            answer.reason = with_history(
                &job,
                words::waiting(
                    &why.reason,
                    why.matching.as_ref(),
                    why.closed_nodes,
                    Owner::of(&job, &caller.user),
                ),
            );
            answer.ahead = why.ahead.iter().filter_map(words::known).collect();
            answer.ahead_total = why.ahead_total;
            answer.estimate = why.estimate;
            answer.estimate_basis = why.estimate.map(|_| words::ESTIMATE_BASIS.to_owned());
            answer.change = why
                .change
                .filter(can_be_done_by_reader)
                .map(|change| words::change(&change));
        }
        Ok(answer)
    }

    /// Adds the scheduler's reasons to the views of waiting jobs. They name only jobs that the job's owner may see.
    pub(super) async fn add_waiting_reasons(&self, caller: &Caller, mut shown: Vec<(&mut JobView, &Job)>) {
        shown.retain(|(_, job)| job.phase == Phase::Pending);
        for shown in shown.chunks_mut(EXPLAINED_AT_ONCE) {
            let jobs = shown.iter().map(|(_, job)| job.id.clone()).collect();
            let Some(reasons) = self.jobs.reasons(jobs).await else {
                return;
            };
            for ((view, job), reason) in shown.iter_mut().zip(reasons.of) {
                let Some((reason, matching)) = reason else {
                    continue;
                };
                let reader = Reader {
                    user: &job.user,
                    sees_all: false,
                };
                let reason = reason.map_jobs(&|id| reader.mention(self.jobs.get(&id)));
                let owner = Owner::of(job, &caller.user);
                let reason = words::waiting(&reason, matching.as_ref(), reasons.closed_nodes, owner);
                view.message = Some(with_history(job, reason));
            }
        }
    }

    /// What hinders the workers of a job, to be appended to its message.
    pub(super) fn obstacles(&self, job: &Job) -> String {
        if job.phase == Phase::Pending || job.phase.is_final() {
            return String::new();
        }
        let obstacles = self.jobs.obstacles(&job.id);
        obstacles.iter().map(|obstacle| format!("; {obstacle}")).collect()
    }

    async fn first_failure(&self, job: &Job) -> Option<FailureView> {
        let culprit = job.worker(job.culprit?)?;
        let others = job
            .workers
            .iter()
            .filter(|worker| job.was_stopped(worker) && !worker.succeeded());
        Some(FailureView {
            worker: self.worker_view(job, culprit),
            exit: job
                .exit_in_words(culprit.key)
                .unwrap_or_else(|| "its exit was not observed".to_owned()),
            others: others.count() as u32,
            last_lines: self.logs.last_lines(job, culprit.key, LAST_LINES).await,
        })
    }
}

/// Whether the reader can make this change: killing a job is suggested only to a caller who may kill it, and only once.
fn can_be_done_by_reader(change: &Change<Mention>) -> bool {
    match change {
        Change::End(Mention::Hidden | Mention::Ended) => false,
        Change::End(job) => !words::is_stopping(job),
        _ => true,
    }
}

/// Prepends the reason why a job was queued again, and when: the nodes may have changed since.
fn with_history(job: &Job, reason: String) -> String {
    match job.withdrawn {
        0 => reason,
        _ => format!("{} (at {:.0}); {reason}", job.message, job.changed_at),
    }
}

fn reason(job: &Job) -> String {
    let message = job.message_in_full().unwrap_or_else(|| "it runs".to_owned());
    match waits_for(job) {
        Some(waits) => format!("{message}; {waits}"),
        None => message,
    }
}

/// What a stopping job, or one that returns to the queue, waits for.
fn waits_for(job: &Job) -> Option<String> {
    let live = |worker: &&Worker| worker.status.is_live();
    let left: Vec<String> = job
        .workers
        .iter()
        .filter(live)
        .map(|worker| worker.key.to_string())
        .collect();
    let then = match job.phase {
        _ if left.is_empty() => return None,
        Phase::Stopping(_) if job.skip_grace => " after being killed without a grace period".to_owned(),
        Phase::Stopping(_) => format!(
            "; workers still running after the grace period of {:#} are killed",
            job.spec.grace
        ),
        Phase::Withdrawing => "; then it is in the queue again".to_owned(),
        _ => return None,
    };
    Some(format!("waits for {} to exit{then}", some_of(&left)))
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::job::{AfterKill, Event, News, WorkerKey};
    use paddlecloud_core::testing::samples;

    use super::*;

    #[test]
    fn why_a_job_was_queued_again_is_told_with_its_time() {
        let key = WorkerKey::trainer(0);
        let mut job = samples::starting(1, samples::spec("gang", 0, 1));
        let full = News::NoRoom("0/2 nodes are available".into());
        job.on_event(samples::first(key, full), samples::seconds(5));
        assert_eq!(
            with_history(&job, "waits for 1 core".into()),
            "queued again: 0/2 nodes are available (at 2019-12-20T12:00:05Z); waits for 1 core"
        );
    }

    #[test]
    fn a_job_is_named_only_to_its_owner_and_to_readers_of_all_jobs() {
        let job = Arc::new(samples::starting(1, samples::spec("secret", 0, 1)));
        let other_user: UserName = "somebody-else".parse().unwrap();
        let shown = |user: &UserName, sees_all| {
            let reader = Reader { user, sees_all };
            words::known(&reader.mention(Some(Arc::clone(&job))))
        };
        let named = Some(format!("secret ({})", job.id));
        assert_eq!(shown(&job.user, false), named);
        assert_eq!(shown(&other_user, true), named);
        assert_eq!(shown(&other_user, false), None);
    }

    #[test]
    fn a_stopping_job_says_what_it_waits_for() {
        let mut job = samples::running(1, samples::spec("slow", 0, 2));
        assert_eq!(waits_for(&job), None);
        job.on_event(Event::KillRequested(AfterKill::KeepInHistory), samples::noon());
        insta::assert_snapshot!(reason(&job), @"killed on request; waits for trainer 0, trainer 1 to exit; workers still running after the grace period of 30s are killed");
        job.on_event(Event::SkipGrace, samples::noon());
        insta::assert_snapshot!(reason(&job), @"killed on request; waits for trainer 0, trainer 1 to exit after being killed without a grace period");
        let mut job = samples::running(1, samples::spec("borrows", 0, 1));
        job.phase = Phase::Withdrawing;
        insta::assert_snapshot!(waits_for(&job).unwrap(), @"waits for trainer 0 to exit; then it is in the queue again");
    }

    #[test]
    fn a_user_is_not_advised_to_end_another_users_job() {
        let job = Arc::new(samples::starting(1, samples::spec("big", 0, 1)));
        let other_user: UserName = "somebody-else".parse().unwrap();
        let advised = |user: &UserName| {
            let reader = Reader {
                user,
                sees_all: false,
            };
            can_be_done_by_reader(&Change::End(reader.mention(Some(Arc::clone(&job)))))
        };
        assert!(advised(&job.user));
        assert!(!advised(&other_user));
    }
}
