//! Calls to the API server. Objects are created and deleted; only quotas are changed. Each call may be repeated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::AsyncReadExt as _;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, ResourceQuota, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::names;
use crate::render::tenancy::{FENCE, Tenant};

/// How long one call may take: longer than any webhook may, so that the API server says which one hangs.
const CALL_LIMIT: Duration = Duration::from_secs(35);
/// How many calls may be in flight. More would not be faster: each needs a connection, and the API server queues them.
const CALLS_AT_ONCE: usize = 64;
/// How long the cluster may take to delete what belonged to a deleted owner.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(30);
const LEFTOVER_PAUSE: Duration = Duration::from_millis(100);
/// How long it may take until every API server knows a new binding; each of several follows the store by itself.
const BINDING_LIMIT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Most bytes that are read of what a kubelet has of a container's output; kubelets rotate at 10 MiB.
const MOST_PRINTED: u64 = 256 << 20;

/// Why a call to the API server failed, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The API server was unreachable or too busy.
    #[error("the cluster's API server cannot be reached: {0}")]
    Unreachable(String),
    /// Our token has expired or cannot be renewed, or our account is gone; an administrator can change that.
    #[error("this server has no valid credentials for the cluster's API server: {0}")]
    NoCredentials(String),
    /// The API server or our client has a fault.
    #[error("a call to the cluster's API server failed: {0}")]
    Failed(String),
    #[error("the cluster refused: {message}")]
    Refused { code: u16, message: String },
    #[error(
        "{kind} `{name}` in namespace `{namespace}` already exists and does not belong to this run; it was not changed"
    )]
    Foreign {
        kind: String,
        name: String,
        namespace: String,
    },
    #[error(
        "namespace `{name}` exists and does not belong to this server; to give it to this server, \
         run `kubectl label namespace {name} {label}={server}`",
        label = names::SERVER
    )]
    ForeignNamespace { name: String, server: String },
    #[error("namespace `{0}` belongs to another PaddleCloud server by now")]
    OtherServers(String),
}

/// Whose a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// It does not exist.
    Nobodys,
    Ours,
    /// Another PaddleCloud server's.
    OtherServers,
    /// It has no label of any server.
    Unknown,
}

/// Messages of admission for an object that may be accepted later. A new quota answers with the second.
const NOT_NOW: [&str; 5] = [
    "exceeded quota",
    "unknown for quota",
    "is being terminated",
    "denied the request",
    "failed calling webhook",
];

/// A quota rejects concurrent updates with this message. Unlike other conflicts, it says nothing about the object to
/// create.
const OUTPACED: &str = "please apply your changes to the latest version and try again";

impl CallError {
    /// Whether to wait, however long it takes: the same call may succeed later.
    pub fn may_succeed_later(&self) -> bool {
        match self {
            CallError::Unreachable(_) | CallError::NoCredentials(_) | CallError::OtherServers(_) => true,
            CallError::Refused { message, .. } => NOT_NOW.iter().any(|words| message.contains(words)),
            CallError::Failed(_) | CallError::Foreign { .. } | CallError::ForeignNamespace { .. } => false,
        }
    }

    /// Whether the call was neither carried out nor refused, so that it is repeated immediately.
    pub fn is_undecided(&self) -> bool {
        matches!(
            self,
            CallError::Unreachable(_) | CallError::NoCredentials(_) | CallError::Failed(_)
        )
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, CallError::Refused { code: 404, .. })
    }

    /// The API server's message, if this server lacks a right. Webhooks and quotas refuse with the same code.
    pub fn lacking_right(&self) -> Option<&str> {
        match self {
            CallError::Refused { code: 403, message } if !self.may_succeed_later() => Some(message),
            _ => None,
        }
    }

    pub fn is_there_already(&self) -> bool {
        matches!(self, CallError::Refused { code: 409, .. })
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> CallError {
        match error {
            kube::Error::Api(status) => match status.code {
                // A webhook that hangs does not mean that the API server does.
                code if status.message.contains("failed calling webhook") => CallError::Refused {
                    code,
                    message: status.message,
                },
                401 => CallError::NoCredentials(status.message),
                // A proxy before an API server that is away answers 502, 503 or 504.
                429 | 502..=504 => CallError::Unreachable(status.message),
                409 if status.message.contains(OUTPACED) => CallError::Unreachable(status.message),
                500.. => CallError::Failed(status.message),
                code => CallError::Refused {
                    code,
                    message: status.message,
                },
            },
            error @ (kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                CallError::Unreachable(innermost(&error))
            }
            error @ kube::Error::Auth(_) => CallError::NoCredentials(innermost(&error)),
            other => CallError::Failed(innermost(&other)),
        }
    }
}

/// The innermost cause is the most specific: `connection refused`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Creates and deletes objects. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// For how long to repeat a call without a decision.
    patience: Duration,
    calls: Arc<Semaphore>,
    /// Why the latest call got no decision; `None` if it got one.
    undecided: Arc<Mutex<Option<String>>>,
    /// Namespaces in which this server was bound to its role, and when; only new bindings.
    bound: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Cluster {
    pub fn new(client: Client, patience: Duration) -> Cluster {
        Cluster {
            client,
            patience,
            calls: Arc::new(Semaphore::new(CALLS_AT_ONCE)),
            undecided: Arc::default(),
            bound: Arc::default(),
        }
    }

    /// Why calls are being repeated, if they are.
    pub fn trouble(&self) -> Option<String> {
        self.undecided
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Creates an object, or returns the one that an earlier call created. Waits for the cluster to delete one of an earlier
    /// owner: the names of a gang that was withdrawn are used again immediately.
    pub async fn create<K>(&self, object: &K) -> Result<K, CallError>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
        K: Resource<DynamicType = ()>,
    {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let name = object.name_any();
        let until = Instant::now() + LEFTOVER_LIMIT;
        loop {
            let creating = self.once_bound(&namespace, || api.create(&params, object));
            let exists = match creating.await {
                Err(error @ CallError::Refused { code: 409, .. }) => error,
                other => return other,
            };
            match self.patiently(|| api.get(&name)).await {
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
                Ok(found) => {
                    check_own(object.meta(), found.meta()).map_err(|()| CallError::Foreign {
                        kind: K::kind(&()).into_owned(),
                        name: name.clone(),
                        namespace: namespace.clone(),
                    })?;
                    if !is_leftover(object.meta(), found.meta()) {
                        return Ok(found);
                    }
                }
            }
            if Instant::now() > until {
                return Err(exists);
            }
            tokio::time::sleep(LEFTOVER_PAUSE).await;
        }
    }

    /// Creates an object of a kind that the cluster may not have. An existing object is not an error.
    pub async fn create_dynamic(&self, object: &DynamicObject, kind: &ApiResource) -> Result<(), CallError> {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, kind);
        let params = PostParams::default();
        let creating = self.once_bound(&namespace, || api.create(&params, object));
        there_is_fine(creating.await.map(drop))
    }

    /// Finds an object of such a kind, without retries.
    pub async fn find_dynamic(
        &self,
        namespace: &str,
        name: &str,
        kind: &ApiResource,
    ) -> Option<DynamicObject> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, kind);
        tokio::time::timeout(CALL_LIMIT, api.get(name)).await.ok()?.ok()
    }

    /// Creates what is missing of a user's namespace and its fences, and updates its quota. `whose` is what the cluster said of the
    /// namespace before: one that did not exist is created without another question.
    pub async fn ensure_tenant(&self, tenant: &Tenant, whose: Whose) -> Result<(), CallError> {
        let is_missing = whose == Whose::Nobodys
            || match self.check_namespace(&tenant.namespace).await {
                Err(error) if error.is_missing() => true,
                other => other.map(|()| false)?,
            };
        let is_new = is_missing && self.create_namespace(tenant).await?;
        self.bind(tenant).await?;
        if is_new {
            there_is_fine(self.post(&tenant.quota).await)?;
        } else {
            match self.change_quota(tenant).await {
                Err(error) if error.is_missing() => there_is_fine(self.post(&tenant.quota).await)?,
                other => other?,
            }
        }
        there_is_fine(self.post(&tenant.limits).await)?;
        there_is_fine(self.post(&tenant.network).await)
    }

    /// Returns whether it was created: it may have been created concurrently, or by a first try whose reply was lost.
    async fn create_namespace(&self, tenant: &Tenant) -> Result<bool, CallError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let params = PostParams::default();
        match self.patiently(|| api.create(&params, &tenant.namespace)).await {
            Err(error) if error.is_there_already() => {
                self.check_namespace(&tenant.namespace).await?;
                Ok(false)
            }
            other => other.map(|_| true),
        }
    }

    /// Gives this server its rights in a user's namespace, if the namespace exists and is its own.
    pub async fn bind_existing(&self, tenant: &Tenant) -> Result<(), CallError> {
        match self.check_namespace(&tenant.namespace).await {
            Ok(()) => self.bind(tenant).await,
            Err(CallError::ForeignNamespace { .. } | CallError::OtherServers(_)) => Ok(()),
            Err(error) if error.is_missing() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn bind(&self, tenant: &Tenant) -> Result<(), CallError> {
        let Some(binding) = &tenant.binding else {
            return Ok(());
        };
        match self.post(binding).await {
            Err(error) if error.is_there_already() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
                bound.retain(|_, since| since.elapsed() < BINDING_LIMIT);
                bound.insert(tenant.namespace.name_any(), Instant::now());
                Ok(())
            }
        }
    }

    /// Repeats a call that is refused because the API server does not know a new binding yet.
    async fn once_bound<T, F>(&self, namespace: &str, call: impl Fn() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let is_new = || {
            let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
            let since = bound.get(namespace);
            since.is_some_and(|since| since.elapsed() < BINDING_LIMIT)
        };
        loop {
            match self.patiently(&call).await {
                Err(error) if error.lacking_right().is_some() && is_new() => {
                    tokio::time::sleep(LEFTOVER_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// Updates the quota of a user's namespace. A missing namespace is created with its quota by the first job.
    pub async fn follow_quota(&self, tenant: &Tenant) -> Result<(), CallError> {
        let changed = match self.check_namespace(&tenant.namespace).await {
            Ok(()) => {
                self.bind(tenant).await?;
                self.change_quota(tenant).await
            }
            Err(error) => Err(error),
        };
        match changed {
            Err(error) if error.is_missing() => Ok(()),
            other => other,
        }
    }

    async fn check_namespace(&self, expected: &Namespace) -> Result<(), CallError> {
        let name = expected.name_any();
        let server = expected.labels().get(names::SERVER).cloned().unwrap_or_default();
        match self.whose(&name, &server).await? {
            Whose::Ours => Ok(()),
            Whose::Nobodys => Err(CallError::Refused {
                code: 404,
                message: format!("namespace `{name}` does not exist"),
            }),
            Whose::OtherServers => Err(CallError::OtherServers(name)),
            Whose::Unknown => Err(CallError::ForeignNamespace { name, server }),
        }
    }

    /// A namespace is ours if this server created it or an administrator labelled it for this server.
    pub async fn whose(&self, name: &str, server: &str) -> Result<Whose, CallError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = match self.patiently(|| api.get(name)).await {
            Err(error) if error.is_missing() => return Ok(Whose::Nobodys),
            found => found?,
        };
        Ok(match found.labels().get(names::SERVER) {
            Some(label) if label == server => Whose::Ours,
            Some(_) => Whose::OtherServers,
            None => Whose::Unknown,
        })
    }

    async fn change_quota(&self, tenant: &Tenant) -> Result<(), CallError> {
        let quota = &tenant.quota;
        let namespace = quota.namespace().unwrap_or_default();
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &namespace);
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone());
        // A merge patch keeps limits that it does not name, so set removed limits to null.
        let mut limits = json!({"requests.cpu": null, "limits.cpu": null, "requests.memory": null,
            "limits.memory": null});
        for name in &tenant.gpu_limits {
            limits[name] = json!(null);
        }
        for (name, amount) in hard.unwrap_or_default() {
            limits[name] = amount.0.into();
        }
        let patch = Patch::Merge(json!({"spec": {"hard": limits}}));
        let params = PatchParams::default();
        self.once_bound(&namespace, || api.patch(FENCE, &params, &patch))
            .await
            .map(drop)
    }

    /// Creates an object that is the same for every creator.
    pub async fn post<K>(&self, object: &K) -> Result<(), CallError>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let creating = self.once_bound(&namespace, || api.create(&params, object));
        creating.await.map(drop)
    }

    /// The events of a pod, the latest last, each with its reason and message.
    pub async fn events(&self, namespace: &str, uid: &str) -> Result<Vec<(String, String)>, CallError> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let mut events = self.patiently(|| api.list(&params)).await?.items;
        events.sort_by_key(|event| event.last_timestamp.clone().map(|time| time.0));
        let words = |event: Event| {
            let message = event.message.unwrap_or_default();
            (event.reason.unwrap_or_default(), message)
        };
        Ok(events.into_iter().map(words).collect())
    }

    /// The part of a container's output that the kubelet still has.
    pub async fn container_log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<u8>, CallError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = LogParams {
            container: Some(container.to_owned()),
            ..LogParams::default()
        };
        let read = async {
            let mut printed = Vec::new();
            let stream = api.log_stream(pod, &params).await?;
            let read = stream.take(MOST_PRINTED).read_to_end(&mut printed).await;
            read.map_err(|error| CallError::Unreachable(error.to_string()))?;
            Ok::<_, CallError>(printed)
        };
        let asked = tokio::time::timeout(CALL_LIMIT, read).await;
        asked.map_err(|_| CallError::Unreachable("it does not answer".into()))?
    }

    /// Deletes a pod. With a `uid`, a later pod of the same name is kept.
    pub async fn delete_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<String>,
        grace: u32,
    ) -> Result<(), CallError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = DeleteParams {
            preconditions: uid.map(only_this),
            ..DeleteParams::default().grace_period(grace)
        };
        gone_is_fine(self.patiently(|| api.delete(name, &params)).await.map(drop))
    }

    /// Deletes a run's owner, and with it all objects of the run. Without a `uid`, the object of that name is deleted only
    /// if it has the labels of `own`.
    pub async fn delete_owner(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<String>,
        own: &ObjectMeta,
    ) -> Result<(), CallError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let uid = match uid {
            Some(uid) => Some(uid),
            None => match self.patiently(|| api.get(name)).await {
                Ok(found) if check_own(own, &found.metadata).is_ok() => found.metadata.uid,
                Ok(_) => return Ok(()),
                Err(error) => return gone_is_fine(Err(error)),
            },
        };
        let params = DeleteParams {
            preconditions: uid.map(only_this),
            ..DeleteParams::background()
        };
        gone_is_fine(self.patiently(|| api.delete(name, &params)).await.map(drop))
    }

    /// Retries while there is no decision, until patience ends.
    async fn patiently<T, F>(&self, call: impl Fn() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let mut pause = FIRST_PAUSE;
        let mut first_try = None;
        loop {
            let turn = self.calls.acquire().await.expect("it is never closed");
            let give_up = *first_try.get_or_insert_with(tokio::time::Instant::now) + self.patience;
            let answer = match tokio::time::timeout(CALL_LIMIT, call()).await {
                Ok(answer) => answer.map_err(CallError::from),
                Err(_) => Err(CallError::Unreachable("it does not answer".into())),
            };
            drop(turn);
            let undecided = answer.as_ref().err().filter(|error| error.is_undecided());
            *self.undecided.lock().unwrap_or_else(PoisonError::into_inner) =
                undecided.map(CallError::to_string);
            match answer {
                Err(error) if error.is_undecided() && tokio::time::Instant::now() + pause < give_up => {
                    tracing::warn!(%error, "trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer,
            }
        }
    }
}

/// Deletes no later object of the same name.
fn only_this(uid: String) -> Preconditions {
    Preconditions {
        uid: Some(uid),
        resource_version: None,
    }
}

/// An object of the same name is ours if its labels name the same server and run.
fn check_own(expected: &ObjectMeta, found: &ObjectMeta) -> Result<(), ()> {
    let label = |meta: &ObjectMeta, name: &str| meta.labels.as_ref()?.get(name).cloned();
    let same = |name: &str| label(expected, name).is_some() && label(expected, name) == label(found, name);
    match same(names::SERVER) && same(names::RUN) {
        true => Ok(()),
        false => Err(()),
    }
}

/// Whether the cluster is about to delete an object of ours, because its owner is another one than wanted.
fn is_leftover(expected: &ObjectMeta, found: &ObjectMeta) -> bool {
    let owners = |meta: &ObjectMeta| -> Vec<String> {
        let references = meta.owner_references.iter().flatten();
        references.map(|owner| owner.uid.clone()).collect()
    };
    owners(expected) != owners(found)
}

fn there_is_fine(result: Result<(), CallError>) -> Result<(), CallError> {
    match result {
        Err(error) if error.is_there_already() => Ok(()),
        other => other,
    }
}

/// A conflict means that a different object has the name by now.
fn gone_is_fine(result: Result<(), CallError>) -> Result<(), CallError> {
    match result {
        Err(CallError::Refused { code: 404 | 409, .. }) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
