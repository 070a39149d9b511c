//! A job as Kubernetes objects: those it has, and manifests that run it without this server.

use jiff::Timestamp;
use paddlecloud_api::jobs::{JobView, ObjectView, SubmitReply};
use paddlecloud_core::job::Job;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_k8s::manifests::{self, PrintSettings};
use paddlecloud_k8s::settings::PodIdentity;
use serde_json::Value;

use super::{App, AppError};
use crate::config::EngineKind;
use crate::reconcile::Submission;

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
        let own = || self.auth.users().namespace_of(&job.user);
        let namespace = cluster.namespaces.of(&job.user, own);
        paddlecloud_k8s::objects(job, &namespace, &cluster.namespaces, &cluster.placement)
            .into_iter()
            .map(view)
            .collect()
    }

    /// Prints manifests of a job for `kubectl apply`. Quotas and space are not checked: the job does not run on this server.
    pub(super) async fn print(
        &self,
        mut submission: Submission,
        named: bool,
    ) -> Result<SubmitReply, AppError> {
        if submission.spec.snapshot.is_none() {
            self.package_check(&submission.user, &submission.spec).await?;
        }
        if !named {
            submission.spec.name = self.free_name(&submission.user, &submission.spec.name).await?;
        }
        let manifests = self.manifests(&submission)?;
        let datacenter = &self.config.datacenter;
        Ok(SubmitReply {
            code: 200,
            msg: "OK".to_owned(),
            id: String::new(),
            job: JobView::planned(&submission.spec, &submission.user, datacenter, Timestamp::now()),
            engine: self.config.engine.to_string(),
            notes: pull_secret_note(&submission.spec).into_iter().collect(),
            manifests,
        })
    }

    /// The manifests for `kubectl apply`. Without a cluster there is no volume, so the image must contain the package.
    fn manifests(&self, submission: &Submission) -> Result<Vec<Value>, AppError> {
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
            _ => PrintSettings::default(),
        };
        let Submission { user, spec, .. } = submission;
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
        "the manifests name the image pull secret `{name}` and do not contain it: \
         `kubectl create secret docker-registry {name}` makes one"
    ))
}
