//! What every user's jobs have used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use paddlecloud_api::admin::UsageView;
use paddlecloud_api::error::ErrorBody;
use paddlecloud_core::job::Job;
use paddlecloud_core::ports::{JobStore, PageRequest};

use super::{App, store_failed};

/// Jobs that are read at a time.
const PAGE: usize = 1000;
const HOUR: f64 = 3600.0;
const MIB: u64 = 1 << 20;

/// Sums of one user: in thousandths of a core, MiB and cards, times seconds.
#[derive(Default)]
struct Sum {
    jobs: u64,
    millis: f64,
    mib: f64,
    cards: f64,
}

impl App {
    /// Core-, GiB- and card-hours of every user since a time, of jobs that are in the history.
    pub async fn usage_list(&self, since: Option<Timestamp>) -> Result<Vec<UsageView>, ErrorBody> {
        let now = Timestamp::now();
        let since = since.unwrap_or(Timestamp::MIN);
        let mut users: BTreeMap<String, Sum> = BTreeMap::new();
        let mut request = PageRequest {
            user: None,
            name: None,
            before: None,
            limit: PAGE,
        };
        loop {
            let page = self.store.page(&request).await.map_err(store_failed)?;
            request.before = page.jobs.last().map(|job| job.id.clone());
            for job in &page.jobs {
                let held = held_seconds(job, since, now);
                if held > 0.0 {
                    users.entry(job.user.to_string()).or_default().add(job, held);
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(users.into_iter().map(|(user, sum)| sum.view(user)).collect())
    }
}

/// How long the job held its room since then, from its admission to its end.
fn held_seconds(job: &Job, since: Timestamp, now: Timestamp) -> f64 {
    let Some(admitted) = job.admitted_at else {
        return 0.0;
    };
    let end = job.finished_at.unwrap_or(now);
    end.duration_since(admitted.max(since)).as_secs_f64().max(0.0)
}

impl Sum {
    fn add(&mut self, job: &Job, seconds: f64) {
        let spec = &job.spec;
        self.jobs += 1;
        for (count, each) in [(spec.parallelism, spec.trainer), (spec.pservers, spec.pserver)] {
            let share = f64::from(count) * seconds;
            // Rounded to MiB, which no report shows.
            self.mib += (each.memory.as_u64() / MIB) as f64 * share;
            self.millis += each.cpu.as_millis() as f64 * share;
            self.cards += f64::from(each.gpu) * share;
        }
    }

    fn view(self, user: String) -> UsageView {
        let rounded = |hours: f64| (hours * 1000.0).round() / 1000.0;
        UsageView {
            user,
            jobs: self.jobs,
            core_hours: rounded(self.millis / 1000.0 / HOUR),
            gib_hours: rounded(self.mib / 1024.0 / HOUR),
            card_hours: rounded(self.cards / HOUR),
        }
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::testing::samples;

    use super::*;

    #[test]
    fn a_job_counts_from_its_admission_to_its_end_and_only_since_then() {
        let mut job = samples::running(1, samples::spec("x", 1, 2));
        let at = |second| Timestamp::from_second(second).unwrap();
        job.admitted_at = Some(at(1000));
        assert_eq!(
            held_seconds(&job, Timestamp::MIN, at(1600)),
            600.0,
            "it still runs"
        );
        job.finished_at = Some(at(4600));
        assert_eq!(held_seconds(&job, Timestamp::MIN, at(9999)), 3600.0);
        assert_eq!(held_seconds(&job, at(2800), at(9999)), 1800.0);
        assert_eq!(held_seconds(&job, at(5000), at(9999)), 0.0);
        job.admitted_at = None;
        assert_eq!(held_seconds(&job, Timestamp::MIN, at(9999)), 0.0);
        let mut sum = Sum::default();
        sum.add(&job, 3600.0);
        let view = sum.view("me".into());
        assert_eq!(
            (view.core_hours, view.gib_hours, view.card_hours),
            (3.0, 3.0, 0.0)
        );
    }
}
