//! Determines how an attempt ended if its pod has ended without a report from its launcher.
//!
//! If the launcher exited while the server was away, its last output and its end are in the run's folder. Otherwise the
//! kubelet's status counts, and the kubelet is asked once for output that the run's folder lacks.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::News;
use paddlecloud_core::ports::{AttemptKey, Chunk, Piece, Stream};
use paddlecloud_worker::log::LogReader;
use paddlecloud_worker::printed;
use paddlecloud_worker::protocol::{self, UnixNanos};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::Inner;
use super::orders;
use super::pods::{Disruption, PodEnd};

/// How long the last messages of a launcher may still be in flight.
const LAST_WORDS: Duration = Duration::from_secs(2);
const BLOCK: usize = 1 << 20;
/// How much of the log's beginning is compared with what the kubelet has.
const BEGINNING: usize = 4 << 10;

/// How a pod ended.
#[derive(Debug, Clone)]
pub enum PodFate {
    Ended(PodEnd),
    /// It was deleted, not by this server.
    Deleted,
    /// Neither the pod nor its node responds; a description.
    NodeLost(String),
}

/// What is known about an attempt besides the fate of its pod.
#[derive(Debug, Clone, Default)]
struct Known {
    home: PathBuf,
    spool: PathBuf,
    stopped: bool,
    disruption: Option<Disruption>,
    /// The node it was on, if that was removed.
    gone_node: Option<String>,
}

/// Finds out how an attempt ended and reports it.
pub async fn report_end(inner: Arc<Inner>, attempt: AttemptKey, fate: PodFate) {
    if is_linked(&inner, &attempt) {
        tokio::time::sleep(LAST_WORDS).await;
    }
    let Some(known) = known(&inner, &attempt) else {
        return;
    };
    if let PodFate::NodeLost(_) = fate {
        end_unheard(&inner, &attempt).await;
    }
    let owned = (attempt.clone(), known.home.clone(), known.spool.clone());
    let found = inner
        .blocking(move |inner| recover(inner, &owned.0, &owned.1, &owned.2))
        .await;
    let recorded = match found {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) | Err(error) => {
            tracing::debug!(?attempt, %error, "the run's folder tells nothing of an attempt");
            if let PodFate::Ended(_) = fate {
                ask_kubelet(&inner, &attempt).await;
            }
            None
        }
    };
    match recorded {
        Some(exit) => {
            let log_end = exit.final_log_offset;
            let end = match fate {
                // Its launcher was asked to exit and does not know why.
                PodFate::Ended(end) if end.used_too_much => News::Exited(exit_of(end, known.stopped)),
                _ => inner.end_as_reported(&attempt, exit),
            };
            inner.end(&attempt, end, Some(log_end)).await;
        }
        None => {
            let end = judge(&inner, &attempt, fate, &known);
            inner.end(&attempt, end, None).await;
        }
    }
}

fn known(inner: &Inner, attempt: &AttemptKey) -> Option<Known> {
    let table = inner.table();
    let entry = table.get(attempt).filter(|entry| !entry.news.is_end())?;
    let gone = |node: &String| inner.room().is_gone(node);
    Some(Known {
        home: entry.pod.home.clone(),
        spool: entry.pod.spool.clone(),
        stopped: entry.stop.is_some(),
        disruption: entry.disruption.clone(),
        gone_node: entry.node.clone().filter(gone),
    })
}

fn is_linked(inner: &Inner, attempt: &AttemptKey) -> bool {
    inner
        .table()
        .get(attempt)
        .is_some_and(|entry| entry.link.is_some())
}

/// No kubelet confirms the end of this pod. If it still runs, its launcher is rejected when it connects.
async fn end_unheard(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let pod = inner
        .table()
        .get(attempt)
        .map(|entry| (entry.pod.clone(), entry.uid.clone()));
    if let Some((pod, uid)) = pod {
        orders::delete_pod(inner, attempt, &pod, uid, 0).await;
    }
}

/// Derives the end from what the kubelet and the API server report.
fn judge(inner: &Inner, attempt: &AttemptKey, fate: PodFate, known: &Known) -> News {
    match verdict(fate, known) {
        Verdict::Exited(exit) => News::Exited(exit),
        Verdict::Stopped => orders::never_started(),
        Verdict::Disrupted(disruption) => inner.disrupted_by(attempt, &disruption),
        Verdict::Lost(words) => inner.disrupted(attempt, words),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Exited(Exit),
    /// It was ordered to stop and is gone.
    Stopped,
    Disrupted(Disruption),
    /// Ended without its own fault; a description.
    Lost(String),
}

fn verdict(fate: PodFate, known: &Known) -> Verdict {
    match fate {
        PodFate::Deleted | PodFate::NodeLost(_) if known.stopped => Verdict::Stopped,
        PodFate::NodeLost(words) => Verdict::Lost(words),
        PodFate::Deleted => match (&known.gone_node, &known.disruption) {
            (Some(node), _) => Verdict::Lost(format!("its node `{node}` is gone")),
            (None, Some(disruption)) => Verdict::Disrupted(disruption.clone()),
            (None, None) => Verdict::Lost("its pod was deleted by someone else".into()),
        },
        PodFate::Ended(end) => {
            let succeeded = end.code == Some(0);
            let disruption = end.disruption.clone().or_else(|| known.disruption.clone());
            match disruption.filter(|_| !end.used_too_much) {
                Some(disruption) if !known.stopped && !succeeded => Verdict::Disrupted(disruption),
                _ => Verdict::Exited(exit_of(end, known.stopped)),
            }
        }
    }
}

fn exit_of(end: PodEnd, stopped: bool) -> Exit {
    let unseen = end.code.is_none().then(|| "its exit status is unknown".into());
    Exit {
        code: end.code,
        signal: end.signal,
        oom: end.out_of_memory,
        message: end.message.or(unseen),
        stopped: Some(stopped),
        ..Exit::default()
    }
}

/// Fetches the output that the kubelet still has.
async fn ask_kubelet(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let Some(pod) = inner.table().get(attempt).map(|entry| entry.pod.clone()) else {
        return;
    };
    let container = attempt.worker.role.to_string();
    let printed = inner
        .cluster
        .container_log(&pod.namespace, &pod.name, &container)
        .await;
    let printed = match printed {
        Ok(printed) => printed,
        Err(error) => return tracing::debug!(?attempt, %error, "the kubelet has no output"),
    };
    let owned = attempt.clone();
    let added = inner
        .blocking(move |inner| append_rest(inner, &owned, &printed))
        .await;
    if let Ok(Err(error)) | Err(error) = added {
        tracing::warn!(?attempt, %error, "output that the kubelet has cannot be stored");
    }
}

/// Adds what the kubelet has to the log. Bytes that it lacks become a gap.
fn append_rest(inner: &Inner, attempt: &AttemptKey, printed: &[u8]) -> io::Result<()> {
    inner.logs.begin(attempt).map_err(io::Error::other)?;
    let stored = inner
        .logs
        .reader(attempt)
        .read(0, BEGINNING)
        .map_err(io::Error::other)?;
    for (offset, bytes) in placed(printed, stored.first()) {
        let chunk = Chunk {
            offset,
            stamp: UnixNanos::now().0,
            stream: Stream::Output,
            bytes,
        };
        inner.logs.append(attempt, &chunk).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The parts of a container's output, with their offsets in the log. A part is left out if nothing says where it belongs.
fn placed(printed: &[u8], stored: Option<&Piece>) -> Vec<(u64, Vec<u8>)> {
    let mut parts = printed::parts(printed);
    if let Some(first) = parts.first_mut().filter(|part| part.offset.is_none()) {
        // A short output says nothing about positions. If it was not rotated, it begins like the log.
        let begins = match stored {
            Some(Piece::Chunk(chunk)) => {
                let common = chunk.bytes.len().min(first.bytes.len());
                chunk.bytes[..common] == first.bytes[..common]
            }
            Some(Piece::Gap(_)) => false,
            None => true,
        };
        first.offset = begins.then_some(0);
    }
    let known = parts
        .into_iter()
        .filter_map(|part| Some((part.offset?, part.bytes)));
    known.collect()
}

/// Copies the rest of the output from the run's folder, and returns the exit that the launcher recorded there.
fn recover(
    inner: &Inner,
    attempt: &AttemptKey,
    home: &Path,
    spool: &Path,
) -> io::Result<Option<protocol::Exit>> {
    let folder = open_beneath(home, spool)?;
    let log = open_beneath_of(&folder, Path::new("log"))?;
    let mut reader = LogReader::open(&opened(&log));
    let mut next = inner.logs.begin(attempt).map_err(io::Error::other)?;
    loop {
        let pieces = reader.read_at(next, BLOCK).map_err(io::Error::other)?;
        let Some(last) = pieces.last() else { break };
        next = last.end();
        for piece in pieces {
            if let Piece::Chunk(chunk) = piece {
                inner.logs.append(attempt, &chunk).map_err(io::Error::other)?;
            }
        }
    }
    protocol::Exit::load(&opened(&folder)).map_err(io::Error::other)
}

/// The user can replace these folders with anything, so no link on the way is followed and no path leads outside.
fn open_beneath(base: &Path, below: &Path) -> io::Result<OwnedFd> {
    let base = openat(
        CWD,
        base,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    open_beneath_of(&base, below)
}

fn open_beneath_of(base: &OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(base, below, flags, Mode::empty(), resolve)?)
}

fn opened(folder: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed() -> PodEnd {
        PodEnd {
            code: Some(137),
            ..PodEnd::default()
        }
    }

    fn disruption(words: &str) -> Disruption {
        Disruption {
            words: words.into(),
            node_is_to_blame: true,
        }
    }

    #[test]
    fn a_disruption_by_the_cluster_is_not_a_failure_of_the_program() {
        let known = Known::default();
        let evicted = PodEnd {
            disruption: Some(disruption("Evicted")),
            ..killed()
        };
        let by_eviction = Verdict::Disrupted(disruption("Evicted"));
        assert_eq!(verdict(PodFate::Ended(evicted), &known), by_eviction);
        let oom = PodEnd {
            out_of_memory: true,
            ..killed()
        };
        assert!(matches!(verdict(PodFate::Ended(oom), &known), Verdict::Exited(exit) if exit.oom));
        let preempted = Known {
            disruption: Some(disruption("preempted")),
            ..Known::default()
        };
        let by_preemption = Verdict::Disrupted(disruption("preempted"));
        assert_eq!(verdict(PodFate::Ended(killed()), &preempted), by_preemption);
        assert_eq!(verdict(PodFate::Deleted, &preempted), by_preemption);
    }

    #[test]
    fn a_pod_that_wrote_more_than_it_may_has_failed() {
        let asked_to_exit = Known {
            disruption: Some(Disruption::by_unknown()),
            ..Known::default()
        };
        let greedy = PodEnd {
            used_too_much: true,
            message: Some("Evicted: too much".into()),
            ..killed()
        };
        let Verdict::Exited(exit) = verdict(PodFate::Ended(greedy), &asked_to_exit) else {
            panic!("it is its own fault");
        };
        assert_eq!(exit.message.as_deref(), Some("Evicted: too much"));
    }

    #[test]
    fn a_deleted_pod_is_distinguished_from_one_whose_node_is_gone() {
        let words = |known: &Known| match verdict(PodFate::Deleted, known) {
            Verdict::Lost(words) => words,
            other => panic!("{other:?}"),
        };
        assert_eq!(words(&Known::default()), "its pod was deleted by someone else");
        let gone = Known {
            gone_node: Some("node2".into()),
            ..Known::default()
        };
        assert_eq!(words(&gone), "its node `node2` is gone");
    }

    #[test]
    fn a_stopped_pod_may_be_gone() {
        let stopped = Known {
            stopped: true,
            ..Known::default()
        };
        assert_eq!(verdict(PodFate::Deleted, &stopped), Verdict::Stopped);
        assert_eq!(verdict(PodFate::NodeLost("n".into()), &stopped), Verdict::Stopped);
    }

    fn stored(text: &str) -> Piece {
        Piece::Chunk(Chunk {
            offset: 0,
            stamp: 0,
            stream: Stream::Output,
            bytes: text.into(),
        })
    }

    #[test]
    fn the_kubelets_copy_keeps_its_offset_in_the_log() {
        let printed = b"one\npaddle launch: the link broke\ntwo\nthree";
        let whole = (0, b"one\ntwo\nthree".to_vec());
        assert_eq!(
            placed(printed, Some(&stored("one\n"))),
            std::slice::from_ref(&whole)
        );
        assert_eq!(placed(printed, None), [whole]);
        assert!(
            placed(printed, Some(&stored("zero\n"))).is_empty(),
            "it was rotated"
        );
        let rotated = b"nine\npaddle launch: the output continues at byte 1000\nten\n";
        let parts = [(995, b"nine\n".to_vec()), (1000, b"ten\n".to_vec())];
        assert_eq!(placed(rotated, Some(&stored("zero\n"))), parts);
    }

    #[test]
    fn a_link_in_the_path_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("runs/a")).unwrap();
        std::os::unix::fs::symlink("/etc", home.path().join("runs/b")).unwrap();
        assert!(open_beneath(home.path(), Path::new("runs/a")).is_ok());
        assert!(open_beneath(home.path(), Path::new("runs/b")).is_err());
        assert!(open_beneath(home.path(), Path::new("../..")).is_err());
    }
}
