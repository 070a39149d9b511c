//! The resource usage of jobs, in integers so that sums are exact: millicores, MiB and GPUs, each times milliseconds.
//!
//! Jobs of the history are counted from their records. When a record is removed, its usage is added to a row for its owner and
//! day, in the same transaction.

use std::collections::BTreeMap;

use jiff::Timestamp;
use paddlecloud_core::job::Job;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use sqlx::{AnyConnection, Row as _};

use super::{Store, read_failed};

const DAY: i64 = 24 * 60 * 60 * 1000;
const MIB: u64 = 1 << 20;

/// The sum of the usage of some jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub jobs: i64,
    pub millis: i64,
    pub mib: i64,
    pub cards: i64,
}

impl Used {
    /// The usage of a job that held its resources for this many milliseconds.
    fn held(job: &Job, milliseconds: i64) -> Used {
        let spec = &job.spec;
        let mut used = Used::default();
        for (count, each) in [(spec.parallelism, spec.trainer), (spec.pservers, spec.pserver)] {
            let share = i64::from(count).saturating_mul(milliseconds);
            let times = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(share);
            used = used.plus(Used {
                jobs: 0,
                millis: times(each.cpu.as_millis()),
                mib: times(each.memory.as_u64() / MIB),
                cards: times(u64::from(each.gpu)),
            });
        }
        used
    }

    /// A job's usage since this time: from each admission to its end.
    pub fn since(job: &Job, since: Timestamp, now: Timestamp) -> Used {
        let days = by_day(job, since.as_millisecond(), now.as_millisecond());
        days.into_values().fold(Used::default(), Used::plus)
    }

    pub fn plus(self, other: Used) -> Used {
        Used {
            jobs: self.jobs.saturating_add(other.jobs),
            millis: self.millis.saturating_add(other.millis),
            mib: self.mib.saturating_add(other.mib),
            cards: self.cards.saturating_add(other.cards),
        }
    }
}

/// A job's usage since this time, by day. The job itself is counted on its last day with any usage.
fn by_day(job: &Job, since: i64, now: i64) -> BTreeMap<i64, Used> {
    let mut days: BTreeMap<i64, Used> = BTreeMap::new();
    let mut add = |day: i64, used: Used| {
        let sum = days.entry(day).or_default();
        *sum = sum.plus(used);
    };
    let submitted = job.submitted_at.as_millisecond();
    let before = i64::try_from(job.held_before.as_millis()).unwrap_or(i64::MAX);
    if before > 0 && submitted >= since {
        add(submitted.div_euclid(DAY), Used::held(job, before));
    }
    if let Some(admitted) = job.admitted_at {
        let end = job.finished_at.map_or(now, Timestamp::as_millisecond);
        let mut from = admitted.as_millisecond().max(since);
        while from < end {
            let day = from.div_euclid(DAY);
            let to = end.min((day + 1).saturating_mul(DAY));
            add(day, Used::held(job, to - from));
            from = to;
        }
    }
    if let Some(mut last) = days.last_entry() {
        last.get_mut().jobs += 1;
    }
    days
}

/// Adds the usage of a job that is being removed to its owner's days. Does nothing if the job does not exist.
pub(super) async fn keep_use(id: &str, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let row = sqlx::query("SELECT owner, document FROM jobs WHERE id = $1").bind(id);
    let Some(row) = row.fetch_optional(&mut *connection).await? else {
        return Ok(());
    };
    let (owner, document): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let Ok(job) = serde_json::from_str::<Job>(&document) else {
        tracing::warn!(
            job = id,
            "an unreadable job is removed; what it used is not counted"
        );
        return Ok(());
    };
    // A job is removed after its last worker has ended, even if its last record does not say so.
    let now = Timestamp::now().as_millisecond();
    for (day, used) in by_day(&job, i64::MIN, now) {
        sqlx::query(
            "INSERT INTO usage_days (owner, day, jobs, millis, mib, cards) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (owner, day) DO UPDATE SET jobs = usage_days.jobs + excluded.jobs, \
             millis = usage_days.millis + excluded.millis, mib = usage_days.mib + excluded.mib, \
             cards = usage_days.cards + excluded.cards",
        )
        .bind(&owner)
        .bind(day)
        .bind(used.jobs)
        .bind(used.millis)
        .bind(used.mib)
        .bind(used.cards)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Moves the usage of a deleted account's removed jobs, so that the next account of its name does not get it.
pub(super) async fn give_use(
    from: &str,
    to: &str,
    connection: &mut AnyConnection,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE usage_days SET owner = $2 WHERE owner = $1")
        .bind(from)
        .bind(to)
        .execute(connection)
        .await?;
    Ok(())
}

impl Store {
    /// The usage of removed jobs by owner, on days that end after this time.
    pub async fn used_before(&self, since: Timestamp) -> Result<Vec<(UserName, Used)>, StoreError> {
        let day = since.as_millisecond().div_euclid(DAY);
        let query =
            sqlx::query("SELECT owner, jobs, millis, mib, cards FROM usage_days WHERE day >= $1").bind(day);
        let rows = query
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        let mut all = Vec::new();
        for row in &rows {
            let number = |column: usize| row.try_get::<i64, _>(column).map_err(read_failed);
            let owner: String = row.try_get(0).map_err(read_failed)?;
            let Ok(owner) = owner.parse() else { continue };
            let used = Used {
                jobs: number(1)?,
                millis: number(2)?,
                mib: number(3)?,
                cards: number(4)?,
            };
            all.push((owner, used));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use paddlecloud_core::testing::samples;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_job_counts_from_its_admission_to_its_end_and_only_since_then() {
        let mut job = samples::running(1, samples::spec("x", 1, 2));
        job.admitted_at = Some(at(1000));
        let cores = |job: &Job, since, now| Used::since(job, since, now).millis / 1000 / 1000;
        assert_eq!(cores(&job, at(0), at(1600)), 3 * 600, "it still runs");
        job.finished_at = Some(at(4600));
        assert_eq!(cores(&job, at(0), at(9999)), 3 * 3600);
        assert_eq!(cores(&job, at(2800), at(9999)), 3 * 1800);
        assert_eq!(Used::since(&job, at(5000), at(9999)), Used::default());
        job.admitted_at = None;
        assert_eq!(Used::since(&job, at(0), at(9999)), Used::default());
        job.held_before = SignedDuration::from_secs(60);
        let held = Used::since(&job, Timestamp::MIN, at(9999));
        assert_eq!(
            (held.jobs, held.millis / 1000 / 1000),
            (1, 3 * 60),
            "before it was queued again"
        );
    }

    #[test]
    fn days_add_up_to_the_whole() {
        let mut job = samples::running(1, samples::spec("x", 0, 1));
        job.admitted_at = Some(at(86_400 - 10));
        job.finished_at = Some(at(2 * 86_400 + 5));
        let days = by_day(&job, i64::MIN, 0);
        let seconds: Vec<(i64, i64)> = days
            .iter()
            .map(|(day, used)| (*day, used.millis / 1000 / 1000))
            .collect();
        assert_eq!(seconds, [(0, 10), (1, 86_400), (2, 5)]);
        assert_eq!(days.values().map(|used| used.jobs).sum::<i64>(), 1);
    }
}
