//! The room that a cluster's own quotas leave, without replication, because users count their files once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdfs_native::client::ContentSummary;
use paddlecloud_pfs::root::{Counted, OwnQuota, in_the_way};
use paddlecloud_pfs::{RelPath, RootError, Space};

use super::HdfsStore;
use super::writing::LARGEST_BLOCK;

/// Replicas of a block if neither the settings nor the existing files tell; also the largest guess. Hadoop's default.
const COPIES: u64 = 3;

/// How long an explanation is reused: the name node walks a whole folder for its numbers, and thousands of files may be refused in
/// a row.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// Why a file that seems to fit may be refused.
const WHOLE_BLOCK: &str =
    ", and HDFS sets a whole block aside for each file while it is written, up to 160 MiB for each copy";

impl HdfsStore {
    /// The usage and limit of a space; `None` if it has no quota.
    pub(super) fn bytes_kept(&self, space: &Space) -> Result<Option<OwnQuota>, RootError> {
        let summary = self.summary(self.space_key(space))?;
        Ok(summary.and_then(|summary| of_bytes(&summary, self.0.replication)))
    }

    /// Adds limit and usage to an error that a quota caused.
    pub(super) fn explain(&self, space: &Space, error: RootError) -> RootError {
        let RootError::FsQuota { path, kept: None } = error else {
            return error;
        };
        let ask = || self.quota_in_the_way(space);
        let kept = self.0.explained.of(space, Instant::now(), ask);
        RootError::FsQuota { path, kept }
    }

    /// The exhausted quota: the space's own, or that of a folder above it. Folders above are larger, so they are checked only if
    /// the space's own quota is not the reason.
    fn quota_in_the_way(&self, space: &Space) -> Option<OwnQuota> {
        let mut quotas = Vec::new();
        for folder in upwards(&self.0.folder, self.space_key(space)) {
            if let Ok(Some(summary)) = self.summary(folder) {
                let here = [of_bytes(&summary, self.0.replication), of_names(&summary)];
                quotas.extend(here.into_iter().flatten());
            }
            if quotas.iter().any(is_used_up) {
                break;
            }
        }
        in_the_way(quotas)
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

/// The last explanation of each space.
#[derive(Default)]
pub(super) struct Explained(Mutex<HashMap<Space, (Instant, Option<OwnQuota>)>>);

impl Explained {
    /// A recent explanation, or a new one. Concurrent callers share one request.
    fn of(&self, space: &Space, now: Instant, ask: impl FnOnce() -> Option<OwnQuota>) -> Option<OwnQuota> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, (when, _)| now.saturating_duration_since(*when) < GOOD_FOR);
        if let Some((_, kept)) = said.get(space) {
            return *kept;
        }
        // Its age counts from the reply, because the name node may be slow.
        let asked = Instant::now();
        let kept = ask();
        said.insert(space.clone(), (now + asked.elapsed(), kept));
        kept
    }
}

/// A folder and its ancestors, up to the store's own folder.
fn upwards(top: &str, key: String) -> Vec<String> {
    let above = |key: &String| {
        let (above, _) = key
            .rsplit_once('/')
            .filter(|(above, _)| above.len() >= top.len())?;
        Some(above.to_owned())
    };
    let named = |key: String| if key.is_empty() { "/".to_owned() } else { key };
    std::iter::successors(Some(key), above).map(named).collect()
}

/// Whether nothing more fits: neither another name nor the block that a writer needs.
fn is_used_up(quota: &OwnQuota) -> bool {
    match quota.counted {
        Counted::Bytes => quota.room() < LARGEST_BLOCK,
        Counted::Names => quota.room() == 0,
    }
}

/// A quota that is set; the name node reports a negative number for none.
fn set(quota: u64) -> Option<u64> {
    Some(quota).filter(|quota| *quota < i64::MAX as u64)
}

/// The cluster counts every replica of a block, so the room for new files is its room divided by the replicas.
fn of_bytes(summary: &ContentSummary, replication: Option<u32>) -> Option<OwnQuota> {
    let quota = set(summary.space_quota)?;
    let copies = match (replication, summary.space_consumed) {
        (Some(copies), _) => u64::from(copies.max(1)),
        (None, 0) => COPIES,
        // The average replication of the existing files. A block in progress counts whole and has no length yet.
        (None, all) => all.div_ceil(summary.length.max(1)).clamp(1, COPIES),
    };
    let used = summary.length;
    let limit = match quota.checked_sub(summary.space_consumed) {
        Some(room) => used.saturating_add(room / copies),
        None => used.saturating_sub((summary.space_consumed - quota) / copies),
    };
    let beside = if used < limit { WHOLE_BLOCK } else { "" };
    Some(OwnQuota {
        used,
        limit,
        counted: Counted::Bytes,
        beside,
    })
}

fn of_names(summary: &ContentSummary) -> Option<OwnQuota> {
    Some(OwnQuota {
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
        // Existing files keep their replication when the setting changes.
        assert_eq!(told(&summary(100, 300, 900), Some(1)), Some((100, 700)));
        assert_eq!(told(&summary(100, 200, 900), None), Some((100, 450)));
        assert_eq!(told(&summary(0, 0, 900), None), Some((0, 300)));
        // Blocks in progress count whole and have no length yet.
        assert_eq!(told(&summary(0, 300, 900), None), Some((0, 200)));
        assert_eq!(told(&summary(10, 600, 900), None), Some((10, 110)));
        assert_eq!(
            told(&summary(400, 1200, 900), Some(3)),
            Some((400, 300)),
            "more than fits"
        );
        assert_eq!(told(&summary(0, 0, 0), Some(3)), Some((0, 0)));
        assert_eq!(told(&summary(100, 300, NONE), Some(3)), None);
    }

    #[test]
    fn what_was_said_a_moment_ago_is_not_asked_again() {
        let explained = Explained::default();
        let (ann, bob) = (Space::Home("ann".parse().unwrap()), Space::Public);
        let begun = Instant::now();
        let asked = std::cell::Cell::new(0);
        let of = |space: &Space, now| {
            explained.of(space, now, || {
                asked.set(asked.get() + 1);
                of_bytes(&summary(asked.get(), 0, 900), Some(1))
            })
        };
        let first = of(&ann, begun);
        assert_eq!(of(&ann, begun + GOOD_FOR / 2), first);
        assert_eq!(asked.get(), 1);
        assert_ne!(of(&bob, begun), first, "that is another space");
        assert_ne!(of(&ann, begun + GOOD_FOR * 2), first, "numbers do not stay");
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn folders_are_asked_up_to_the_stores_own() {
        let up = |top: &str, key: &str| upwards(top, key.to_owned());
        assert_eq!(
            up("/a/b", "/a/b/home/ann"),
            ["/a/b/home/ann", "/a/b/home", "/a/b"]
        );
        assert_eq!(up("", "/home/ann"), ["/home/ann", "/home", "/"]);
        assert_eq!(up("/a", "/a/public"), ["/a/public", "/a"]);
    }

    #[test]
    fn a_quota_is_the_reason_when_no_name_or_no_block_fits() {
        let names = |limit| {
            let mut summary = summary(0, 0, NONE);
            summary.quota = limit;
            of_names(&summary).expect("a quota is set")
        };
        assert!(is_used_up(&names(5)) && !is_used_up(&names(6)));
        let bytes = |quota| of_bytes(&summary(100, 100, quota), Some(1)).expect("a quota is set");
        assert!(is_used_up(&bytes(100 + LARGEST_BLOCK - 1)));
        assert!(!is_used_up(&bytes(100 + LARGEST_BLOCK)));
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
