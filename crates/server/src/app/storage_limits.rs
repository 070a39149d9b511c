//! Limits of storage and files bind what jobs write: homes are measured while jobs of limited users run.
//!
//! While a home exceeds its limit, no job of its owner starts, and the owner's running jobs are stopped one after the other, the
//! newest first. An unreadable folder counts as an excess, because its contents are unknown, and a measurement that fails releases
//! nothing. Between two measurements a job can exceed the limit; only a quota of the file system prevents that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::job::{Job, Phase};
use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_core::scheduler::{StorageExcess, StorageHold};
use paddlecloud_pfs::quota::QuotaError;
use tokio::task::JoinSet;

use super::{App, AppError};
use paddlecloud_files::Files;

/// How often the home of a user with running jobs is measured.
const EVERY: Duration = Duration::from_secs(10);
/// Measuring takes at most one part in so many of a core: 5 %.
const PART_OF_A_CORE: u32 = 20;

/// The limited users whose homes are watched.
#[derive(Default)]
pub struct StorageWatch {
    homes: HashMap<UserName, Home>,
    measuring: JoinSet<Measured>,
    has_begun: bool,
}

/// What is known about the home of a limited user.
#[derive(Debug, Default)]
struct Home {
    /// When it is due; `None` while it is being measured.
    due: Option<Instant>,
    /// A job of the user has run since the last measurement began.
    was_used: bool,
    /// What the scheduler was told.
    hold: Option<StorageHold>,
    /// The last measurement met an unreadable folder.
    was_unreadable: bool,
    /// The job that was stopped last.
    stopped: Option<JobId>,
}

/// The result of a measurement.
struct Measured {
    caller: Caller,
    began: Instant,
    ended: Instant,
    outcome: Result<(Option<StorageExcess>, Duration), AppError>,
}

/// What to do about a home that exceeds its limit.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait,
    Stop(JobId),
    /// Jobs that are being stopped write on: they do not get the rest of their grace periods.
    SkipGrace(Vec<JobId>),
}

impl Home {
    /// Homes of users with a limit are held back when the server starts, until they are known not to exceed it.
    fn new(hold: Option<StorageHold>, now: Instant) -> Home {
        Home {
            due: Some(if hold.is_some() { now } else { now + EVERY }),
            hold,
            ..Home::default()
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.hold, Some(StorageHold::Over(_)))
    }

    /// Notes an excess and returns whether a job is stopped for it. A folder may be unreadable for a moment, so the second
    /// measurement in a row that meets one decides.
    fn stops_a_job(&mut self, excess: &StorageExcess) -> bool {
        let is_unreadable = matches!(excess, StorageExcess::Unreadable { .. });
        let was_unreadable = std::mem::replace(&mut self.was_unreadable, is_unreadable);
        !is_unreadable || was_unreadable || self.is_over()
    }

    /// Whether it is to be measured now. Notes whether its owner's jobs run.
    fn is_due(&mut self, jobs: &[Arc<Job>], now: Instant) -> bool {
        if !self.was_used && jobs.iter().any(|job| job.phase.occupies()) {
            self.was_used = true;
            // The submit has checked the home, so a new job has some time.
            self.due = self.due.map(|due| if due <= now { now + EVERY } else { due });
        }
        let matters = self.was_used || self.hold.is_some();
        matters && self.due.is_some_and(|due| due <= now)
    }
}

/// When a home is measured again: so late that measuring all watched homes takes little of a core, and that it pauses at least as
/// long as it took.
fn next_due(began: Instant, ended: Instant, cpu: Duration, watched: usize) -> Instant {
    let watched = u32::try_from(watched.max(1)).unwrap_or(u32::MAX);
    let share = cpu.saturating_mul(PART_OF_A_CORE).saturating_mul(watched);
    let pause = ended.duration_since(began);
    (began + EVERY.max(share)).max(ended + pause)
}

/// Chooses the job to stop. The next one follows when the last one is gone, or if the home grows although it was told to stop.
fn step(jobs: &[Arc<Job>], stopped: Option<&JobId>, has_grown: bool) -> Step {
    let is_leaving = |job: &&Arc<Job>| matches!(job.phase, Phase::Stopping(_));
    let waits_for = |job: &&Arc<Job>| is_leaving(job) && Some(&job.id) == stopped;
    if jobs.iter().any(|job| waits_for(&job)) && !has_grown {
        return Step::Wait;
    }
    let running = jobs.iter().filter(|job| job.phase.wants_workers());
    if let Some(newest) = running.max_by_key(|job| (job.admitted_at, job.id.clone())) {
        return Step::Stop(newest.id.clone());
    }
    match has_grown {
        true => Step::SkipGrace(jobs.iter().filter(is_leaving).map(|job| job.id.clone()).collect()),
        false => Step::Wait,
    }
}

/// An unknown amount may grow.
fn has_grown(before: Option<&StorageHold>, now: &StorageExcess) -> bool {
    match (before, now) {
        (_, StorageExcess::Unreadable { .. }) => true,
        (
            Some(StorageHold::Over(StorageExcess::Bytes { used: before, .. })),
            StorageExcess::Bytes { used, .. },
        )
        | (
            Some(StorageHold::Over(StorageExcess::Files { used: before, .. })),
            StorageExcess::Files { used, .. },
        ) => used > before,
        _ => false,
    }
}

pub(super) fn excess_of(files: &Files, error: QuotaError) -> StorageExcess {
    match error {
        QuotaError::Unreadable { space, folder } => StorageExcess::Unreadable {
            folder: files.shown(&space, &folder).into(),
        },
        QuotaError::Bytes { used, limit, .. } => StorageExcess::Bytes { used, limit },
        QuotaError::Files { used, limit, .. } => StorageExcess::Files { used, limit },
    }
}

impl App {
    /// Measures the homes that are due, and acts on the results of the measurements that have ended. Called about once a second.
    pub async fn bind_storage(self: &Arc<App>, watch: &mut StorageWatch) {
        while let Some(ended) = watch.measuring.try_join_next() {
            match ended {
                Ok(measured) => self.act_on(watch, measured).await,
                Err(error) => tracing::error!(%error, "the measurement of a home failed"),
            }
        }
        let accounts = self.storage.accounts().all();
        let callers = accounts.iter().map(|account| Caller {
            user: account.name.clone(),
            scopes: account.scopes,
        });
        let limited: Vec<Caller> = callers.filter(|caller| self.files.is_limited(caller)).collect();
        self.forget_unlimited(watch, &limited).await;
        let first_hold = (!std::mem::replace(&mut watch.has_begun, true)).then_some(StorageHold::Unmeasured);
        if limited.is_empty() {
            return;
        }
        let mut jobs = self.active_of(&limited);
        for caller in limited {
            let jobs = jobs.remove(&caller.user).unwrap_or_default();
            let now = Instant::now();
            let home = watch
                .homes
                .entry(caller.user.clone())
                .or_insert_with(|| Home::new(first_hold.clone(), now));
            if home.hold.is_some() && self.may_go_on(&caller, home, &jobs) {
                self.hold(&caller.user, home, None).await;
            }
            if home.is_due(&jobs, now) {
                (home.due, home.was_used) = (None, false);
                watch.measuring.spawn(Arc::clone(self).measure_for_jobs(caller));
            }
        }
    }

    /// The unfinished jobs of these users.
    fn active_of(&self, limited: &[Caller]) -> HashMap<UserName, Vec<Arc<Job>>> {
        let users: HashSet<&UserName> = limited.iter().map(|caller| &caller.user).collect();
        let mut by_user: HashMap<UserName, Vec<Arc<Job>>> = HashMap::new();
        for job in self
            .jobs
            .latest_active(None, usize::MAX, |job| users.contains(&job.user))
        {
            by_user.entry(job.user.clone()).or_default().push(job);
        }
        by_user
    }

    /// Whether a hold can end without a measurement: nothing waits for it (the next submit checks the home), or what was removed
    /// through the server is enough.
    fn may_go_on(&self, caller: &Caller, home: &Home, jobs: &[Arc<Job>]) -> bool {
        jobs.is_empty() || home.is_over() && self.files.known_excess(caller).is_none()
    }

    /// Ends the holds of users without a limit.
    async fn forget_unlimited(&self, watch: &mut StorageWatch, limited: &[Caller]) {
        let users: HashSet<&UserName> = limited.iter().map(|caller| &caller.user).collect();
        let gone: Vec<UserName> = watch
            .homes
            .keys()
            .filter(|user| !users.contains(user))
            .cloned()
            .collect();
        for user in gone {
            let mut home = watch.homes.remove(&user).unwrap_or_default();
            self.hold(&user, &mut home, None).await;
        }
    }

    async fn measure_for_jobs(self: Arc<App>, caller: Caller) -> Measured {
        let began = Instant::now();
        let outcome = self.file_excess(&caller).await;
        Measured {
            caller,
            began,
            ended: Instant::now(),
            outcome,
        }
    }

    async fn act_on(&self, watch: &mut StorageWatch, measured: Measured) {
        let (user, watched) = (&measured.caller.user, watch.homes.len());
        let Some(home) = watch.homes.get_mut(user) else {
            return;
        };
        let cpu = measured.outcome.as_ref().map_or(Duration::ZERO, |(_, cpu)| *cpu);
        home.due = Some(next_due(measured.began, measured.ended, cpu, watched));
        match measured.outcome {
            Ok((None, _)) => {
                (home.stopped, home.was_unreadable) = (None, false);
                self.hold(user, home, None).await;
            }
            Ok((Some(excess), _)) => {
                let has_grown = has_grown(home.hold.as_ref(), &excess);
                let stops = home.stops_a_job(&excess);
                self.hold(user, home, Some(StorageHold::Over(excess.clone())))
                    .await;
                if stops {
                    self.stop_one(&measured.caller, home, excess, has_grown).await;
                }
            }
            Err(error) => {
                tracing::warn!(%user, error = chain_of(&error), "the home cannot be compared with its limits");
                let hold = home.hold.clone().unwrap_or(StorageHold::Unmeasured);
                self.hold(user, home, Some(hold)).await;
            }
        }
    }

    async fn stop_one(&self, caller: &Caller, home: &mut Home, excess: StorageExcess, has_grown: bool) {
        let jobs = self.active_of(std::slice::from_ref(caller));
        let jobs = jobs.into_values().next().unwrap_or_default();
        match step(&jobs, home.stopped.as_ref(), has_grown) {
            Step::Wait => {}
            Step::Stop(job) => {
                tracing::info!(user = %caller.user, %job, %excess, "a job is stopped: the storage quota is exceeded");
                if let Err(error) = self.jobs.storage_exceeded(&job, excess).await {
                    tracing::warn!(%job, error = chain_of(&error), "the job cannot be stopped");
                }
                home.stopped = Some(job);
            }
            Step::SkipGrace(jobs) => {
                for job in jobs {
                    if let Err(error) = self.jobs.skip_grace(&job).await {
                        tracing::warn!(%job, error = chain_of(&error), "the job cannot be killed");
                    }
                }
            }
        }
    }

    /// Changes what the scheduler knows. If it cannot be told, the next measurement tries again.
    async fn hold(&self, user: &UserName, home: &mut Home, hold: Option<StorageHold>) {
        if home.hold == hold {
            return;
        }
        match self.jobs.hold_for_storage(user, hold.clone()).await {
            Ok(()) => home.hold = hold,
            Err(error) => {
                tracing::warn!(%user, error = chain_of(&error), "the scheduler cannot be told about the home");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::job::Outcome;
    use paddlecloud_core::testing::samples;

    use super::*;

    const OVER: StorageExcess = StorageExcess::Bytes { used: 11, limit: 10 };

    fn closed() -> StorageExcess {
        StorageExcess::Unreadable {
            folder: "/pfs/dc/home/me/closed".into(),
        }
    }

    fn job(number: u32, phase: Phase) -> Arc<Job> {
        let mut job = samples::running(number, samples::spec("job", 0, 1));
        job.admitted_at = Some(samples::seconds(i64::from(number)));
        job.phase = phase;
        Arc::new(job)
    }

    #[test]
    fn the_newest_running_job_is_stopped_then_the_next() {
        let (old, new) = (job(1, Phase::Running), job(2, Phase::Starting));
        let waiting = Arc::new(samples::pending(3, samples::spec("job", 0, 1)));
        let stopping = job(2, Phase::Stopping(Outcome::Failed));
        let all = [Arc::clone(&old), Arc::clone(&new), Arc::clone(&waiting)];
        assert_eq!(step(&all, None, false), Step::Stop(new.id.clone()));
        let all = [Arc::clone(&old), Arc::clone(&stopping), waiting];
        assert_eq!(step(&all, Some(&new.id), false), Step::Wait);
        assert_eq!(step(&all, Some(&new.id), true), Step::Stop(old.id.clone()));
        assert_eq!(
            step(&[Arc::clone(&old)], Some(&new.id), false),
            Step::Stop(old.id.clone())
        );
        // A grace period of hours does not let a job write on.
        assert_eq!(
            step(&[Arc::clone(&stopping)], Some(&new.id), true),
            Step::SkipGrace(vec![new.id.clone()])
        );
        assert_eq!(step(&[stopping], Some(&new.id), false), Step::Wait);
    }

    #[test]
    fn only_more_of_the_same_counts_as_growth() {
        let more = StorageExcess::Bytes { used: 12, limit: 10 };
        let files = StorageExcess::Files { used: 99, limit: 10 };
        let before = Some(&StorageHold::Over(OVER));
        assert!(has_grown(before, &more));
        assert!(!has_grown(before, &OVER) && !has_grown(before, &files));
        assert!(!has_grown(Some(&StorageHold::Unmeasured), &more) && !has_grown(None, &more));
        assert!(has_grown(before, &closed()), "nobody knows");
    }

    #[test]
    fn an_unreadable_folder_stops_a_job_when_it_is_met_again() {
        let mut home = Home::new(None, Instant::now());
        assert!(home.stops_a_job(&OVER));
        assert!(!home.stops_a_job(&closed()), "for a moment");
        assert!(home.stops_a_job(&closed()));
        let mut home = Home::new(None, Instant::now());
        home.hold = Some(StorageHold::Over(OVER));
        assert!(home.stops_a_job(&closed()), "it hides what is too much");
    }

    #[test]
    fn a_home_is_measured_every_ten_seconds_or_as_often_as_a_twentieth_of_a_core_allows() {
        let began = Instant::now();
        let seconds = Duration::from_secs;
        let next = |took, cpu, watched| next_due(began, began + took, cpu, watched) - began;
        assert_eq!(
            next(Duration::from_millis(30), Duration::from_millis(20), 1),
            seconds(10)
        );
        assert_eq!(next(seconds(2), seconds(1), 1), seconds(20));
        assert_eq!(next(seconds(2), seconds(1), 3), seconds(60));
        assert_eq!(
            next(seconds(40), seconds(1), 1),
            seconds(80),
            "a slow network file system"
        );
    }

    #[test]
    fn a_home_is_due_while_jobs_run_and_once_after_the_last_one() {
        let start = Instant::now();
        let mut home = Home::new(None, start);
        let running = [job(1, Phase::Running)];
        assert!(!home.is_due(&[], start + EVERY), "nothing was written");
        let seen = start + EVERY * 2;
        assert!(!home.is_due(&running, seen), "it has just started");
        assert!(home.is_due(&[], seen + EVERY), "it ended since");
        (home.due, home.was_used) = (None, false);
        assert!(!home.is_due(&running, seen + EVERY * 2), "it is being measured");
    }

    #[test]
    fn after_a_start_of_the_server_waiting_jobs_wait_for_a_measurement() {
        let start = Instant::now();
        let mut home = Home::new(Some(StorageHold::Unmeasured), start);
        let waiting = Arc::new(samples::pending(3, samples::spec("job", 0, 1)));
        assert!(home.is_due(&[waiting], start));
    }
}
