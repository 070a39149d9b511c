//! Detects what the cluster does not report: a pod that gets no node, one that is stuck, a node that is silent.
//!
//! Asks the API server only about pods that have waited for long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::News;
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::protocol;

use super::Inner;
use super::nodes::Room;
use super::own_pods::{begin_to_settle, give_up};
use super::settle::PodFate;
use super::table::{Attempt, Stage, Table};
use crate::names;
use crate::render::gang;
use crate::settings::{Limits, Placement};

/// How long the reason for the end of a pod may take: a kubelet reports it when all containers have ended.
const REASON_LIMIT: Duration = Duration::from_secs(10);
const SLOWEST: Duration = Duration::from_secs(1);
const FASTEST: Duration = Duration::from_millis(100);
/// A call that fails once is not worth a word.
const WORTH_A_WORD: Duration = Duration::from_secs(2);

/// Events of a pod whose volumes or sandbox cannot be set up. Sandbox failures are its node's fault.
const UNMOUNTED: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedMapVolume"];
const NO_SANDBOX: [&str; 2] = ["FailedCreatePodSandBox", "NetworkNotReady"];
/// Events in which autoscalers report what they do for a pod.
const SCALE_UP: [&str; 3] = ["TriggeredScaleUp", "NotTriggerScaleUp", "Nominated"];

/// The action that is due for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    /// It got no node in time.
    NoSeat(String),
    /// It has no node: the provisioner may have reported why.
    AskForSeat(String),
    /// Its pod is stuck for a reason in its status.
    Failed(String),
    /// Its pod is stuck, and only the events contain the reason.
    AskEvents,
    /// Its pod runs, and its launcher has never connected.
    Unreached,
    /// Its launcher was asked to exit and has reported the end of its program.
    Ended(Box<protocol::Exit>),
    /// Neither its launcher nor its node's kubelet responds.
    NodeLost(String),
}

/// Checks all attempts periodically.
pub async fn sweep(inner: Arc<Inner>) {
    let Limits {
        seat, lost, trouble, ..
    } = inner.limits;
    let pace = seat.min(lost).min(trouble) / 4;
    let mut ticks = tokio::time::interval(pace.clamp(FASTEST, SLOWEST));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (attempt, due) in all_due(&inner) {
            tokio::spawn(act(Arc::clone(&inner), attempt, due));
        }
        if let Some(trouble) = inner.cluster.trouble() {
            let waiting = not_created(&inner.table());
            for attempt in waiting {
                inner.report_waiting(&attempt, News::Unseated(trouble.clone()));
            }
        }
    }
}

/// Attempts whose pods the API server has not accepted for a while, and of which nothing was reported: one of each job.
fn not_created(table: &Table) -> Vec<AttemptKey> {
    let waits = table.iter().filter(|(_, entry)| {
        let waiting = matches!(entry.stage, Stage::Queued | Stage::Unmade) && !entry.pod.created;
        waiting && entry.news == News::Launched && entry.since.elapsed() >= WORTH_A_WORD
    });
    let mut first: Vec<AttemptKey> = waits.map(|(key, _)| key.clone()).collect();
    first.dedup_by(|next, first| next.job == first.job);
    first
}

fn all_due(inner: &Inner) -> Vec<(AttemptKey, Due)> {
    // Always lock in this order.
    let mut table = inner.table();
    let room = inner.room();
    let now = Instant::now();
    let mut found = Vec::new();
    for (key, entry) in table.iter_mut() {
        let silent = node_is_silent(entry, &room);
        if let Some(due) = due(entry, silent, &inner.settings.placement, &inner.limits, now) {
            if matches!(due, Due::AskForSeat(_) | Due::AskEvents | Due::Unreached) {
                entry.asked = Some(now);
            }
            found.push((key.clone(), due));
        }
    }
    found
}

/// Whether the kubelet of an attempt's node is silent.
pub fn node_is_silent(entry: &Attempt, room: &Room) -> bool {
    match entry.node.as_deref() {
        Some(node) => room.is_silent(node).unwrap_or(entry.out_of_sight),
        None => false,
    }
}

fn due(
    entry: &Attempt,
    node_is_silent: bool,
    placement: &Placement,
    limits: &Limits,
    now: Instant,
) -> Option<Due> {
    if entry.is_over() {
        return None;
    }
    if let Some((exit, since)) = &entry.unexplained
        && (entry.is_explained() || now.saturating_duration_since(*since) >= REASON_LIMIT)
    {
        return Some(Due::Ended(Box::new(exit.clone())));
    }
    let waited = now.saturating_duration_since(entry.since);
    let long_ago = |since: Option<Instant>, limit| {
        since.is_none_or(|since| now.saturating_duration_since(since) >= limit)
    };
    let silent = entry
        .silent_since
        .is_some_and(|since| now.saturating_duration_since(since) >= limits.lost);
    if node_is_silent && silent {
        return Some(Due::NodeLost(entry.node.clone().unwrap_or_default()));
    }
    match &entry.stage {
        // No node helps if the claim does not exist.
        Stage::Unseated(why)
            if why.contains("persistentvolumeclaim") && waited >= limits.trouble.min(limits.seat) =>
        {
            Some(Due::Failed(why.clone()))
        }
        Stage::Unseated(why) => {
            // A restarted worker waits for room, unless it is pinned to a node that another pod has filled. The conductor
            // withdraws its job if others need the room of its other workers (`recovery_limit`).
            let may_wait = placement.is_handed_over() || entry.pod.is_restart && !entry.pod.pinned;
            if waited >= limits.seat && !may_wait {
                return Some(Due::NoSeat(why.clone()));
            }
            let asks = *placement != Placement::Pinned && long_ago(entry.asked, limits.trouble);
            asks.then(|| Due::AskForSeat(why.clone()))
        }
        Stage::Pending(_) if waited < limits.trouble || entry.node.is_none() => None,
        Stage::Pending(Some(trouble)) => Some(Due::Failed(trouble.clone())),
        Stage::Pending(None) => long_ago(entry.asked, limits.trouble).then_some(Due::AskEvents),
        Stage::Running => {
            let unreached = entry.is_awaited() && entry.link.is_none() && waited >= limits.trouble / 4;
            (unreached && entry.asked.is_none()).then_some(Due::Unreached)
        }
        Stage::Queued | Stage::Unmade => None,
    }
}

async fn act(inner: Arc<Inner>, attempt: AttemptKey, due: Due) {
    match due {
        Due::NoSeat(why) => {
            let restart = inner
                .table()
                .get(&attempt)
                .is_some_and(|entry| entry.pod.is_restart);
            let end = match restart {
                true => inner.disrupted(&attempt, format!("its place was taken: {why}")),
                false => News::NoRoom(why),
            };
            give_up(inner, attempt, end).await;
        }
        Due::AskForSeat(why) => {
            if let Some(answer) = answer(&inner, &attempt).await {
                let text = match answer.contains(&why) {
                    true => answer,
                    false => format!("{answer} ({why})"),
                };
                inner.report_waiting(&attempt, News::Unseated(text));
            }
        }
        Due::Failed(words) => give_up(inner, attempt, News::Exited(Exit::unseen(words))).await,
        Due::AskEvents => ask_events(inner, attempt).await,
        Due::Unreached => {
            let words = format!(
                "its pod runs, but has not reached this server at {} (`kubernetes.link.address`)",
                inner.settings.link
            );
            inner.report_waiting(&attempt, News::Seated(Some(words)));
        }
        Due::Ended(exit) => match inner.record_exit(&attempt, *exit).await {
            Ok(answer) => {
                if let Some(entry) = inner.table().get(&attempt) {
                    entry.send(answer);
                }
            }
            Err(error) => tracing::warn!(?attempt, %error, "an end could not be recorded; trying again"),
        },
        Due::NodeLost(node) => {
            let limit = inner.limits.lost.as_secs();
            let words = format!("its node `{node}` is lost: no sign of the node or the worker for {limit} s");
            inner.blame(&attempt, Some(node));
            begin_to_settle(&inner, attempt, PodFate::NodeLost(words));
        }
    }
}

/// What the system that provides seats reports about a pod.
async fn answer(inner: &Arc<Inner>, attempt: &AttemptKey) -> Option<String> {
    let (pod, uid) = pod_of(inner, attempt)?;
    if let Some(kind) = gang::answers_in(&inner.settings.placement) {
        let group = names::group(&attempt.job);
        let found = inner.cluster.find_dynamic(&pod.namespace, &group, &kind).await?;
        return gang::answer(&found);
    }
    let events = inner.cluster.events(&pod.namespace, &uid).await.ok()?;
    let mut of_autoscaler = events
        .into_iter()
        .filter(|(reason, _)| SCALE_UP.contains(&reason.as_str()));
    of_autoscaler
        .next_back()
        .map(|(reason, words)| format!("{reason}: {words}"))
}

fn pod_of(inner: &Inner, attempt: &AttemptKey) -> Option<(super::records::PodRecord, String)> {
    let table = inner.table();
    let entry = table.get(attempt)?;
    Some((entry.pod.clone(), entry.uid.clone()?))
}

/// A pod that is pending for long may be pulling an image. If its volumes do not mount, only its events say so.
async fn ask_events(inner: Arc<Inner>, attempt: AttemptKey) {
    let Some((pod, uid)) = pod_of(&inner, &attempt) else {
        return;
    };
    let events = match inner.cluster.events(&pod.namespace, &uid).await {
        Ok(events) => events,
        Err(error) => return tracing::warn!(?attempt, %error, "the events of a pod cannot be read"),
    };
    let Some((reason, words)) = events.into_iter().next_back() else {
        return;
    };
    let words = format!("{reason}: {words}");
    if UNMOUNTED.contains(&reason.as_str()) {
        give_up(inner, attempt, News::Exited(Exit::unseen(words))).await;
    } else if NO_SANDBOX.contains(&reason.as_str()) {
        let node = inner.table().get(&attempt).and_then(|entry| entry.node.clone());
        inner.blame(&attempt, node);
        let end = inner.disrupted(&attempt, words);
        give_up(inner, attempt, end).await;
    }
}

#[cfg(test)]
pub(super) mod tests;
