//! The room that a cluster's own quotas leave, without replication, because users count their files once.

use hdfs_native::client::ContentSummary;
use paddlecloud_pfs::{RelPath, RootError, Space};

use super::HdfsStore;

/// Replicas of a block if neither the settings nor the existing files tell; also the largest guess. Hadoop's default.
const COPIES: u64 = 3;

impl HdfsStore {
    /// The limit of a space; `None` if it has no quota.
    pub(super) fn bytes_limit(&self, space: &Space) -> Result<Option<u64>, RootError> {
        let summary = self.summary(self.space_key(space))?;
        Ok(summary.and_then(|summary| limit_of(&summary, self.0.replication)))
    }

    /// The name node's summary of a folder; `None` if the folder does not exist.
    pub(super) fn summary(&self, key: String) -> Result<Option<ContentSummary>, RootError> {
        let summary = self.ask("measure", &RelPath::root(), move |client| async move {
            client.get_content_summary(&key).await
        });
        match summary {
            Ok(summary) => Ok(Some(summary)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A quota that is set; the name node reports a negative number for none.
fn set(quota: u64) -> Option<u64> {
    Some(quota).filter(|quota| *quota < i64::MAX as u64)
}

/// The cluster counts every replica of a block, so the room for new files is its room divided by the replicas.
fn limit_of(summary: &ContentSummary, replication: Option<u32>) -> Option<u64> {
    let quota = set(summary.space_quota)?;
    let copies = match (replication, summary.space_consumed) {
        (Some(copies), _) => u64::from(copies.max(1)),
        (None, 0) => COPIES,
        // The average replication of the existing files. A block in progress counts whole and has no length yet.
        (None, all) => all.div_ceil(summary.length.max(1)).clamp(1, COPIES),
    };
    let used = summary.length;
    Some(match quota.checked_sub(summary.space_consumed) {
        Some(room) => used.saturating_add(room / copies),
        None => used.saturating_sub((summary.space_consumed - quota) / copies),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u64 = u64::MAX;

    fn summary(length: u64, space_consumed: u64, space_quota: u64) -> ContentSummary {
        ContentSummary {
            length,
            file_count: 2,
            directory_count: 3,
            quota: NONE,
            space_consumed,
            space_quota,
        }
    }

    #[test]
    fn the_limit_counts_every_file_once() {
        assert_eq!(limit_of(&summary(0, 0, 900), Some(3)), Some(300));
        assert_eq!(limit_of(&summary(100, 300, 900), Some(3)), Some(300));
        // Existing files keep their replication when the setting changes.
        assert_eq!(limit_of(&summary(100, 300, 900), Some(1)), Some(700));
        assert_eq!(limit_of(&summary(100, 200, 900), None), Some(450));
        assert_eq!(limit_of(&summary(0, 0, 900), None), Some(300));
        // Blocks in progress count whole and have no length yet.
        assert_eq!(limit_of(&summary(0, 300, 900), None), Some(200));
        assert_eq!(limit_of(&summary(10, 600, 900), None), Some(110));
        assert_eq!(
            limit_of(&summary(400, 1200, 900), Some(3)),
            Some(300),
            "more than fits"
        );
        assert_eq!(limit_of(&summary(0, 0, 0), Some(3)), Some(0));
        assert_eq!(limit_of(&summary(100, 300, NONE), Some(3)), None);
    }
}
