//! The simulated store: what survives, and what must never be written to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::conductor::Write;
use crate::exit::Exit;
use crate::job::{IdempotencyKey, Job, News, Phase, Role, Worker, WorkerStatus};
use crate::names::{JobId, JobName, UserName};
use crate::ports::AttemptKey;

use super::engine::{SimEngine, Stage};
use super::{Finding, broken};

#[derive(Default)]
pub(super) struct SimStore {
    rows: BTreeMap<JobId, Arc<Job>>,
}

impl SimStore {
    pub(super) fn get(&self, id: &JobId) -> Option<&Arc<Job>> {
        self.rows.get(id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.rows.values()
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.rows.values().filter(|job| !job.phase.is_final())
    }

    pub(super) fn find_by_key(&self, user: &UserName, key: &IdempotencyKey) -> Option<&JobId> {
        let made = |job: &&Arc<Job>| job.user == *user && job.key.as_ref() == Some(key);
        self.rows.values().find(made).map(|job| &job.id)
    }

    /// The job that holds a name.
    pub(super) fn holder(&self, user: &UserName, name: &JobName) -> Option<&Arc<Job>> {
        self.active()
            .find(|job| job.user == *user && job.spec.name == *name && job.holds_name())
    }

    /// Writes everything, or reports what must not be written.
    pub(super) fn save(&mut self, writes: &[Write], engine: &SimEngine) -> Finding {
        for write in writes {
            match write {
                Write::Save(job) => self.save_one(job, engine)?,
                Write::Remove(id) => self.remove_one(id, engine)?,
            }
        }
        Ok(())
    }

    fn save_one(&mut self, job: &Arc<Job>, engine: &SimEngine) -> Finding {
        let before = self.rows.get(&job.id).cloned();
        match &before {
            Some(before) => check_step(before, job)?,
            None => self.check_new(job)?,
        }
        check_shape(job)?;
        job.workers
            .iter()
            .try_for_each(|worker| check_worker(job, worker, engine))?;
        if let Phase::Final(_) = job.phase
            && engine.runs(&job.id)
        {
            return broken(format!("{} is final while its workers run", job.id));
        }
        if job.phase == Phase::Pending && engine.runs(&job.id) {
            return broken(format!("{} waits while its workers run", job.id));
        }
        self.rows.insert(job.id.clone(), Arc::clone(job));
        Ok(())
    }

    fn check_new(&self, job: &Job) -> Finding {
        if let Some(holder) = self.holder(&job.user, &job.spec.name) {
            return broken(format!("{} and {} have the same name", job.id, holder.id));
        }
        if let Some(other) = job.key.as_ref().and_then(|key| self.find_by_key(&job.user, key)) {
            return broken(format!("{} and {other} were made by the same key", job.id));
        }
        Ok(())
    }

    fn remove_one(&mut self, id: &JobId, engine: &SimEngine) -> Finding {
        if engine.runs(id) {
            return broken(format!("{id} is removed while its workers run"));
        }
        self.rows.remove(id);
        Ok(())
    }
}

/// Checks that a stored state may follow the previous one.
fn check_step(before: &Job, after: &Job) -> Finding {
    let id = &after.id;
    if before.phase.is_final() {
        return broken(format!("{id} was final and is written again"));
    }
    if after.revision <= before.revision {
        return broken(format!(
            "{id} goes back from revision {} to {}",
            before.revision, after.revision
        ));
    }
    if after.changed_at < before.changed_at {
        return broken(format!("the time of {id} runs backwards"));
    }
    let rebooted = (before.phase, after.phase) == (Phase::Running, Phase::Starting);
    let queued_again = matches!(after.phase, Phase::Withdrawing | Phase::Pending);
    let withdrawn = queued_again && !matches!(before.phase, Phase::Stopping(_));
    if rank(after.phase) < rank(before.phase) && !rebooted && !withdrawn {
        return broken(format!(
            "{id} goes back from {:?} to {:?}",
            before.phase, after.phase
        ));
    }
    if let Some(outcome) = before.phase.outcome()
        && after.phase.outcome() != Some(outcome)
    {
        return broken(format!("{id} was to end {outcome} and now {:?}", after.phase));
    }
    let goes_back =
        |(before, after): (&Worker, &Worker)| (after.attempt, after.status) < (before.attempt, before.status);
    match before
        .workers
        .iter()
        .zip(&after.workers)
        .find(|pair| goes_back(*pair))
    {
        Some((worker, _)) => broken(format!("{} of {id} goes back", worker.key)),
        None => Ok(()),
    }
}

fn rank(phase: Phase) -> u8 {
    match phase {
        Phase::Pending => 0,
        Phase::Starting | Phase::Withdrawing => 1,
        Phase::Running => 2,
        Phase::Stopping(_) => 3,
        Phase::Final(_) => 4,
    }
}

/// Checks what holds for every stored job.
fn check_shape(job: &Job) -> Finding {
    let wrong = |what: &str| broken(format!("{}: {what} ({:?})", job.id, job.phase));
    let killed_while_pending = job.admitted_at.is_none() && job.phase.is_final();
    let workers = match job.phase {
        Phase::Pending => 0,
        _ if killed_while_pending => 0,
        _ => job.spec.workers() as usize,
    };
    if job.workers.len() != workers || job.placement.is_some() != (workers > 0) {
        return wrong("has not all its workers and all their places");
    }
    if job.finished_at.is_some() != job.phase.is_final() {
        return wrong("has an end without being final, or the other way round");
    }
    if job.phase.is_final() && job.workers.iter().any(|worker| worker.status.is_live()) {
        return wrong("is final and has live workers");
    }
    let good = |worker: &Worker| {
        let done = worker.key.role == Role::Trainer && worker.succeeded();
        worker.status.is_live() || worker.restart_at.is_some() || done
    };
    if job
        .workers
        .iter()
        .any(|worker| worker.restart_at.is_some() && (worker.status.is_live() || !job.phase.wants_workers()))
    {
        return wrong("waits to restart a worker that runs, or that nobody wants");
    }
    if job.phase.wants_workers() && !job.workers.iter().all(good) {
        return wrong("continues although a worker failed");
    }
    if job
        .workers
        .iter()
        .any(|worker| worker.restarts > job.spec.retries)
    {
        return wrong("restarted a worker too often");
    }
    if job
        .timeline
        .moments()
        .windows(2)
        .any(|pair| pair[1].at < pair[0].at)
    {
        return wrong("has a timeline that runs backwards");
    }
    Ok(())
}

/// Checks that a stored exit is what really happened.
fn check_worker(job: &Job, worker: &Worker, engine: &SimEngine) -> Finding {
    let key = AttemptKey {
        job: job.id.clone(),
        worker: worker.key,
        attempt: worker.attempt,
    };
    let Some(attempt) = engine.attempts.get(&key) else {
        return Ok(());
    };
    if worker.status.is_live() {
        return Ok(());
    }
    match (&attempt.stage, worker.status) {
        (Stage::Gone(News::Exited(exit)), WorkerStatus::Ended) => check_exit(&key, exit, worker, attempt.log),
        (Stage::Gone(News::Lost(_) | News::NoRoom(_) | News::Disrupted(_)), WorkerStatus::Lost) => Ok(()),
        (stage, status) => broken(format!("{key:?} is {stage:?} and stored as {status}")),
    }
}

fn check_exit(key: &AttemptKey, exit: &Exit, worker: &Worker, log: u64) -> Finding {
    if worker.exit.as_ref() != Some(exit) {
        return broken(format!(
            "{key:?} ended as {exit:?} and is stored as {:?}",
            worker.exit
        ));
    }
    if exit.log_end != log {
        return broken(format!(
            "{key:?} has {log} bytes of log, its end was stored at {}",
            exit.log_end
        ));
    }
    Ok(())
}
