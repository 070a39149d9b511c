//! Watches the pods and nodes of the cluster. Nothing is listed periodically.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use paddlecloud_core::job::News;
use paddlecloud_core::ports::{AttemptKey, EngineEvent};
use paddlecloud_core::scheduler::NodeChange;
use tokio::sync::oneshot;

use super::own_pods::{
    begin_to_settle, is_of_server, outdate_scheduler, own_attempt, own_pod_changed, unknown_owner,
};
use super::pods::{self, PodView};
use super::records::Found;
use super::settle::PodFate;
use super::table::Attempt;
use super::{Inner, StartError, Tasks, orders};
use crate::settings::Namespaces;

/// Time limit for the first reply.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// A connection that is silent for this long is considered lost.
const WATCH_SECONDS: u32 = 290;

/// A client of the cluster that the kubeconfig names, or of the cluster in which this server runs.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, StartError> {
    let config_error = |error: &dyn std::error::Error| StartError::Config(chain(error));
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| config_error(&error))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| config_error(&error))?
        }
        None => Config::infer().await.map_err(|error| config_error(&error))?,
    };
    let client = Client::try_from(config).map_err(|error| config_error(&error))?;
    let answer = tokio::time::timeout(FIRST_ANSWER, client.apiserver_version()).await;
    match answer {
        Ok(Ok(version)) => tracing::info!(version = version.git_version, "connected to the cluster"),
        Ok(Err(error)) => return Err(StartError::Unreachable(chain(&error))),
        Err(_) => return Err(StartError::Unreachable("no answer within 30 s".into())),
    }
    Ok(client)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        source = cause.source();
    }
    words
}

impl Inner {
    /// Fills the table from the records of earlier servers.
    pub(super) async fn take_up_records(self: &Arc<Self>) -> Result<(), StartError> {
        let found = self.blocking(|inner| {
            let found = inner.records.list()?;
            // Readers may follow a log before its launcher is back.
            for Found { attempt, news, .. } in &found {
                if !news.as_ref().is_some_and(News::is_end)
                    && let Err(error) = inner.logs.begin(attempt)
                {
                    tracing::warn!(?attempt, %error, "a log cannot be continued");
                }
            }
            Ok::<_, StartError>(found)
        });
        let found = found.await??;
        let mut table = self.table();
        for found in found {
            let news = found.news.unwrap_or(News::Launched);
            let attempt = Attempt::new(found.worker, found.gang, found.pod, news);
            table.insert(found.attempt, attempt);
        }
        Ok(())
    }
}

/// Starts the watches, and returns when all existing objects are known.
pub async fn start(inner: &Arc<Inner>, client: Client, tasks: &Tasks) -> Result<(), StartError> {
    let options = || watcher::Config::default().timeout(WATCH_SECONDS);
    let mut known = Vec::new();
    if inner.settings.sees_cluster() {
        let nodes = Api::<Node>::all(client.clone());
        check_access(&nodes, "nodes").await?;
        let (known_sender, all_known) = oneshot::channel();
        let events = watcher(nodes, options()).default_backoff();
        tasks.spawn(follow(events, NodeWatch::new(inner), known_sender));
        known.push(all_known);
    }
    for namespace in watched_namespaces(&inner.settings.namespaces) {
        let pods = match &namespace {
            Some(name) => Api::<Pod>::namespaced(client.clone(), name),
            None => Api::<Pod>::all(client.clone()),
        };
        check_access(&pods, "pods").await?;
        let (known_sender, all_known) = oneshot::channel();
        let events = watcher(pods, options()).default_backoff();
        tasks.spawn(follow(events, PodWatch::new(inner, namespace), known_sender));
        known.push(all_known);
    }
    let all = async {
        for one in known {
            let _ = one.await;
        }
    };
    let in_time = tokio::time::timeout(FIRST_ANSWER, all).await;
    in_time.map_err(|_| StartError::Unreachable("nodes and pods are not listed within 30 s".into()))
}

/// All namespaces at once, or each given one.
fn watched_namespaces(namespaces: &Namespaces) -> BTreeSet<Option<String>> {
    match namespaces {
        Namespaces::PerUser => BTreeSet::from([None]),
        Namespaces::Given(given) => given.values().cloned().map(Some).collect(),
    }
}

/// A refused watch retries forever; one list request shows why it is refused.
async fn check_access<K>(api: &Api<K>, kind: &str) -> Result<(), StartError>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let asked = tokio::time::timeout(FIRST_ANSWER, api.list(&ListParams::default().limit(1))).await;
    match asked {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) => Err(StartError::Refused {
            kind: kind.to_owned(),
            message: status.message,
        }),
        Ok(Err(error)) => Err(StartError::Unreachable(chain(&error))),
        Err(_) => Err(StartError::Unreachable(format!(
            "{kind} are not listed within 30 s"
        ))),
    }
}

/// The reply to a question that every account may ask.
pub async fn answer<T>(what: &str, asked: impl Future<Output = kube::Result<T>>) -> Result<T, StartError> {
    match tokio::time::timeout(FIRST_ANSWER, asked).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(StartError::Unreachable(format!("{what}: {}", chain(&error)))),
        Err(_) => Err(StartError::Unreachable(format!("{what}: no answer within 30 s"))),
    }
}

/// Receives the changes of one kind of object.
trait Watch<K> {
    fn begin(&mut self);
    fn seen(&mut self, object: &K);
    fn gone(&mut self, object: &K);
    /// Every existing object was seen since `begin`.
    fn complete(&mut self);
    /// The API server refuses this watch; its message.
    fn refused(&self, message: String);
}

async fn follow<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    mut watch: impl Watch<K>,
    known: oneshot::Sender<()>,
) {
    let mut events = pin!(events);
    let mut known = Some(known);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => watch.begin(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => watch.seen(&object),
            Ok(Event::Delete(object)) => watch.gone(&object),
            Ok(Event::InitDone) => {
                watch.complete();
                if let Some(known) = known.take() {
                    let _ = known.send(());
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the cluster cannot be watched; trying again");
                if let Some(message) = lacking_right(error) {
                    watch.refused(message);
                }
            }
        }
    }
}

/// The API server's message, if this server may not watch.
fn lacking_right(error: watcher::Error) -> Option<String> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    (status.code == 403).then(|| status.message.clone())
}

struct NodeWatch {
    inner: Arc<Inner>,
    seen: HashSet<String>,
}

impl NodeWatch {
    fn new(inner: &Arc<Inner>) -> NodeWatch {
        NodeWatch {
            inner: Arc::clone(inner),
            seen: HashSet::new(),
        }
    }
}

fn announce(inner: &Inner, change: Option<NodeChange>) {
    if let Some(change) = change {
        inner.send(EngineEvent::Node(change));
    }
}

fn node_is_gone(inner: &Inner, name: &str) {
    let change = inner.room().remove_node(name);
    announce(inner, change);
    outdate_scheduler(inner, name);
}

impl Watch<Node> for NodeWatch {
    fn begin(&mut self) {
        self.seen.clear();
    }

    fn seen(&mut self, node: &Node) {
        let inner = &self.inner;
        self.seen.insert(node.name_any());
        let change = inner.room().set_node(node);
        announce(inner, change);
    }

    fn gone(&mut self, node: &Node) {
        let inner = &self.inner;
        node_is_gone(inner, &node.name_any());
    }

    fn complete(&mut self) {
        let inner = &self.inner;
        let known = inner.room().node_names();
        for name in known.iter().filter(|name| !self.seen.contains(*name)) {
            node_is_gone(inner, name);
        }
    }

    fn refused(&self, message: String) {
        self.inner.refused_watches().add(None, message, Timestamp::now());
    }
}

struct PodWatch {
    inner: Arc<Inner>,
    /// `None` for all namespaces.
    namespace: Option<String>,
    /// Pods of the list that is being received; `None` between lists.
    listed: Option<Listed>,
    /// Whether the attempts of earlier servers were compared with the cluster.
    compared: bool,
    /// Pods of this server whose records were lost, by uid. They hold room that no job of ours has.
    left_behind: HashSet<String>,
}

#[derive(Default)]
struct Listed {
    /// By uid.
    foreign: HashSet<String>,
    ours: HashSet<AttemptKey>,
    /// Owners of pods that this server must have created and does not know.
    unknown: BTreeSet<(String, String)>,
}

impl PodWatch {
    fn new(inner: &Arc<Inner>, namespace: Option<String>) -> PodWatch {
        PodWatch {
            inner: Arc::clone(inner),
            namespace,
            listed: None,
            compared: false,
            left_behind: HashSet::new(),
        }
    }

    /// A pod of somebody else, or one of this server whose attempt is over: its room was the job's, and is free as soon as
    /// the pod has ended.
    fn seen_without_attempt(&mut self, pod: &Pod) {
        if let Some(listed) = self.listed.as_mut().filter(|_| !self.compared)
            && let Some(owner) = unknown_owner(&self.inner.settings.server, &self.inner.table(), pod)
        {
            listed.unknown.insert(owner);
            self.left_behind.extend(pod.uid());
        }
        let is_left_behind = pod.uid().is_some_and(|uid| self.left_behind.contains(&uid));
        if is_left_behind || !is_of_server(&self.inner.settings.server, pod) {
            self.set_foreign(pod);
        }
    }

    fn set_foreign(&mut self, pod: &Pod) {
        if let Some(listed) = &mut self.listed {
            listed.foreign.extend(pod.uid());
        }
        let change = self.inner.room().set_foreign(pod);
        announce(&self.inner, change);
    }

    /// Attempts in the namespaces of this watch that the list did not contain.
    fn unseen(&self, listed: &Listed) -> Vec<(AttemptKey, bool)> {
        let table = self.inner.table();
        let unseen = table.iter().filter(|(key, entry)| {
            let here = self
                .namespace
                .as_ref()
                .is_none_or(|name| *name == entry.pod.namespace);
            here && !listed.ours.contains(key) && !entry.news.is_end()
        });
        unseen
            .map(|(key, entry)| (key.clone(), entry.pod.created))
            .collect()
    }
}

impl Watch<Pod> for PodWatch {
    fn begin(&mut self) {
        self.listed = Some(Listed::default());
    }

    fn seen(&mut self, pod: &Pod) {
        let Some(attempt) = own_attempt(&self.inner, pod) else {
            return self.seen_without_attempt(pod);
        };
        if let Some(listed) = &mut self.listed {
            listed.ours.insert(attempt.clone());
        }
        own_pod_changed(&self.inner, attempt, pod);
    }

    fn gone(&mut self, pod: &Pod) {
        let inner = &self.inner;
        let uid = pod.uid().unwrap_or_default();
        self.left_behind.remove(&uid);
        let change = inner.room().remove_foreign(&uid);
        announce(inner, change);
        if let Some(attempt) = own_attempt(inner, pod) {
            let fate = match pods::view(pod) {
                PodView::Ended(end) if pod.metadata.deletion_timestamp.is_none() => PodFate::Ended(end),
                _ => PodFate::Deleted,
            };
            begin_to_settle(inner, attempt, fate);
        }
    }

    fn complete(&mut self) {
        let inner = &self.inner;
        let listed = self.listed.take().unwrap_or_default();
        if self.namespace.is_none() {
            let known = inner.room().foreign_pods();
            for uid in known.iter().filter(|uid| !listed.foreign.contains(*uid)) {
                let change = inner.room().remove_foreign(uid);
                announce(inner, change);
            }
        }
        let first = !std::mem::replace(&mut self.compared, true);
        for (namespace, secret) in &listed.unknown {
            tracing::warn!(
                namespace,
                secret,
                "pods of a run that this server does not know; deleting this secret deletes them"
            );
        }
        for (attempt, created) in self.unseen(&listed) {
            match created {
                true => begin_to_settle(inner, attempt, PodFate::Deleted),
                // After the first list, a launch may be in progress.
                false if first => forget_never_made(inner, &attempt),
                false => {}
            }
        }
    }

    fn refused(&self, message: String) {
        let namespace = self.namespace.clone();
        self.inner
            .refused_watches()
            .add(namespace, message, Timestamp::now());
    }
}

/// An earlier server exited between the record and the pod: forget the attempt, so that it can be launched again.
fn forget_never_made(inner: &Arc<Inner>, attempt: &AttemptKey) {
    let Some(entry) = inner.table().remove(attempt) else {
        return;
    };
    if let Err(error) = inner.records.forget(attempt) {
        tracing::warn!(?attempt, %error, "a record could not be removed");
    }
    // Its owner may exist, and if the job was killed meanwhile, nothing else would delete it.
    let (inner, job) = (Arc::clone(inner), attempt.job.clone());
    tokio::spawn(async move { orders::delete_owner_of_last(&inner, &job, &entry.pod).await });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use paddlecloud_core::quantity::Cpu;
    use serde_json::json;

    use super::*;
    use crate::engine::link_tests::Server;
    use crate::names;

    fn pod(uid: &str, server: &str, is_ending: bool) -> Pod {
        let labels = [
            (names::SERVER, server),
            (names::RUN, "j_0000000000000000000"),
            (names::ROLE, "trainer"),
            (names::INDEX, "0"),
            (names::ATTEMPT, "1"),
        ];
        let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "the-owner", "uid": "1"});
        let ending = is_ending.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"uid": uid, "namespace": "ada", "name": uid, "labels": BTreeMap::from(labels),
                "ownerReferences": [owner], "deletionTimestamp": ending},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1"}}},
            ]},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn our_own_pods_are_not_counted_as_pods_of_others_while_they_end() {
        let server = Server::start().await;
        let node = json!({
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        server
            .inner
            .room()
            .set_node(&serde_json::from_value(node).unwrap());
        let taken = || server.inner.room().nodes()[0].taken.cpu;
        let mut watch = PodWatch::new(&server.inner, None);
        watch.begin();
        watch.seen(&pod("lost", "test", false));
        watch.complete();
        assert_eq!(taken(), Cpu::cores(1), "no record says whose room it is");
        watch.seen(&pod("lost", "test", true));
        watch.seen(&pod("killed", "test", false));
        watch.seen(&pod("killed", "test", true));
        assert_eq!(taken(), Cpu::cores(1), "its job has just ended");
        watch.seen(&pod("theirs", "another", true));
        assert_eq!(taken(), Cpu::cores(2));
        watch.gone(&pod("lost", "test", true));
        watch.gone(&pod("killed", "test", true));
        assert_eq!(taken(), Cpu::cores(1));
    }

    #[test]
    fn a_watch_without_the_right_to_it_is_distinguished_from_a_broken_one() {
        let answered = |code: u16| {
            let status = kube::core::Status::failure("words", "Reason").with_code(code);
            kube::Error::Api(status.boxed())
        };
        let refused = watcher::Error::WatchStartFailed(answered(403));
        assert_eq!(lacking_right(refused).as_deref(), Some("words"));
        assert!(lacking_right(watcher::Error::InitialListFailed(answered(403))).is_some());
        assert_eq!(
            lacking_right(watcher::Error::WatchStartFailed(answered(503))),
            None
        );
        assert_eq!(lacking_right(watcher::Error::NoResourceVersion), None);
    }
}
