//! Pods of this server: handles their changes, and ends attempts whose pods do not run.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::News;
use paddlecloud_core::ports::{AttemptKey, EngineEvent};

use super::pods::{self, PodView};
use super::settle::{PodFate, report_end};
use super::table::{Stage, Table};
use super::{Inner, orders};
use crate::names;
use crate::render::is_pinned;

/// The attempt of a pod, if this server created the pod and the attempt is in its table.
pub fn own_attempt(inner: &Inner, pod: &Pod) -> Option<AttemptKey> {
    if !is_of_server(&inner.settings.server, pod) {
        return None;
    }
    names::attempt_of(pod.labels()).filter(|attempt| inner.table().contains(attempt))
}

/// Whether a pod has the label of this server.
pub fn is_of_server(server: &str, pod: &Pod) -> bool {
    pod.labels().get(names::SERVER).is_some_and(|of| of == server)
}

/// The owner of a pod of this server whose job is in none of its records: they were lost, and a backup has not brought
/// them back. A run that is being deleted has no records either. A job that runs has some, but not of workers that
/// succeeded nor of earlier attempts.
pub fn unknown_owner(server: &str, table: &Table, pod: &Pod) -> Option<(String, String)> {
    let is_known = names::attempt_of(pod.labels()).is_some_and(|attempt| table.has_job(&attempt.job));
    let is_left = is_of_server(server, pod) && pod.metadata.deletion_timestamp.is_none() && !is_known;
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
    let mut moved_to = None;
    let news = match inner.table().get_mut(&attempt) {
        Some(entry) => {
            let had_no_seat = matches!(entry.news, News::Unseated(_));
            // Only the first: an image that cannot be pulled alternates between two reasons.
            let trouble_reported = matches!(entry.news, News::Seated(Some(_)));
            entry.uid = pod.uid();
            entry.pod.created = true;
            let node = pods::node(pod).map(str::to_owned);
            if entry.node != node && inner.settings.pins() && !is_pinned(pod) {
                moved_to.clone_from(&node);
            }
            entry.node = node;
            entry.disruption = pods::disruption(pod).or(entry.disruption.take());
            entry.is_deleted = pod.metadata.deletion_timestamp.is_some();
            entry.out_of_sight = pods::is_out_of_sight(pod);
            let is_outdated = |why: &String| entry.outdated.as_ref() == Some(why);
            let repeats = matches!(&view, PodView::Unseated(why) if is_outdated(why));
            if !repeats {
                entry.outdated = None;
            }
            match &view {
                PodView::Unseated(_) if repeats => {}
                PodView::Unseated(why) => entry.enter(Stage::Unseated(why.clone())),
                PodView::Pending(trouble) => {
                    let words = trouble.as_ref().map(|trouble| trouble.words.clone());
                    entry.enter(Stage::Pending(words));
                }
                PodView::Running => entry.enter(Stage::Running),
                PodView::Ended(_) => {}
            }
            match &view {
                PodView::Unseated(_) if repeats => None,
                PodView::Unseated(why) => Some(News::Unseated(why.clone())),
                PodView::Pending(Some(trouble)) if entry.node.is_some() && !trouble_reported => {
                    Some(News::Seated(Some(trouble.words.clone())))
                }
                PodView::Pending(_) | PodView::Running if had_no_seat && entry.node.is_some() => {
                    Some(News::Seated(None))
                }
                _ => None,
            }
        }
        None => None,
    };
    // Our scheduler counts a pod on the node it chose, and a restarted one where the cluster put it.
    if let Some(node) = moved_to {
        inner.send(EngineEvent::Moved {
            attempt: attempt.clone(),
            node: node.as_str().into(),
        });
    }
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

/// A node was removed: what the scheduler said of pods without a node may count it, and stays in their status until the
/// scheduler tries them again, which may take minutes.
pub fn outdate_scheduler(inner: &Inner, node: &str) {
    let words =
        format!("no node had room for it, and node `{node}` was removed since the scheduler last tried");
    let mut waiting = Vec::new();
    for (key, entry) in inner.table().iter_mut() {
        match &entry.stage {
            // The missing claim is not a matter of nodes.
            Stage::Unseated(why) if !entry.is_over() && !why.contains("persistentvolumeclaim") => {
                entry.outdated.get_or_insert(why.clone());
                entry.enter(Stage::Unseated(words.clone()));
                waiting.push(key.clone());
            }
            _ => {}
        }
    }
    for attempt in waiting {
        inner.report_waiting(&attempt, News::Unseated(words.clone()));
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
    tokio::spawn(report_end(Arc::clone(inner), attempt, fate));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use paddlecloud_core::job::WorkerKey;
    use paddlecloud_core::names::JobId;
    use serde_json::json;

    use super::*;
    use crate::engine::link_tests::{self, Server};
    use crate::engine::sweeping::tests::entry;
    use crate::settings::{Placement, Settings};

    #[tokio::test]
    async fn what_the_scheduler_said_before_a_node_was_removed_is_not_repeated() {
        let server = Server::start().await;
        let inner = &server.inner;
        let attempt = server.launch(1).remove(0);
        let pod = |why: &str| -> Pod {
            let unscheduled = json!({"type": "PodScheduled", "status": "False", "message": why});
            serde_json::from_value(json!({
                "metadata": {"name": "a-trainer-1"},
                "status": {"phase": "Pending", "conditions": [unscheduled]},
            }))
            .unwrap()
        };
        let said = || {
            let news = inner.table().get(&attempt).unwrap().news.clone();
            match news {
                News::Unseated(why) => why,
                other => panic!("{other:?}"),
            }
        };
        let old = "0/2 nodes are available: 2 Insufficient cpu.";
        own_pod_changed(inner, attempt.clone(), &pod(old));
        assert_eq!(said(), old);
        outdate_scheduler(inner, "node2");
        let removed = "no node had room for it, and node `node2` was removed since the scheduler last tried";
        assert_eq!(said(), removed);
        own_pod_changed(inner, attempt.clone(), &pod(old));
        assert_eq!(said(), removed, "the pod's status still has the old words");
        let new = "0/1 nodes are available: 1 Insufficient cpu.";
        own_pod_changed(inner, attempt.clone(), &pod(new));
        assert_eq!(said(), new);
    }

    /// The node to which the seat of a worker moves when its pod runs on another one than before.
    async fn moved_to(placement: Placement, affinity: serde_json::Value) -> Option<String> {
        let settings = Settings {
            placement,
            ..link_tests::settings()
        };
        let server = Server::with(settings).await;
        let attempt = server.launch(1).remove(0);
        let pod = json!({
            "metadata": {"name": "a-trainer-1"},
            "spec": {"nodeName": "node3", "containers": [], "affinity": affinity},
            "status": {"phase": "Running"},
        });
        own_pod_changed(&server.inner, attempt, &serde_json::from_value(pod).unwrap());
        let event = server.inner.incoming.lock().await.try_recv();
        match event {
            Ok(EngineEvent::Moved { node, .. }) => Some(node.to_string()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    #[tokio::test]
    async fn a_seat_moves_only_if_our_scheduler_counts_nodes_and_did_not_choose_this_one() {
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["node3"]});
        let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        let pin = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        let none = || json!({});
        let restarted = moved_to(Placement::Pinned, none()).await;
        assert_eq!(restarted.as_deref(), Some("node3"));
        assert_eq!(moved_to(Placement::Pinned, pin).await, None, "the seat is there");
        let queue = || "q".to_owned();
        for placement in [
            Placement::OnDemand,
            Placement::Kueue { queue: queue() },
            Placement::Volcano { queue: queue() },
        ] {
            // All seats are on the one node that stands for the cluster.
            assert_eq!(moved_to(placement, none()).await, None);
        }
    }

    #[test]
    fn a_pod_is_unknown_only_if_its_whole_job_is() {
        let pod = |server: &str, job: &str| -> Pod {
            let labels = [
                (names::SERVER, server),
                (names::RUN, job),
                (names::ROLE, "trainer"),
                (names::INDEX, "0"),
                (names::ATTEMPT, "1"),
            ];
            let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "the-owner", "uid": "1"});
            serde_json::from_value(json!({"metadata": {
                "namespace": "ada", "name": "a-trainer-1", "labels": BTreeMap::from(labels), "ownerReferences": [owner],
            }}))
            .unwrap()
        };
        let (runs, lost) = (JobId::new(1, 1), JobId::new(1, 2));
        let mut table = Table::default();
        let second_trainer = AttemptKey {
            job: runs.clone(),
            worker: WorkerKey::trainer(1),
            attempt: 1,
        };
        table.insert(second_trainer, entry(Stage::Running));
        let unknown = |pod: &Pod| unknown_owner("ours", &table, pod);
        let owner = Some(("ada".to_owned(), "the-owner".to_owned()));
        assert_eq!(unknown(&pod("ours", lost.as_str())), owner);
        assert_eq!(unknown(&pod("theirs", lost.as_str())), None);
        assert_eq!(
            unknown(&pod("ours", runs.as_str())),
            None,
            "its first trainer has succeeded and was cleaned"
        );
    }
}
