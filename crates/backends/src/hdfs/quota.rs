//! What a cluster's own quotas leave, told as if every block were kept once: that is how users count their files.

use hdfs_native::client::ContentSummary;
use paddlecloud_pfs::root::{Counted, KeptQuota, in_the_way};
use paddlecloud_pfs::{RelPath, RootError, Space};

use super::HdfsStore;

/// Copies of a block where neither the settings nor what is there tell; Hadoop's own default.
const COPIES: u64 = 3;

/// Why a file may be refused that seems to fit.
const WHOLE_BLOCK: &str =
    ", and HDFS sets a whole block aside for each file while it is written, up to 160 MiB for each copy";

impl HdfsStore {
    /// What a space holds and may hold; `None` where nobody set a quota for it.
    pub(super) fn bytes_kept(&self, space: &Space) -> Result<Option<KeptQuota>, RootError> {
        let summary = self.summary(space)?;
        Ok(summary.and_then(|summary| of_bytes(&summary, self.0.replication)))
    }

    /// The same failure with limit and use, where a quota is the reason.
    pub(super) fn explain(&self, space: &Space, error: RootError) -> RootError {
        let RootError::FsQuota { path, kept: None } = error else {
            return error;
        };
        let summary = self.summary(space).ok().flatten();
        let quotas = summary.map(|summary| [of_bytes(&summary, self.0.replication), of_names(&summary)]);
        let kept = in_the_way(quotas.into_iter().flatten().flatten());
        RootError::FsQuota { path, kept }
    }

    fn summary(&self, space: &Space) -> Result<Option<ContentSummary>, RootError> {
        let key = self.space_key(space);
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

/// A quota that somebody set; the name node tells none as a number below zero.
fn set(quota: u64) -> Option<u64> {
    Some(quota).filter(|quota| *quota < i64::MAX as u64)
}

/// The cluster counts every copy of a block. What fits beside what is there is its room divided by the copies.
fn of_bytes(summary: &ContentSummary, replication: Option<u32>) -> Option<KeptQuota> {
    let quota = set(summary.space_quota)?;
    let once = |bytes: u64| match (replication, summary.space_consumed) {
        (Some(copies), _) => bytes / u64::from(copies.max(1)),
        (None, 0) => bytes / COPIES,
        // As many as the files there have on average.
        (None, all) => {
            let once = u128::from(bytes) * u128::from(summary.length) / u128::from(all);
            u64::try_from(once).unwrap_or(u64::MAX)
        }
    };
    let used = summary.length;
    let limit = match quota.checked_sub(summary.space_consumed) {
        Some(room) => used.saturating_add(once(room)),
        None => used.saturating_sub(once(summary.space_consumed - quota)),
    };
    let beside = if used < limit { WHOLE_BLOCK } else { "" };
    Some(KeptQuota {
        used,
        limit,
        counted: Counted::Bytes,
        beside,
    })
}

fn of_names(summary: &ContentSummary) -> Option<KeptQuota> {
    Some(KeptQuota {
        used: summary.file_count.saturating_add(summary.directory_count),
        limit: set(summary.quota)?,
        counted: Counted::Names,
        beside: "",
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

    fn told(summary: &ContentSummary, replication: Option<u32>) -> Option<(u64, u64)> {
        of_bytes(summary, replication).map(|kept| (kept.used, kept.limit))
    }

    #[test]
    fn limit_and_use_count_every_file_once() {
        assert_eq!(told(&summary(0, 0, 900), Some(3)), Some((0, 300)));
        assert_eq!(told(&summary(100, 300, 900), Some(3)), Some((100, 300)));
        // Files from before another setting keep their copies.
        assert_eq!(told(&summary(100, 300, 900), Some(1)), Some((100, 700)));
        assert_eq!(told(&summary(100, 200, 900), None), Some((100, 450)));
        assert_eq!(told(&summary(0, 0, 900), None), Some((0, 300)));
        assert_eq!(
            told(&summary(400, 1200, 900), Some(3)),
            Some((400, 300)),
            "more than fits"
        );
        assert_eq!(told(&summary(0, 0, 0), Some(3)), Some((0, 0)));
        assert_eq!(told(&summary(100, 300, NONE), Some(3)), None);
    }

    #[test]
    fn names_are_files_and_folders() {
        let mut summary = summary(0, 0, NONE);
        assert_eq!(of_names(&summary), None);
        summary.quota = 5;
        let kept = of_names(&summary).expect("a quota is set");
        assert_eq!((kept.used, kept.limit, kept.room()), (5, 5, 0));
    }
}
