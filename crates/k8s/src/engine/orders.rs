//! The other orders: go, stop, clean, discard. If a launcher is not connected, its orders are sent when it connects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::News;
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::link::FromServer;
use paddlecloud_worker::protocol::Command;

use super::Inner;
use super::cluster::CallError;
use super::made::Made;
use super::obstacles::Refusal;
use super::records::PodRecord;
use super::table::Stop;
use crate::names;

/// How long after its grace period an attempt may still take to end.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Starts a trainer's program.
pub async fn go(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let plan = inner.plan(attempt).await;
    let mut table = inner.table();
    let lines = plan.map(|plan| table.preamble(&attempt.job, &plan));
    let Some(entry) = table.get_mut(attempt) else {
        return;
    };
    entry.go = true;
    match lines {
        Ok(lines) => entry.send(FromServer::Command(Command::Go { lines })),
        Err(error) => {
            tracing::warn!(?attempt, %error, "no plan for an order; its launcher must connect again");
            // Closes the connection.
            entry.link = None;
            entry.silent_since = Some(Instant::now());
        }
    }
}

/// Stops an attempt: through its launcher if that is connected, otherwise by deleting its pod. One that is queued ends
/// immediately.
pub async fn stop(inner: &Arc<Inner>, attempt: &AttemptKey, grace: Duration) {
    if inner.table().take_from_queue(attempt) {
        return inner.end(attempt, never_started(), None).await;
    }
    let (pod, uid, seconds) = {
        let mut table = inner.table();
        let Some(entry) = table.get_mut(attempt).filter(|entry| !entry.news.is_end()) else {
            return;
        };
        let now = Instant::now();
        let overdue = entry.stop.is_some_and(|stop| stop.due <= now);
        let due = now + grace.saturating_add(STOP_MARGIN).min(Duration::from_secs(86_400));
        let earlier = entry.stop.map_or(due, |stop| stop.due.min(due));
        entry.stop = Some(Stop { grace, due: earlier });
        let grace_ms = u64::try_from(grace.as_millis()).ok();
        entry.send(FromServer::Command(Command::Stop { grace_ms }));
        if entry.link.is_some() && !overdue {
            return;
        }
        let seconds = match overdue {
            true => 0,
            false => u32::try_from(grace.as_secs()).unwrap_or(u32::MAX),
        };
        (entry.pod.clone(), entry.uid.clone(), seconds)
    };
    delete_pod(inner, attempt, &pod, uid, seconds).await;
}

pub async fn delete_pod(
    inner: &Arc<Inner>,
    attempt: &AttemptKey,
    pod: &PodRecord,
    uid: Option<String>,
    grace: u32,
) {
    let deleted = inner
        .cluster
        .delete_pod(&pod.namespace, &pod.name, uid, grace)
        .await;
    let refused = deleted.as_ref().err().and_then(CallError::lacking_right);
    if let Some(entry) = inner.table().get_mut(attempt) {
        let since = entry.refusal.take().map(|refusal| refusal.since);
        entry.refusal = refused.map(|message| Refusal {
            since: since.unwrap_or_else(Timestamp::now),
            message: message.to_owned(),
        });
    }
    if let Err(error) = deleted {
        tracing::warn!(?attempt, %error, "a pod could not be deleted");
    }
}

/// Forgets an attempt and, with the last one of a run, deletes all objects of the run.
pub async fn clean(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let Some(entry) = inner.table().remove(attempt) else {
        return;
    };
    if !entry.news.is_end() {
        entry.send(FromServer::Leave {
            reason: "the attempt has ended".into(),
        });
        delete_pod(inner, attempt, &entry.pod, entry.uid.clone(), 0).await;
        let closed = attempt.clone();
        let closing = move |inner: &Inner| {
            let end = inner.logs.reader(&closed).length()?;
            inner.logs.close(&closed, end)
        };
        if let Ok(Err(error)) = inner.blocking(closing).await {
            tracing::warn!(?attempt, %error, "a log could not be closed");
        }
    }
    delete_owner_of_last(inner, &attempt.job, &entry.pod).await;
    // Remove the record last: after a crash, an attempt with a record is cleaned again.
    let owned = attempt.clone();
    match inner.blocking(move |inner| inner.records.forget(&owned)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) | Err(error) => tracing::warn!(?attempt, %error, "a record could not be removed"),
    }
}

/// Deletes a run's owner, and so all objects of the run, unless an attempt remains. Retries while the API server is
/// unreachable: nothing else would ever delete them.
pub async fn delete_owner_of_last(inner: &Arc<Inner>, job: &JobId, pod: &PodRecord) {
    let turn = inner.owner_turn(job);
    let mut owner = turn.lock().await;
    if inner.table().has_job(job) {
        return;
    }
    let own = ObjectMeta {
        labels: Some(names::run_labels(&inner.settings.server, job)),
        ..ObjectMeta::default()
    };
    loop {
        let uid = owner.value.clone();
        let deleted = inner.cluster.delete_owner(&pod.namespace, &pod.owner, uid, &own);
        match deleted.await {
            Ok(()) => break,
            Err(error) if error.is_undecided() => {}
            Err(error) => {
                tracing::warn!(%job, %error, "the objects of a run could not be deleted");
                break;
            }
        }
    }
    *owner = Made::default();
    inner.forget_run(job);
}

/// Forgets a job whose attempts were cleaned.
pub fn discard(inner: &Inner, job: &JobId) {
    inner.forget_run(job);
}

/// The end of an attempt that was stopped before its launcher reported anything.
pub fn never_started() -> News {
    News::Exited(Exit {
        stopped: Some(true),
        ..Exit::unseen("stopped before it was started")
    })
}
