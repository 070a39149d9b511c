//! What a user may have and has.

use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::jobs::QuotaRow;
use paddlecloud_core::quantity::Bytes;

use super::App;
use crate::auth::Caller;

impl App {
    /// Limit and use of everything that is counted.
    pub async fn quota_show(&self, caller: &Caller) -> Result<Vec<QuotaRow>, ErrorBody> {
        let (quota, usage) = self.jobs.usage(&caller.user).await;
        let stored = self.file_storage(caller).await?;
        let storage_limit = stored.bytes_limit.map(|bytes| Bytes::new(bytes).to_string());
        let mut rows = vec![
            row("cpu", quota.cpu.map(|cpu| cpu.to_string()), usage.cpu.to_string()),
            row(
                "memory",
                quota.memory.map(|memory| memory.to_string()),
                usage.memory.to_string(),
            ),
            row("gpu", quota.gpu.map(|gpu| gpu.to_string()), usage.gpu.to_string()),
            row(
                "parallelism",
                quota.parallelism.map(|count| count.to_string()),
                usage.parallelism.to_string(),
            ),
            row(
                "storage",
                storage_limit.clone(),
                Bytes::new(stored.bytes_used).to_string(),
            ),
            row(
                "files",
                stored.files_limit.map(|count| count.to_string()),
                stored.files_used.to_string(),
            ),
        ];
        if stored.unfinished_uploads > 0 {
            let held = Bytes::new(stored.unfinished_bytes).to_string();
            // Part of the storage, and so under its limit.
            rows.push(row("unfinished uploads", storage_limit, held));
        }
        Ok(rows)
    }
}

fn row(resource: &str, limit: Option<String>, used: String) -> QuotaRow {
    QuotaRow {
        resource: resource.to_owned(),
        limit,
        used,
    }
}
