//! Turns a launch order into a pod: first the record, then the run's owner, then the pod.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::{Job, News};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{Assignment, AttemptKey};

use super::Inner;
use super::cluster::CallError;
use super::orders;
use super::records::PodRecord;
use super::table::Attempt;
use super::tenants;
use super::worker_plan::{self, mounts, pinned_node};
use crate::render::{self, PodPlan, RunSecrets, gang, tenancy};
use crate::settings::Namespaces;
use crate::{link, names};

/// How many pods are created at once. Fewer than calls, so that deletions need not wait for a webhook that hangs.
pub const LAUNCHES_AT_ONCE: usize = 48;

/// Pause before a rejected pod is tried again.
const NEXT_TRY: Duration = Duration::from_secs(2);

/// Starts an attempt, or reports why it cannot be started.
pub async fn launch(inner: &Arc<Inner>, assignment: &Assignment) {
    let key = assignment.key();
    // Thousands of launches may be ordered at once. Those that wait here need no plan and no file yet.
    let turn = inner.launches.acquire().await.expect("it is never closed");
    if inner.table().contains(&key) {
        return;
    }
    let Some((plan, record)) = worker_plan::make(inner, assignment) else {
        return tracing::error!(?key, "the job has no such worker");
    };
    inner.table().insert(
        key.clone(),
        Attempt::new(plan.clone(), record.clone(), News::Launched),
    );
    let begun = {
        let (key, record) = (key.clone(), record.clone());
        inner
            .blocking(move |inner| inner.records.begin(&key, &plan, &record))
            .await
    };
    let created = match begun {
        Ok(Ok(())) => create(inner, assignment).await,
        Ok(Err(error)) => Err(NotCreated::Failed(format!(
            "its record cannot be written: {error}"
        ))),
        Err(error) => Err(NotCreated::Failed(error.to_string())),
    };
    drop(turn);
    match created {
        // Retry in the background, so that a stop need not wait for this order.
        Err(NotCreated::NoRoom(reason)) => {
            let (inner, assignment) = (Arc::clone(inner), assignment.clone());
            tokio::spawn(async move { try_until_there_is_room(&inner, &assignment, record, reason).await });
        }
        other => finish(inner, &key, record, other).await,
    }
}

/// Retries until the cluster accepts the pod. After the time limit the whole gang is withdrawn, but a worker that is
/// restarted in a running gang keeps waiting.
async fn try_until_there_is_room(
    inner: &Arc<Inner>,
    assignment: &Assignment,
    record: PodRecord,
    reason: String,
) {
    let key = assignment.key();
    let give_up = Instant::now() + inner.limits.seat;
    let mut reason = reason;
    let outcome = loop {
        inner.report_waiting(&key, News::Unseated(reason.clone()));
        tokio::time::sleep(inner.limits.seat.min(NEXT_TRY)).await;
        if inner.is_unwanted(&key) {
            return inner.end(&key, orders::never_started(), None).await;
        }
        match create(inner, assignment).await {
            Err(NotCreated::NoRoom(again)) if record.is_restart || Instant::now() < give_up => reason = again,
            outcome => break outcome,
        }
    };
    finish(inner, &key, record, outcome).await;
}

async fn finish(
    inner: &Arc<Inner>,
    key: &AttemptKey,
    record: PodRecord,
    outcome: Result<Option<String>, NotCreated>,
) {
    let end = match outcome {
        Ok(uid) => return mark_created(inner, key, record, uid).await,
        Err(NotCreated::NoRoom(reason)) => News::NoRoom(reason),
        Err(NotCreated::Failed(reason)) => News::Exited(Exit::unseen(reason)),
    };
    tracing::warn!(?key, ?end, "a pod could not be made");
    inner.end(key, end, None).await;
}

/// Why no pod was created.
enum NotCreated {
    NoRoom(String),
    Failed(String),
}

impl From<CallError> for NotCreated {
    fn from(error: CallError) -> NotCreated {
        match error.is_no_room() {
            true => NotCreated::NoRoom(error.to_string()),
            false => NotCreated::Failed(error.to_string()),
        }
    }
}

async fn mark_created(inner: &Arc<Inner>, key: &AttemptKey, record: PodRecord, uid: Option<String>) {
    let record = PodRecord {
        created: true,
        ..record
    };
    let told_to_stop = match inner.table().get_mut(key) {
        Some(entry) => {
            entry.pod = record.clone();
            entry.uid = entry.uid.take().or(uid);
            entry.stop.filter(|_| !entry.is_over())
        }
        None => None,
    };
    let owned = key.clone();
    let stored = inner
        .blocking(move |inner| inner.records.store_pod(&owned, &record))
        .await;
    if let Ok(Err(error)) = stored {
        tracing::warn!(?key, %error, "a record cannot be written");
    }
    if let Some(stop) = told_to_stop {
        orders::stop(inner, key, stop.grace).await;
    }
}

/// Creates the objects of an attempt and returns the pod's uid.
async fn create(inner: &Arc<Inner>, assignment: &Assignment) -> Result<Option<String>, NotCreated> {
    let job = &assignment.job;
    let namespace = inner.namespace_of(&job.user);
    let owner = owner_of(inner, assignment, &namespace).await?;
    let no_worker = || NotCreated::Failed("the job has no such worker".into());
    let worker = job.worker(assignment.worker).ok_or_else(no_worker)?;
    let mounts = mounts(inner, assignment);
    let avoid = inner.blamed(&job.id, assignment.worker);
    let plan = PodPlan {
        job,
        namespace: &namespace,
        worker,
        attempt: assignment.attempt,
        node: pinned_node(inner, assignment),
        avoid: &avoid,
        mounts: &mounts,
        always_pull: job.spec.registry.is_some() || assignment.secrets.image().is_private,
        owner: render::owner_reference(job, &owner),
    };
    let pod = render::pod(&inner.settings, &plan).map_err(|error| NotCreated::Failed(error.to_string()))?;
    if assignment.attempt > 1 {
        let secret = link::secret(&inner.link_key, &names::marker(&assignment.key()));
        let secret = render::later_secret(&inner.settings, &plan, &inner.certificate, &secret);
        inner.cluster.create(&secret).await?;
    }
    Ok(inner.cluster.create(&pod).await?.metadata.uid)
}

/// The uid of a run's owner, which is created once, however many workers start.
async fn owner_of(
    inner: &Arc<Inner>,
    assignment: &Assignment,
    namespace: &str,
) -> Result<String, NotCreated> {
    let turn = inner.owner_turn(&assignment.job.id);
    let mut owner = turn.lock().await;
    if let Some(uid) = &*owner {
        return Ok(uid.clone());
    }
    let uid = make_owner(inner, assignment, namespace).await?;
    *owner = Some(uid.clone());
    Ok(uid)
}

async fn make_owner(inner: &Inner, assignment: &Assignment, namespace: &str) -> Result<String, NotCreated> {
    let job = &assignment.job;
    let login = assignment.secrets.image().login.as_ref();
    if let (Some(registry), None) = (&job.spec.registry, login) {
        return Err(NotCreated::Failed(format!(
            "the registry `{registry}` has been deleted, or sealed with a key that the server does not have"
        )));
    }
    let secrets = RunSecrets {
        certificate: &inner.certificate,
        first_attempts: first_secrets(inner, job),
        variables: assignment.secrets.reveal(),
    };
    let owner = render::owner(&inner.settings, job, namespace, &secrets);
    tenants::ensure(inner, &job.user).await?;
    let made = match inner.cluster.create(&owner).await {
        // The namespace was deleted since it was last seen.
        Err(error) if error.is_missing() && inner.settings.namespaces == Namespaces::PerUser => {
            inner.tenants().remove(namespace);
            tenants::ensure(inner, &job.user).await?;
            inner.cluster.create(&owner).await?
        }
        other => other?,
    };
    let uid = made.metadata.uid.unwrap_or_default();
    let reference = || render::owner_reference(job, &uid);
    if let Some(login) = login {
        let secret = render::pull_secret(&inner.settings, job, namespace, login, reference());
        inner.cluster.create(&secret).await?;
    }
    if let Some(group) = gang::pod_group(&inner.settings, job, namespace, reference())
        && let Some(kind) = gang::answers_in(&inner.settings.placement)
    {
        inner.cluster.create_dynamic(&group, &kind).await?;
    }
    // In given namespaces, the administrator sets the network policy.
    if inner.settings.sees_cluster()
        && let Some(network) = tenancy::run_network(&inner.settings, job, namespace, reference())
    {
        inner.cluster.create(&network).await?;
    }
    Ok(uid)
}

fn first_secrets(inner: &Inner, job: &Job) -> Vec<String> {
    let secret = |worker| {
        let attempt = AttemptKey {
            job: job.id.clone(),
            worker,
            attempt: 1,
        };
        link::secret(&inner.link_key, &names::marker(&attempt))
    };
    job.workers.iter().map(|worker| secret(worker.key)).collect()
}

impl Inner {
    /// Lock for creating or deleting the owner of a run; it contains the owner's uid.
    pub(super) fn owner_turn(&self, job: &JobId) -> Arc<tokio::sync::Mutex<Option<String>>> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(owners.entry(job.clone()).or_default())
    }

    /// Whether an attempt was ordered to stop, or is gone.
    fn is_unwanted(&self, attempt: &AttemptKey) -> bool {
        let table = self.table();
        table
            .get(attempt)
            .is_none_or(|entry| entry.is_over() || entry.stop.is_some())
    }
}
