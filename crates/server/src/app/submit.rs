//! Submits jobs: generates names, makes the checks that need the server, and queues the job.

use std::sync::Arc;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_accounts::users::Origin;
use paddlecloud_api::jobs::{JobRequest, JobView};
use paddlecloud_core::conductor::NameOrigin;
use paddlecloud_core::job::{IdempotencyKey, Job};
use paddlecloud_core::names::{JobId, JobName, JobRef, UserName};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::spec::{JobSpec, SpecError};
use paddlecloud_files::homes::StorageError;
use paddlecloud_pfs::RelPath;
use paddlecloud_pfs::package::Manifest;
use serde_json::Value;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::task::spawn_blocking;

use super::look::{FoundPackage, Purpose};
use super::manifests::refuse_secrets;
use super::packages::check_package;
use super::programs::FoundPrograms;
use super::{App, AppError};
use crate::config::EngineKind;
use crate::reconcile::{Acceptance, NewJob, Submitted};
use paddlecloud_files::packages::check_output;

/// A submitted job, or for a dry run the job that would be submitted.
#[derive(Debug, Clone)]
pub struct SubmitOutcome {
    /// `None` for a dry run.
    pub id: Option<JobId>,
    pub job: JobView,
    /// The engine that runs it: `local` or `kubernetes`.
    pub engine: String,
    /// Notes for the user: degraded isolation, oversubscription.
    pub notes: Vec<String>,
    /// Kubernetes objects that run the job without a server, if a dry run asked for them.
    pub manifests: Vec<Value>,
    /// The Python that trainers start by name, on the server's own machine.
    pub python: Option<String>,
}

impl App {
    /// Checks a request and queues the job. It is durable when this returns.
    pub async fn job_submit(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: JobRequest,
        key: Option<IdempotencyKey>,
    ) -> Result<SubmitOutcome, AppError> {
        self.files_within_reach()?;
        self.own_system_user(caller)?;
        let account = self.account_id(&caller.user)?;
        let (dry_run, print) = (request.dry_run, request.manifests);
        if print && !dry_run {
            return Err(SpecError::predicate("manifests", "needs `dry_run`: nothing is started").into());
        }
        let name = request
            .name
            .as_ref()
            .map_or(NameOrigin::Generated, |_| NameOrigin::Request);
        let list = request.take_list()?;
        if !dry_run {
            self.check_disk()?;
            self.file_check_room(caller).await?;
        }
        let spec = self.spec_of(caller, request, key.as_ref()).await?;
        let kept = self.keep_packages(&caller.user).await;
        let (spec, look) = self
            .look_at_files(&caller.user, spec, Purpose::of_dry_run(dry_run))
            .await?;
        let new_job = NewJob {
            user: caller.user.clone(),
            spec,
            name,
            key,
        };
        if print {
            look.package?;
            return self.print(new_job).await;
        }
        let programs = look.programs?;
        if dry_run {
            look.package?;
            return self.plan(new_job, programs).await;
        }
        let package = self
            .package_or_refusal(caller, &new_job, list, look.package)
            .await?;
        let app = Arc::clone(self);
        let storing = async move { Ok(app.jobs.submit(new_job).await?) };
        let submitted = self.run_to_completion(caller, account, kept, storing).await?;
        let in_the_way = package.in_the_way.as_ref();
        let in_the_way = in_the_way.map(|place| self.in_the_way_note(&submitted.job, place));
        let resumed = self
            .resume_note(&caller.user, submitted.job.spec.resume.as_ref())
            .await;
        let mut outcome = self.outcome(submitted);
        outcome
            .notes
            .extend(resumed.into_iter().chain(in_the_way).chain(programs.note));
        outcome.python = programs.python;
        Ok(outcome)
    }

    /// Refuses a caller whose workers would run as the server itself beside other users. The local engine refuses jobs that were
    /// queued before.
    fn own_system_user(&self, caller: &Caller) -> Result<(), AppError> {
        if !self.config.engine.uses_own_machine() {
            return Ok(());
        }
        let users = self.auth.users();
        if !users.shares_system_user(&caller.user) {
            return Ok(());
        }
        let user = caller.user.clone();
        let own = users.find(&user);
        let origin = own.map_or(Origin::Database, |own| own.origin);
        Err(AppError::SharedSystemUser { user, origin })
    }

    /// Returns a guard that prevents the removal of packages.
    async fn keep_packages(&self, user: &UserName) -> OwnedRwLockReadGuard<()> {
        let locks = self.storage.locks(user);
        Arc::clone(&locks.packages).read_owned().await
    }

    /// The number of the caller's account, because the name may belong to another account by the time the job is stored.
    fn account_id(&self, user: &UserName) -> Result<u64, AppError> {
        let account = self.auth.users().enabled(user);
        account.map(|account| account.id).ok_or(AppError::AccountEnded)
    }

    /// Stores a job even if the caller disconnects: the loop would store it anyway, and the package must be kept until then. If
    /// the caller's account is disabled or deleted first, no job is queued; see [`App::submits_ended`].
    async fn run_to_completion(
        self: &Arc<Self>,
        caller: &Caller,
        account: u64,
        kept: OwnedRwLockReadGuard<()>,
        storing: impl Future<Output = Result<Submitted, AppError>> + Send + 'static,
    ) -> Result<Submitted, AppError> {
        let (app, user) = (Arc::clone(self), caller.user.clone());
        let stored = tokio::spawn(async move {
            let submitting = app.submitting.read().await;
            if app.account_id(&user)? != account {
                return Err(AppError::AccountEnded);
            }
            let submitted = storing.await?;
            drop((kept, submitting));
            match submitted.acceptance {
                Acceptance::Now => app.metrics.count_submit(),
                Acceptance::Before => app.metrics.count_repeated_submit(),
            }
            Ok(submitted)
        });
        stored.await.map_err(|_| AppError::Internal)?
    }

    /// Waits for submits that are in flight: they are queued when this returns, and later ones see the current accounts.
    pub(super) async fn submits_ended(&self) {
        drop(self.submitting.write().await);
    }

    fn in_the_way_note(&self, job: &Job, place: &RelPath) -> String {
        let home = self.storage.home_name(&job.user);
        let output = self.storage.output_name(job).unwrap_or_default();
        format!(
            "`{home}/{place}` already exists and its files are left unchanged: the job uses only the submitted files, and its output is in {output}"
        )
    }

    /// Submits a job of the history again, with its files, under the same name or another one.
    pub async fn job_rerun(
        self: &Arc<Self>,
        caller: &Caller,
        target: &JobRef,
        name: Option<JobName>,
        key: Option<IdempotencyKey>,
    ) -> Result<SubmitOutcome, AppError> {
        self.files_within_reach()?;
        self.own_system_user(caller)?;
        let account = self.account_id(&caller.user)?;
        self.check_disk()?;
        self.file_check_room(caller).await?;
        let job = self.job_find(caller, target, "job.rerun").await?;
        if job.given_in.is_some() {
            return Err(AppError::FilesMoved {
                name: job.spec.name.clone(),
                place: self.storage.files_of(&job),
            });
        }
        self.image_check(&job.spec)?;
        self.nodes_check(&job.spec)?;
        self.secrets_check(&caller.user, &job.spec).await?;
        self.resume_check(&job).await?;
        let kept = self.keep_packages(&caller.user).await;
        let (user, asked, storage) = (caller.user.clone(), Arc::clone(&job), self.storage.clone());
        let checked = spawn_blocking(move || check_package(&storage, &user, &asked.spec)).await;
        let checked = checked.map_err(|_| AppError::Internal)?;
        checked.map_err(|error| missing_package_error(&job, error))?;
        let mut spec = JobSpec::clone(&job.spec);
        self.limit_disk(&mut spec)?;
        spec.name = name.unwrap_or(spec.name);
        let new_job = NewJob {
            user: caller.user.clone(),
            spec,
            name: NameOrigin::Request,
            key,
        };
        let app = Arc::clone(self);
        let storing = async move { Ok(app.jobs.submit(new_job).await?) };
        let submitted = self.run_to_completion(caller, account, kept, storing).await?;
        Ok(self.outcome(submitted))
    }

    /// Refuses submits on an almost full disk: the last space is for killing jobs and cleaning up.
    fn check_disk(&self) -> Result<(), AppError> {
        match self.store.has_room() {
            true => Ok(()),
            false => Err(AppError::DiskFull),
        }
    }

    fn outcome(&self, submitted: Submitted) -> SubmitOutcome {
        let mut notes = submitted.notes;
        notes.extend(self.unused(&submitted.job.spec));
        SubmitOutcome {
            id: Some(submitted.job.id.clone()),
            job: self.job_view(&submitted.job),
            engine: self.config.engine.to_string(),
            notes,
            manifests: Vec::new(),
            python: None,
        }
    }

    /// Notes about request fields that this engine ignores.
    fn unused(&self, spec: &JobSpec) -> Vec<String> {
        if !self.config.engine.uses_own_machine() {
            return Vec::new();
        }
        let asked = match (&spec.image, &spec.registry) {
            (Some(_), Some(_)) => Some("`-image` and `-registry` are"),
            (Some(image), None) if self.config.default_image.as_ref() != Some(image) => Some("`-image` is"),
            (None, Some(_)) => Some("`-registry` is"),
            _ => None,
        };
        let image = asked
            .map(|asked| format!("{asked} only recorded: this engine runs the programs of its own machine"));
        let disk = spec.disk.map(|_| {
            "`-disk` is only recorded: this engine does not limit what workers write to its machine"
                .to_owned()
        });
        image.into_iter().chain(disk).collect()
    }

    /// A dry run: what a submit would do.
    async fn plan(&self, mut new_job: NewJob, programs: FoundPrograms) -> Result<SubmitOutcome, AppError> {
        new_job.spec.name = self.jobs.name_of(&new_job).await?;
        let mut notes = self.jobs.check(&new_job).await?;
        notes.extend(
            self.resume_note(&new_job.user, new_job.spec.resume.as_ref())
                .await,
        );
        notes.extend(self.unused(&new_job.spec));
        notes.extend(programs.note);
        Ok(SubmitOutcome {
            id: None,
            job: self.planned_view(&new_job),
            engine: self.config.engine.to_string(),
            notes,
            manifests: Vec::new(),
            python: programs.python,
        })
    }

    /// Reports a missing package only if nothing else is wrong, because uploading it may take long. With its list, it is
    /// published if all its files are here; nothing is staged before all other checks have passed.
    async fn package_or_refusal(
        self: &Arc<Self>,
        caller: &Caller,
        new_job: &NewJob,
        list: Option<Manifest>,
        found: Result<FoundPackage, AppError>,
    ) -> Result<FoundPackage, AppError> {
        let missing = match found {
            Err(missing @ AppError::Storage(StorageError::NotUploaded(_))) => missing,
            found => return found,
        };
        self.jobs.check(new_job).await?;
        let list = list.ok_or(missing)?;
        check_output(&list)?;
        let reply = self.package_complete(caller, list, None).await?;
        if !reply.stored {
            return Err(AppError::PackageMissing(Box::new(reply)));
        }
        let spec = new_job.spec.clone();
        let (_, look) = self.look_at_files(&new_job.user, spec, Purpose::Submit).await?;
        look.package
    }

    async fn spec_of(
        &self,
        caller: &Caller,
        mut request: JobRequest,
        key: Option<&IdempotencyKey>,
    ) -> Result<JobSpec, AppError> {
        let own = &self.config.datacenter;
        if let Some(other) = request.datacenter.as_deref().filter(|name| *name != own.as_str()) {
            let problem = format!(
                "this server is datacenter `{own}`, not `{}`",
                other.escape_debug()
            );
            return Err(SpecError::remark("datacenter", problem).into());
        }
        if request.image.as_ref().is_none_or(String::is_empty) {
            request.image.clone_from(&self.config.default_image);
        }
        if !self.config.embedded {
            request.shell_env.clear();
        }
        let package = request.package_path(&self.storage.home_name(&caller.user))?;
        let mut spec = request.to_spec(package)?;
        self.limit_disk(&mut spec)?;
        if let Some(target) = request.resume_ref()? {
            spec.resume = Some(self.resume_find(caller, &target, key).await?);
        }
        // Printed manifests run elsewhere and cannot use secrets or programs of this server.
        if request.manifests {
            refuse_secrets(&spec)?;
        } else {
            self.image_check(&spec)?;
            self.nodes_check(&spec)?;
            self.secrets_check(&caller.user, &spec).await?;
        }
        Ok(spec)
    }
}

impl App {
    /// Gives a job the server's limit of what its workers write to their nodes, or refuses a higher one.
    fn limit_disk(&self, spec: &mut JobSpec) -> Result<(), SpecError> {
        let most = match &self.config.engine {
            EngineKind::Kubernetes(cluster) => cluster.disk,
            EngineKind::Local => None,
        };
        spec.disk = limited_disk(most, spec.disk)?;
        Ok(())
    }

    /// Refuses labels that contradict the configuration, and a type of GPUs where only the cluster knows the nodes and the
    /// configuration does not define it. Which nodes match is the scheduler's to check.
    fn nodes_check(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let EngineKind::Kubernetes(cluster) = &self.config.engine else {
            return Ok(());
        };
        if let Some((key, value)) = cluster.other_value(&spec.node_labels) {
            let problem = format!("all workers of this server run on nodes with `{key}={value}`");
            return Err(SpecError::remark("node_labels", problem));
        }
        match cluster.pods.type_by_vendor(spec, &spec.trainer) {
            Some(name) if !self.config.engine.counts_room() => {
                let defined = cluster.pods.gpu_types.iter();
                let defined = defined.filter(|(_, of_type)| !of_type.labels.is_empty());
                let defined: Vec<String> = defined.map(|(name, _)| format!("`{name}`")).collect();
                let there = match defined.is_empty() {
                    true => "it defines none".to_owned(),
                    false => format!("it defines {}", defined.join(", ")),
                };
                let problem = format!("this server does not define GPUs of type `{name}`; {there}");
                Err(SpecError::remark("gpu_type", problem).with_hint(
                    "an administrator can add it to `gpu_types` of the configuration, with labels",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an image that the configuration does not allow.
    fn image_check(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let default = self.config.default_image.as_ref();
        let asked = spec.image.as_ref().filter(|image| Some(*image) != default);
        match (&self.config.allowed_images, asked) {
            (Some(allowed), Some(image)) if !allowed.allows(image) => {
                let problem = format!(
                    "`{}` is not among the images of this server",
                    image.escape_debug()
                );
                Err(SpecError::sentence("image", problem).with_hint(format!("it allows {allowed}")))
            }
            _ => Ok(()),
        }
    }
}

fn limited_disk(most: Option<Bytes>, asked: Option<Bytes>) -> Result<Option<Bytes>, SpecError> {
    match (most, asked) {
        (Some(most), Some(asked)) if asked > most => {
            let (most, asked) = (most.readable(), asked.readable());
            let problem = format!("must be at most {most} on this server, not {asked}");
            Err(SpecError::predicate("disk", problem))
        }
        (most, asked) => Ok(asked.or(most)),
    }
}

/// The error for a rerun whose package is gone: a rerun has no local folder to upload.
fn missing_package_error(job: &Job, error: AppError) -> AppError {
    match error {
        AppError::Storage(StorageError::NotUploaded(_)) => AppError::FilesGone {
            name: job.spec.name.clone(),
            id: job.id.clone(),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_disk_limit_holds_for_jobs_without_one() {
        let (small, large) = (Bytes::mib(300), Bytes::mib(600));
        assert_eq!(limited_disk(None, None), Ok(None));
        assert_eq!(limited_disk(None, Some(large)), Ok(Some(large)));
        assert_eq!(limited_disk(Some(large), None), Ok(Some(large)));
        assert_eq!(limited_disk(Some(large), Some(small)), Ok(Some(small)));
        let refused = limited_disk(Some(small), Some(large)).unwrap_err();
        let expected = "`-disk` must be at most 300 MiB on this server, not 600 MiB";
        assert_eq!(refused.message("-disk"), expected);
    }
}
