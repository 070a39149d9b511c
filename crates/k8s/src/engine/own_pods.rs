//! Pods of this server: handles their changes, and ends attempts whose pods do not run.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::News;
use paddlecloud_core::ports::AttemptKey;

use super::pods::{self, PodView};
use super::settle::{PodFate, settle};
use super::table::Stage;
use super::{Inner, orders};
use crate::names;

/// The attempt of a pod, if this server created the pod and the attempt is in its table.
pub fn own_attempt(inner: &Inner, pod: &Pod) -> Option<AttemptKey> {
    if !is_labelled(inner, pod) {
        return None;
    }
    names::attempt_of(pod.labels()).filter(|attempt| inner.table().contains(attempt))
}

fn is_labelled(inner: &Inner, pod: &Pod) -> bool {
    pod.labels().get(names::SERVER) == Some(&inner.settings.server)
}

/// The owner of a pod of this server that is in none of its records: they were lost, and a backup has not brought them
/// back. A run that is being deleted has no records either.
pub fn unknown_owner(inner: &Inner, pod: &Pod) -> Option<(String, String)> {
    let is_left = is_labelled(inner, pod) && pod.metadata.deletion_timestamp.is_none();
    let owner = pod.owner_references().first().filter(|_| is_left)?;
    Some((pod.namespace()?, owner.name.clone()))
}

/// Updates the state of a pod's attempt and reports what concerns the job.
pub fn own_pod_changed(inner: &Arc<Inner>, attempt: AttemptKey, pod: &Pod) {
    let view = match pods::view(pod) {
        // Volcano reports nothing about a pod whose gang it has not admitted.
        PodView::Pending(None) if inner.settings.placement.is_handed_over() && pods::node(pod).is_none() => {
            PodView::Unseated("it has no node".to_owned())
        }
        view => view,
    };
    let news = match inner.table().get_mut(&attempt) {
        Some(entry) => {
            let had_no_seat = matches!(entry.news, News::Unseated(_));
            entry.uid = pod.uid();
            entry.pod.created = true;
            entry.node = pods::node(pod).map(str::to_owned);
            entry.disruption = pods::disruption(pod);
            entry.out_of_sight = pods::is_out_of_sight(pod);
            match &view {
                PodView::Unseated(why) => entry.enter(Stage::Unseated(why.clone())),
                PodView::Pending(trouble) => {
                    let words = trouble.as_ref().map(|trouble| trouble.words.clone());
                    entry.enter(Stage::Pending(words));
                }
                PodView::Running => entry.enter(Stage::Running),
                PodView::Ended(_) => {}
            }
            match &view {
                PodView::Unseated(why) => Some(News::Unseated(why.clone())),
                PodView::Pending(_) | PodView::Running if had_no_seat && entry.node.is_some() => {
                    Some(News::Seated(String::new()))
                }
                _ => None,
            }
        }
        None => None,
    };
    if let Some(news) = news {
        inner.report_waiting(&attempt, news);
    }
    match view {
        PodView::Ended(end) => begin_to_settle(inner, attempt, PodFate::Ended(end)),
        PodView::Pending(Some(trouble)) if trouble.hopeless => {
            let end = News::Exited(Exit::unseen(trouble.words));
            tokio::spawn(give_up(Arc::clone(inner), attempt, end));
        }
        PodView::Unseated(_) | PodView::Pending(_) | PodView::Running => {}
    }
}

/// Ends an attempt whose pod does not run but holds room.
pub async fn give_up(inner: Arc<Inner>, attempt: AttemptKey, end: News) {
    let pod = {
        let mut table = inner.table();
        let Some(entry) = table.get_mut(&attempt).filter(|entry| !entry.is_over()) else {
            return;
        };
        entry.settling = true;
        (entry.pod.clone(), entry.uid.clone())
    };
    orders::delete_pod(&inner, &attempt, &pod.0, pod.1, 0).await;
    inner.end(&attempt, end, None).await;
}

/// Starts to determine what the end of a pod means, once per attempt.
pub fn begin_to_settle(inner: &Arc<Inner>, attempt: AttemptKey, fate: PodFate) {
    let mut table = inner.table();
    let Some(entry) = table.get_mut(&attempt).filter(|entry| !entry.is_over()) else {
        return;
    };
    entry.settling = true;
    tokio::spawn(settle(Arc::clone(inner), attempt, fate));
}
