//! What hinders workers that run or stop: rights that the server has lost, nodes that do not answer. Only reported here.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::job::some_of;
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::AttemptKey;

use super::Inner;
use super::nodes::Room;
use super::sweeping::node_is_silent;
use super::table::Attempt;

/// A refused watch is tried again within a minute. One that was refused longer ago than this works again.
const RETRIED_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// What the API server refuses, in its own words: they name the account, the verb, the resource and the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub since: Timestamp,
    pub message: String,
}

impl Refusal {
    fn sentence(&self) -> String {
        format!(
            "since {:.0} the cluster refuses a request of this server: {}; an administrator must grant the server this right \
             again",
            self.since, self.message
        )
    }
}

/// The watches that the API server refuses, by namespace (`None`: of the whole cluster) and message.
#[derive(Default)]
pub struct RefusedWatches(BTreeMap<(Option<String>, String), RefusedWatch>);

struct RefusedWatch {
    since: Timestamp,
    latest: Timestamp,
}

impl RefusedWatch {
    fn is_current(&self, now: Timestamp) -> bool {
        now.duration_since(self.latest) < RETRIED_WITHIN
    }
}

impl RefusedWatches {
    /// A watch was refused, for the first time or again.
    pub fn add(&mut self, namespace: Option<String>, message: String, now: Timestamp) {
        self.0.retain(|_, refused| refused.is_current(now));
        let first = RefusedWatch {
            since: now,
            latest: now,
        };
        self.0.entry((namespace, message)).or_insert(first).latest = now;
    }

    /// Current refusals that concern a namespace.
    fn in_namespace(&self, namespace: &str, now: Timestamp) -> Vec<Refusal> {
        let concerns = |of: &Option<String>| of.as_deref().is_none_or(|of| of == namespace);
        let current = self
            .0
            .iter()
            .filter(|((of, _), refused)| concerns(of) && refused.is_current(now));
        let refusal = |((_, message), refused): (&(Option<String>, String), &RefusedWatch)| Refusal {
            since: refused.since,
            message: message.clone(),
        };
        current.map(refusal).collect()
    }
}

/// What hinders the live attempts of a job, one sentence each.
pub fn of_job(inner: &Inner, job: &JobId, now: Timestamp) -> Vec<String> {
    // Always lock in this order.
    let table = inner.table();
    let room = inner.room();
    let watches = inner.refused_watches();
    let attempts = table.of_job(job);
    let live: Vec<_> = attempts.filter(|(_, entry)| !entry.news.is_end()).collect();
    sentences(&live, &room, &watches, now)
}

fn sentences(
    live: &[(&AttemptKey, &Attempt)],
    room: &Room,
    watches: &RefusedWatches,
    now: Timestamp,
) -> Vec<String> {
    let Some((_, first)) = live.first() else {
        return Vec::new();
    };
    // One is enough: they differ only in the names of the pods.
    let refusals = live.iter().filter_map(|(_, entry)| entry.refusal.clone());
    let refusal = refusals.min_by_key(|refusal| refusal.since);
    let unwatched = watches.in_namespace(&first.pod.namespace, now);
    let refused = refusal.into_iter().chain(unwatched);
    let mut sentences: Vec<String> = refused.map(|refusal| refusal.sentence()).collect();
    for (node, workers) in silent_nodes(live, room) {
        sentences.push(format!(
            "node `{node}` does not answer; the cluster is removing its pods: {}",
            some_of(&workers)
        ));
    }
    sentences
}

/// Nodes whose kubelets are silent, with the workers whose pods are marked for deletion. Only a kubelet can end them.
fn silent_nodes<'a>(live: &[(&AttemptKey, &'a Attempt)], room: &Room) -> BTreeMap<&'a str, Vec<String>> {
    let mut nodes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, entry) in live {
        if let Some(node) = &entry.node
            && entry.disruption.is_some()
            && node_is_silent(entry, room)
        {
            nodes.entry(node).or_default().push(key.worker.to_string());
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::job::WorkerKey;

    use super::*;
    use crate::engine::pods::Disruption;
    use crate::engine::sweeping::tests::entry;
    use crate::engine::table::Stage;

    const WATCH: &str = "pods is forbidden: User \"paddle\" cannot watch resource \"pods\" in API group \"\" \
                         in the namespace \"ada\"";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn trainer(index: u32) -> AttemptKey {
        AttemptKey {
            job: JobId::new(1, 2),
            worker: WorkerKey::trainer(index),
            attempt: 1,
        }
    }

    fn said(attempt: &Attempt, watches: &RefusedWatches, now: Timestamp) -> String {
        sentences(&[(&trainer(0), attempt)], &Room::default(), watches, now).join("\n")
    }

    #[test]
    fn a_refused_deletion_names_the_right_and_what_to_do() {
        let mut stopping = entry(Stage::Running);
        assert_eq!(said(&stopping, &RefusedWatches::default(), at(60)), "");
        stopping.refusal = Some(Refusal {
            since: at(0),
            message: "pods \"a-trainer-1\" is forbidden: User \"paddle\" cannot delete resource \"pods\""
                .into(),
        });
        assert_eq!(
            said(&stopping, &RefusedWatches::default(), at(60)),
            "since 1970-01-01T00:00:00Z the cluster refuses a request of this server: pods \"a-trainer-1\" is forbidden: \
             User \"paddle\" cannot delete resource \"pods\"; an administrator must grant the server this right again"
        );
    }

    #[test]
    fn a_refused_watch_is_shown_in_its_namespace_until_it_works_again() {
        let mut watches = RefusedWatches::default();
        watches.add(Some("ada".into()), WATCH.into(), at(0));
        watches.add(Some("ada".into()), WATCH.into(), at(60));
        let mut running = entry(Stage::Running);
        let shown = said(&running, &watches, at(100));
        let expected =
            format!("since 1970-01-01T00:00:00Z the cluster refuses a request of this server: {WATCH};");
        assert!(shown.starts_with(&expected), "{shown}");
        assert_eq!(said(&running, &watches, at(181)), "", "it is not refused again");
        running.pod.namespace = "bob".into();
        assert_eq!(said(&running, &watches, at(100)), "");
        watches.add(None, "nodes is forbidden".into(), at(100));
        assert!(said(&running, &watches, at(100)).contains("nodes is forbidden"));
    }

    #[test]
    fn a_silent_node_whose_pods_are_being_removed_is_named() {
        let watches = RefusedWatches::default();
        let mut running = entry(Stage::Running);
        running.out_of_sight = true;
        assert_eq!(said(&running, &watches, at(0)), "", "its workers may continue");
        running.disruption = Some(Disruption::by_unknown());
        assert_eq!(
            said(&running, &watches, at(0)),
            "node `node2` does not answer; the cluster is removing its pods: trainer 0"
        );
        running.out_of_sight = false;
        assert_eq!(said(&running, &watches, at(0)), "", "its kubelet ends the pod");
    }
}
