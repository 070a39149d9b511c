//! A user's limits and usage.

use std::collections::BTreeMap;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::jobs::QuotaRow;
use paddlecloud_core::job::{Job, Phase};
use paddlecloud_core::names::UserName;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{GroupUsage, Usage};

use super::accounts::as_user;
use super::{App, AppError};
use crate::reconcile::UserUsage;

impl App {
    /// The resources held by the user's jobs that are starting.
    fn starting(&self, user: &UserName) -> Usage {
        let mut sum = Usage::default();
        for job in self.jobs.active() {
            if job.user != *user || job.phase != Phase::Starting {
                continue;
            }
            let total = job.spec.total();
            sum.cpu = Cpu::millis(sum.cpu.as_millis().saturating_add(total.cpu.as_millis()));
            sum.memory = Bytes::new(sum.memory.as_u64().saturating_add(total.memory.as_u64()));
            sum.gpu = sum.gpu.saturating_add(total.gpu);
            sum.parallelism += job.spec.parallelism;
            sum.jobs += 1;
        }
        sum
    }

    fn queued_jobs(&self, user: &UserName) -> usize {
        let jobs = self.jobs.active();
        let waits = |job: &&std::sync::Arc<Job>| job.user == *user && job.phase == Phase::Pending;
        jobs.iter().filter(waits).count()
    }

    /// The limits and usage of every user, then of every group that has a total and members, for administrators.
    pub async fn quota_list(&self, caller: &Caller) -> Result<Vec<QuotaRow>, AppError> {
        self.check_all_users(caller, "quota.list").await?;
        let mut accounts = self.auth.users().all();
        accounts.sort_by(|left, right| left.name.cmp(&right.name));
        let mut all = Vec::new();
        let mut groups = BTreeMap::new();
        for account in accounts {
            let rows = match self.quota_show(&as_user(&account.name)).await {
                // It stops only its own user; the log has the problem.
                Err(error) if error.is_foreign_home() => continue,
                other => other?,
            };
            let (shared, own): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.group.is_some());
            for row in own {
                all.push(QuotaRow {
                    user: Some(account.name.to_string()),
                    ..row
                });
            }
            for row in shared {
                groups.insert((row.group.clone(), row.resource.clone()), row);
            }
        }
        all.extend(groups.into_values());
        Ok(all)
    }

    /// The limit and usage of everything that is counted.
    pub async fn quota_show(&self, caller: &Caller) -> Result<Vec<QuotaRow>, AppError> {
        let UserUsage {
            quota,
            used: usage,
            groups,
        } = self.jobs.usage(&caller.user).await;
        let stored = self.file_storage(caller).await?;
        let storage_limit = stored.bytes_limit.map(|bytes| Bytes::new(bytes).to_string());
        let starting = self.starting(&caller.user);
        let queued = self.queued_jobs(&caller.user);
        let number = |limit: Option<u32>| limit.map(|count| count.to_string());
        let guarantee = quota.guarantee;
        let mut rows = vec![
            row("cpu", quota.cpu.map(|cpu| cpu.to_string()), usage.cpu.to_string())
                .reserving(starting.cpu.to_string())
                .guaranteeing(guarantee.cpu),
            row(
                "memory",
                quota.memory.map(|memory| memory.to_string()),
                usage.memory.to_string(),
            )
            .reserving(starting.memory.to_string())
            .guaranteeing(guarantee.memory),
            row("gpu", number(quota.gpu), usage.gpu.to_string())
                .reserving(starting.gpu.to_string())
                .guaranteeing(guarantee.gpu),
            row(
                "parallelism",
                number(quota.parallelism),
                usage.parallelism.to_string(),
            )
            .reserving(starting.parallelism.to_string()),
            row("running jobs", number(quota.jobs), usage.jobs.to_string())
                .reserving(starting.jobs.to_string()),
            row("queued jobs", number(quota.queued), queued.to_string()),
            row(
                "storage",
                storage_limit.clone(),
                Bytes::new(stored.bytes_used).to_string(),
            )
            .reserving(Bytes::new(stored.unfinished_bytes).to_string()),
            row(
                "files",
                stored.files_limit.map(|count| count.to_string()),
                stored.files_used.to_string(),
            ),
        ];
        if stored.unfinished_uploads > 0 {
            let held = Bytes::new(stored.unfinished_bytes).to_string();
            // Part of the storage, so its limit applies.
            rows.push(row("unfinished uploads", storage_limit, held));
        }
        if let Some(priority) = quota.priority {
            rows.push(row("priority", Some(priority.to_string()), String::new()));
        }
        if let Some(limit) = stored.bytes_limit {
            let logs = self.log_bytes(&caller.user).await?;
            if logs > 0 {
                // Logs may use the storage that files leave free.
                let left = limit.saturating_sub(stored.bytes_used);
                rows.push(row(
                    "logs",
                    Some(Bytes::new(left).to_string()),
                    Bytes::new(logs).to_string(),
                ));
            }
        }
        rows.extend(groups.iter().flat_map(group_rows));
        Ok(rows)
    }
}

/// What all members of a group may have running together, and what they have.
fn group_rows(group: &GroupUsage) -> Vec<QuotaRow> {
    let (quota, usage) = (&group.quota, &group.usage);
    let number = |limit: Option<u32>| limit.map(|count| count.to_string());
    let rows = [
        row("cpu", quota.cpu.map(|cpu| cpu.to_string()), usage.cpu.to_string()),
        row(
            "memory",
            quota.memory.map(|memory| memory.to_string()),
            usage.memory.to_string(),
        ),
        row("gpu", number(quota.gpu), usage.gpu.to_string()),
        row(
            "parallelism",
            number(quota.parallelism),
            usage.parallelism.to_string(),
        ),
        row("running jobs", number(quota.jobs), usage.jobs.to_string()),
    ];
    let limited = rows.into_iter().filter(|row| row.limit.is_some());
    let of_group = |row| QuotaRow {
        group: Some(group.group.to_string()),
        ..row
    };
    limited.map(of_group).collect()
}

fn row(resource: &str, limit: Option<String>, used: String) -> QuotaRow {
    QuotaRow {
        user: None,
        group: None,
        resource: resource.to_owned(),
        limit,
        guarantee: None,
        used,
        reserved: None,
    }
}

trait Amounts {
    fn reserving(self, amount: String) -> Self;
    fn guaranteeing<T: Default + PartialEq + ToString>(self, amount: T) -> Self;
}

impl Amounts for QuotaRow {
    fn reserving(mut self, amount: String) -> QuotaRow {
        self.reserved = Some(amount);
        self
    }

    fn guaranteeing<T: Default + PartialEq + ToString>(mut self, amount: T) -> QuotaRow {
        self.guarantee = (amount != T::default()).then(|| amount.to_string());
        self
    }
}
