//! The resource usage of every user's jobs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use paddlecloud_api::admin::UsageView;
use paddlecloud_core::ports::{JobStore, PageRequest};
use paddlecloud_store::Used;

use super::{App, AppError};

/// Jobs to read at a time.
const PAGE: usize = 1000;
/// One hour in milliseconds.
const HOUR: f64 = 3_600_000.0;

impl App {
    /// Core-, GiB- and GPU-hours of every user since a time. Removed jobs are counted by whole days.
    pub async fn usage_list(&self, since: Option<Timestamp>) -> Result<Vec<UsageView>, AppError> {
        let now = Timestamp::now();
        let since = since.unwrap_or(Timestamp::MIN);
        let mut users: BTreeMap<String, Used> = BTreeMap::new();
        let mut add = |user: String, used: Used| {
            let sum = users.entry(user).or_default();
            *sum = sum.plus(used);
        };
        for (user, used) in self.store.used_before(since).await? {
            add(user.to_string(), used);
        }
        let mut request = PageRequest {
            user: None,
            name: None,
            before: None,
            limit: PAGE,
        };
        loop {
            let page = self.store.page(&request).await?;
            request.before = page.jobs.last().map(|job| job.id.clone());
            for job in &page.jobs {
                let used = Used::since(job, since, now);
                if used != Used::default() {
                    add(job.user.to_string(), used);
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(users.into_iter().map(|(user, used)| view(user, used)).collect())
    }
}

fn view(user: String, used: Used) -> UsageView {
    let hours = |amount: i64, unit: f64| (amount as f64 / unit / HOUR * 1000.0).round() / 1000.0;
    UsageView {
        user,
        jobs: u64::try_from(used.jobs).unwrap_or_default(),
        core_hours: hours(used.millis, 1000.0),
        gib_hours: hours(used.mib, 1024.0),
        card_hours: hours(used.cards, 1.0),
    }
}
