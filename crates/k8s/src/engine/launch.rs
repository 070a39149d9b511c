//! Turns a launch order into a pod: first the record, then the run's owner, then the pod.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::{Job, News, Role, Worker};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{Assignment, AttemptKey};

use super::cluster::CallError;
use super::made::Turn;
use super::orders;
use super::records::PodRecord;
use super::table::{Attempt, Stage};
use super::tenants;
use super::worker_plan::{self, mounts, pinned_node};
use super::{Inner, Tasks};
use crate::node_choice::LabelValues;
use crate::render::{self, PodPlan, RunSecrets, gang, tenancy};
use crate::settings::Namespaces;

/// How many pods are created concurrently, retries included. Fewer than calls, so that deletions never wait for a webhook that
/// hangs.
pub const LAUNCHES_AT_ONCE: usize = 48;

/// Pause before a rejected pod is tried again.
const NEXT_TRY: Duration = Duration::from_secs(2);

/// Starts an attempt in the background, so that an order to stop it need not wait.
pub fn launch(inner: &Arc<Inner>, assignment: &Assignment, tasks: &Tasks) {
    let key = assignment.key();
    if inner.table().contains(&key) {
        return;
    }
    let job = &assignment.job;
    let Some(worker) = job.worker(assignment.worker) else {
        return tracing::error!(?key, "the job has no such worker");
    };
    let pod = worker_plan::pod_record(inner, assignment, worker);
    let mut attempt = Attempt::new(
        worker.name.clone(),
        job.workers.len(),
        pod.clone(),
        News::Launched,
    );
    attempt.enter(Stage::Queued);
    inner.table().insert(key.clone(), attempt);
    let launch = Launch {
        inner: Arc::clone(inner),
        assignment: assignment.clone(),
        key,
        pod,
        is_recorded: false,
    };
    tasks.spawn(launch.run());
}

/// A launch order that is being carried out.
struct Launch {
    inner: Arc<Inner>,
    assignment: Assignment,
    key: AttemptKey,
    pod: PodRecord,
    is_recorded: bool,
}

impl Launch {
    /// Retries until the cluster accepts the pod. After the time limit the whole gang is withdrawn, but a worker that is
    /// restarted in a running gang keeps waiting.
    async fn run(mut self) {
        let mut withdraw_at = None;
        loop {
            let reason = match self.create_in_turn().await {
                Ok(uid) => return Box::pin(self.mark_created(uid)).await,
                Err(NotCreated::Obsolete) => return self.forget_if_cleaned().await,
                Err(NotCreated::Failed(reason)) => {
                    return Box::pin(self.end(News::Exited(Exit::unseen(reason)))).await;
                }
                Err(NotCreated::NoRoom(reason)) => reason,
            };
            let withdraw_at = *withdraw_at.get_or_insert_with(|| Instant::now() + self.inner.limits.seat);
            if let Some(end) = self.queue_again(&reason, withdraw_at) {
                return Box::pin(self.end(end)).await;
            }
            self.inner.report_waiting(&self.key, News::Unseated(reason));
            tokio::time::sleep(self.inner.limits.seat.min(NEXT_TRY)).await;
        }
    }

    /// Tries once, when it is this launch's turn, and returns the pod's uid.
    async fn create_in_turn(&mut self) -> Result<Option<String>, NotCreated> {
        // Thousands of launches may be ordered at once. Those that wait here need no file and no connection yet, and no memory for
        // what follows: it is in a box of its own.
        let inner = Arc::clone(&self.inner);
        let _turn = inner.launches.acquire().await.expect("it is never closed");
        Box::pin(self.record_and_create()).await
    }

    async fn record_and_create(&mut self) -> Result<Option<String>, NotCreated> {
        self.with_entry(|_| ())?;
        let namespace = tenants::find(&self.inner, &self.assignment.job.user).await?;
        if self.pod.namespace != namespace {
            self.with_entry(|entry| entry.pod.namespace.clone_from(&namespace))?;
            self.pod.namespace = namespace;
            self.is_recorded = false;
        }
        if !std::mem::replace(&mut self.is_recorded, true) {
            self.record().await?;
        }
        self.create().await
    }

    /// Creates the objects of the attempt. It stays in the queue until its pod is created, so that a stop need not wait for
    /// the other objects.
    async fn create(&self) -> Result<Option<String>, NotCreated> {
        let (inner, assignment) = (&self.inner, &self.assignment);
        let job = &assignment.job;
        let namespace = self.pod.namespace.clone();
        let owner = self.owner(&namespace).await?;
        let worker = job.worker(assignment.worker).ok_or_else(no_worker)?;
        let mounts = mounts(inner, assignment);
        let avoid = inner.blamed(&job.id, assignment.worker);
        let any_of = models(inner, job, worker);
        let plan = PodPlan {
            job,
            namespace: &namespace,
            worker,
            attempt: assignment.attempt,
            node: pinned_node(inner, assignment),
            avoid: &avoid,
            any_of: &any_of,
            mounts: &mounts,
            always_pull: job.spec.registry.is_some() || assignment.secrets.image().is_private,
            owner: render::owner_reference(job, &owner),
        };
        let pod =
            render::pod(&inner.settings, &plan).map_err(|error| NotCreated::Failed(error.to_string()))?;
        if assignment.attempt > 1 {
            let secret = paddlecloud_link::secret(&inner.link_key, &self.key.to_string());
            let secret = render::later_secret(&inner.settings, &plan, &inner.certificate, &secret);
            inner.cluster.create(&secret).await?;
        }
        self.leave_queue()?;
        Ok(inner.cluster.create(&pod).await?.metadata.uid)
    }

    /// The uid of the run's owner, which is created once, however many workers start.
    async fn owner(&self, namespace: &str) -> Result<String, NotCreated> {
        let asked = Instant::now();
        let turn = self.inner.owner_turn(&self.key.job);
        let mut owner = turn.lock().await;
        // With this lock, an owner is deleted only after the attempts of its run have left the table.
        self.with_entry(|_| ())?;
        match &owner.value {
            Some(uid) => Ok(uid.clone()),
            None => {
                let making = make_owner(&self.inner, &self.assignment, namespace);
                owner.make(asked, making).await
            }
        }
    }

    async fn record(&self) -> Result<(), NotCreated> {
        let plan = worker_plan::make(&self.inner, &self.assignment).ok_or_else(no_worker)?;
        let (key, pod) = (self.key.clone(), self.pod.clone());
        let recorded = self
            .inner
            .blocking(move |inner| inner.records.begin(&key, &plan, &pod));
        let recorded = recorded
            .await
            .map_err(|error| NotCreated::Failed(error.to_string()))?;
        recorded.map_err(|error| NotCreated::Failed(format!("its record cannot be written: {error}")))
    }

    /// Calls `change` with the entry of this launch, unless that is gone or over.
    fn with_entry<T>(&self, change: impl FnOnce(&mut Attempt) -> T) -> Result<T, NotCreated> {
        let mut table = self.inner.table();
        let entry = table.get_mut(&self.key).filter(|entry| !entry.is_over());
        entry.map(change).ok_or(NotCreated::Obsolete)
    }

    /// From here on the pod may exist.
    fn leave_queue(&self) -> Result<(), NotCreated> {
        self.with_entry(|entry| {
            if entry.stage == Stage::Queued {
                entry.enter(Stage::Unmade);
            }
        })
    }

    /// After a refusal: the attempt waits for the next try, or ends.
    fn queue_again(&self, reason: &str, withdraw_at: Instant) -> Option<News> {
        let end = self.with_entry(|entry| {
            if entry.stop.is_some() {
                return Some(orders::never_started());
            }
            if !entry.pod.is_restart && Instant::now() >= withdraw_at {
                return Some(News::NoRoom(reason.to_owned()));
            }
            if entry.stage == Stage::Unmade {
                entry.enter(Stage::Queued);
            }
            None
        });
        end.ok().flatten()
    }

    async fn end(&self, end: News) {
        if self.with_entry(|_| ()).is_ok() {
            tracing::warn!(key = ?self.key, ?end, "a pod could not be made");
            self.inner.end(&self.key, end, None).await;
        }
    }

    async fn mark_created(&self, uid: Option<String>) {
        let marked = self.with_entry(|entry| {
            entry.pod.created = true;
            entry.uid = entry.uid.take().or(uid);
            (entry.pod.clone(), entry.stop)
        });
        let Ok((record, stop)) = marked else {
            return self.delete_if_cleaned().await;
        };
        let owned = self.key.clone();
        let stored = self
            .inner
            .blocking(move |inner| inner.records.store_pod(&owned, &record));
        if let Ok(Err(error)) = stored.await {
            tracing::warn!(key = ?self.key, %error, "a record cannot be written");
        }
        if let Some(stop) = stop {
            orders::stop(&self.inner, &self.key, stop.grace).await;
        }
    }

    /// The attempt was cleaned while its pod was being created.
    async fn delete_if_cleaned(&self) {
        if !self.inner.table().contains(&self.key) {
            orders::delete_pod(&self.inner, &self.key, &self.pod, None, 0).await;
        }
        self.forget_if_cleaned().await;
    }

    /// The attempt may have been cleaned while its record was being written.
    async fn forget_if_cleaned(&self) {
        if !self.inner.table().contains(&self.key) {
            let key = self.key.clone();
            let _ = self.inner.blocking(move |inner| inner.records.forget(&key)).await;
        }
    }
}

/// Why no pod was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotCreated {
    NoRoom(String),
    Failed(String),
    /// The attempt is over.
    Obsolete,
}

impl From<CallError> for NotCreated {
    fn from(error: CallError) -> NotCreated {
        match error.may_succeed_later() {
            true => NotCreated::NoRoom(error.to_string()),
            false => NotCreated::Failed(error.to_string()),
        }
    }
}

fn no_worker() -> NotCreated {
    NotCreated::Failed("the job has no such worker".into())
}

/// The labels of which the worker's node must have one, if the vendors' labels tell which nodes suit its job.
fn models(inner: &Inner, job: &Job, worker: &Worker) -> Vec<LabelValues> {
    let each = match worker.key.role {
        Role::Pserver => &job.spec.pserver,
        Role::Trainer => &job.spec.trainer,
    };
    let asked = inner.settings.pods.type_by_vendor(&job.spec, each);
    asked.map_or_else(Vec::new, |asked| inner.room().products(asked))
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
        paddlecloud_link::secret(&inner.link_key, &attempt.to_string())
    };
    job.workers.iter().map(|worker| secret(worker.key)).collect()
}

impl Inner {
    /// Lock for creating or deleting the owner of a run; it contains the owner's uid.
    pub(super) fn owner_turn(&self, job: &JobId) -> Turn<String> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(owners.entry(job.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_waits_for_its_turn_needs_little_memory() {
        fn size<F>(_: fn(Launch) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Launch::run);
        assert!(size < 2048, "{size} bytes, for each of thousands");
    }
}
