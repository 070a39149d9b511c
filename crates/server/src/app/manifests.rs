//! A job as Kubernetes objects: those it has, and manifests that run it without this server.

use paddlecloud_api::jobs::ObjectView;
use paddlecloud_core::job::Job;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_k8s::manifests::{self, PrintSettings};
use paddlecloud_k8s::settings::PodIdentity;
use serde_json::Value;

use super::{App, AppError, SubmitOutcome};
use crate::config::EngineKind;
use crate::reconcile::NewJob;

impl App {
    /// The objects of a run in the cluster; empty on the local engine.
    pub(super) fn objects(&self, job: &Job) -> Vec<ObjectView> {
        let EngineKind::Kubernetes(cluster) = &self.config.engine else {
            return Vec::new();
        };
        let view = |object: paddlecloud_k8s::ObjectName| ObjectView {
            kind: object.kind.to_owned(),
            namespace: object.namespace,
            name: object.name,
        };
        let namespace = self.namespace_of(&job.user);
        paddlecloud_k8s::objects(job, &namespace, &cluster.namespaces, &cluster.placement)
            .into_iter()
            .map(view)
            .collect()
    }

    /// Prints manifests of a job for `kubectl apply`. Quotas and space are not checked: the job does not run on this server.
    pub(super) async fn print(&self, mut new_job: NewJob) -> Result<SubmitOutcome, AppError> {
        new_job.spec.name = self.jobs.name_of(&new_job).await?;
        let manifests = self.manifests(&new_job)?;
        Ok(SubmitOutcome {
            id: None,
            job: self.planned_view(&new_job),
            engine: self.config.engine.to_string(),
            notes: pull_secret_note(&new_job.spec).into_iter().collect(),
            manifests,
            python: None,
        })
    }

    /// The manifests for `kubectl apply`. Without a cluster there is no volume, so the image must contain the package.
    fn manifests(&self, new_job: &NewJob) -> Result<Vec<Value>, AppError> {
        let settings = match &self.config.engine {
            EngineKind::Kubernetes(cluster) => PrintSettings {
                launcher_image: Some(cluster.launcher_image.clone()),
                default_image: self.config.default_image.clone(),
                volume: Some(cluster.volume.clone()),
                sub_path: cluster.sub_path.clone(),
                identity: Some(PodIdentity {
                    uid: rustix::process::geteuid().as_raw(),
                    gid: rustix::process::getegid().as_raw(),
                }),
                pods: cluster.pods.clone(),
            },
            EngineKind::Local => PrintSettings::default(),
        };
        let NewJob { user, spec, .. } = new_job;
        manifests::manifests(&settings, user, &self.config.datacenter, spec).map_err(|problem| {
            AppError::NotPrinted {
                job: spec.name.clone(),
                problem,
            }
        })
    }
}

/// Refuses secrets: manifests must not contain them.
pub(super) fn refuse_secrets(spec: &JobSpec) -> Result<(), AppError> {
    match spec.secrets.first() {
        None => Ok(()),
        Some(secret) => Err(AppError::SecretInManifests(secret.name.clone())),
    }
}

/// A note that the image pull secret must exist: manifests contain no password.
fn pull_secret_note(spec: &JobSpec) -> Option<String> {
    let name = spec.registry.as_ref()?;
    Some(format!(
        "the manifests refer to the image pull secret `{name}` but do not contain it: create it with `kubectl create secret docker-registry {name}`"
    ))
}
