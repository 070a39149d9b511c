//! From a request to a job: defaults, checks, a name, and the way into the queue.

use std::str::FromStr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::{Amount, JobRequest, SubmitReply};
use paddlecloud_core::duration;
use paddlecloud_core::job::{IdempotencyKey, Job};
use paddlecloud_core::names::{JobId, JobName, JobRef, MAX_JOB_NAME, UserName};
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::spec::{DEFAULT_PS_ENTRY, JobSpec, Resources, SpecError};
use tokio::sync::OwnedRwLockReadGuard;

use super::{App, internal, store_failed};
use crate::auth::Caller;
use crate::reconcile::{Submission, Submitted};

/// Suffixes tried for a generated name before it becomes a mark that cannot be taken.
const COUNTED_SUFFIXES: u32 = 50;
/// How often another submit may be quicker with the same generated name.
const NAME_TRIES: usize = 8;

impl App {
    /// Checks a request, gives it a name if it has none, and puts it in the queue. The reply is durable.
    pub async fn job_submit(
        self: &Arc<Self>,
        caller: &Caller,
        request: JobRequest,
        key: Option<IdempotencyKey>,
    ) -> Result<SubmitReply, ErrorBody> {
        self.files_within_reach()?;
        let dry_run = request.dry_run;
        let named = request.name.is_some();
        if !dry_run {
            self.check_disk()?;
            self.file_check_room(caller).await?;
        }
        let spec = self.spec_of(caller, request).await?;
        let submission = Submission {
            user: caller.user.clone(),
            spec,
            key,
        };
        if dry_run {
            return self.plan(submission, named).await;
        }
        let kept = self.keep_packages(&caller.user).await;
        self.package_check_last(&submission, named).await?;
        let app = Arc::clone(self);
        let storing = async move {
            match named || app.was_submitted(&submission).await? {
                true => app.jobs.submit(submission).await,
                false => app.submit_nameless(submission).await,
            }
        };
        let submitted = self.to_its_end(kept, storing).await?;
        let in_the_way = self.in_the_way(&submitted.job).await;
        let mut reply = self.submit_reply(submitted);
        reply.notes.extend(in_the_way);
        Ok(reply)
    }

    /// While the guard lives, nobody removes a package that was found to be there.
    async fn keep_packages(&self, user: &UserName) -> OwnedRwLockReadGuard<()> {
        let turn = self.storage.turn(user);
        Arc::clone(&turn.packages).read_owned().await
    }

    /// Stores a job, also when whoever asked is gone meanwhile: the loop does not stop for that, and until it is done the
    /// package is kept.
    async fn to_its_end(
        self: &Arc<Self>,
        kept: OwnedRwLockReadGuard<()>,
        storing: impl Future<Output = Result<Submitted, ErrorBody>> + Send + 'static,
    ) -> Result<Submitted, ErrorBody> {
        let app = Arc::clone(self);
        let stored = tokio::spawn(async move {
            let submitted = storing.await?;
            drop(kept);
            app.metrics.count_submit(submitted.created);
            Ok(submitted)
        });
        stored.await.map_err(|_| internal())?
    }

    /// Something of the user's own has the name of the package. The job is accepted whatever that is.
    async fn in_the_way(&self, job: &Arc<Job>) -> Option<String> {
        let asked = Arc::clone(job);
        let found = self.with_files(move |storage| storage.in_the_way(&asked)).await;
        let place = found.ok().flatten()?;
        let home = self.storage.home_name(&job.user);
        let output = self.storage.output_name(job).unwrap_or_default();
        Some(format!(
            "`{home}/{place}` is there already and stays as it is: the job has the submitted files only; its output is in {output}"
        ))
    }

    /// Submits a job of the history again, with the files it had, under its name or another.
    pub async fn job_rerun(
        self: &Arc<Self>,
        caller: &Caller,
        target: &JobRef,
        name: Option<JobName>,
        key: Option<IdempotencyKey>,
    ) -> Result<SubmitReply, ErrorBody> {
        self.files_within_reach()?;
        self.check_disk()?;
        self.file_check_room(caller).await?;
        let job = self.job_find(caller, target).await?;
        let kept = self.keep_packages(&caller.user).await;
        let checked = self.package_check(&caller.user, &job.spec).await;
        checked.map_err(|error| files_are_gone(&job, error))?;
        let mut spec = JobSpec::clone(&job.spec);
        spec.name = name.unwrap_or(spec.name);
        let submission = Submission {
            user: caller.user.clone(),
            spec,
            key,
        };
        let app = Arc::clone(self);
        let storing = async move { app.jobs.submit(submission).await };
        let submitted = self.to_its_end(kept, storing).await?;
        Ok(self.submit_reply(submitted))
    }

    /// The last room on the disk is for ending jobs and clearing up.
    fn check_disk(&self) -> Result<(), ErrorBody> {
        match self.store.has_room() {
            true => Ok(()),
            false => Err(super::disk_is_full()),
        }
    }

    fn submit_reply(&self, submitted: Submitted) -> SubmitReply {
        let mut notes = submitted.notes;
        notes.extend(self.unused(&submitted.job.spec));
        notes.extend(no_trainer_yet(&submitted.job.spec));
        SubmitReply {
            code: 200,
            msg: "OK".to_owned(),
            id: submitted.job.id.to_string(),
            job: self.job_view(&submitted.job),
            engine: self.config.engine.to_string(),
            notes,
        }
    }

    /// What was asked for and has no meaning on this engine.
    fn unused(&self, spec: &JobSpec) -> Option<String> {
        let asked = match (&spec.image, &spec.registry) {
            (Some(_), Some(_)) => "`-image` and `-registry` are",
            (Some(image), None) if self.config.default_image.as_ref() != Some(image) => "`-image` is",
            (None, Some(_)) => "`-registry` is",
            _ => return None,
        };
        Some(format!(
            "{asked} only recorded: this engine runs the programs of its own machine"
        ))
    }

    /// What a submit would do.
    async fn plan(&self, submission: Submission, named: bool) -> Result<SubmitReply, ErrorBody> {
        // A dry run sends nothing, so an upload it names need not be here.
        if submission.spec.snapshot.is_none() {
            self.package_check(&submission.user, &submission.spec).await?;
        }
        let (submission, mut notes) = self.would_accept(submission, named).await?;
        notes.extend(self.unused(&submission.spec));
        notes.extend(no_trainer_yet(&submission.spec));
        let id = JobId::new(0, 0);
        let job = Job::new(
            id,
            submission.user,
            submission.spec.into(),
            submission.key,
            0,
            Timestamp::now(),
        );
        let mut job = self.job_view(&job);
        job.id.clear();
        Ok(SubmitReply {
            code: 200,
            msg: "OK".to_owned(),
            id: String::new(),
            job,
            engine: self.config.engine.to_string(),
            notes,
        })
    }

    /// That a package is missing is said only when nothing else stands in the way: sending it may take long.
    async fn package_check_last(&self, submission: &Submission, named: bool) -> Result<(), ErrorBody> {
        let checked = self.package_check(&submission.user, &submission.spec).await;
        match checked {
            Err(missing) if missing.error == ErrorName::PackageMissing => {
                self.would_accept(submission.clone(), named).await?;
                Err(missing)
            }
            checked => checked,
        }
    }

    /// Whether the job would be accepted, with the name it would get.
    async fn would_accept(
        &self,
        mut submission: Submission,
        named: bool,
    ) -> Result<(Submission, Vec<String>), ErrorBody> {
        if !named {
            submission.spec.name = self.free_name(&submission.user, &submission.spec.name).await?;
        }
        let notes = self.jobs.check(&submission).await?;
        Ok((submission, notes))
    }

    /// Gives the job a free name; when somebody is quicker, the next one.
    async fn submit_nameless(&self, submission: Submission) -> Result<Submitted, ErrorBody> {
        for _ in 0..NAME_TRIES {
            let mut named = submission.clone();
            named.spec.name = self.free_name(&named.user, &named.spec.name).await?;
            match self.jobs.submit(named).await {
                Err(taken) if taken.error == ErrorName::NameTaken => {}
                result => return result,
            }
        }
        let mut unique = submission;
        unique.spec.name = unique.spec.name.with_suffix(&mark());
        self.jobs.submit(unique).await
    }

    /// Whether this is the repetition of a submit whose reply was lost: then its name is given already.
    async fn was_submitted(&self, submission: &Submission) -> Result<bool, ErrorBody> {
        let Some(key) = &submission.key else {
            return Ok(false);
        };
        let found = self
            .store
            .find_by_key(&submission.user, key)
            .await
            .map_err(store_failed)?;
        Ok(found.is_some())
    }

    /// A name that no run of this user holds now: `word-emb`, and while that is in use `word-emb-2`, …
    async fn free_name(&self, user: &UserName, base: &JobName) -> Result<JobName, ErrorBody> {
        for count in 1..=COUNTED_SUFFIXES {
            let name = match count {
                1 => base.clone(),
                _ => base.with_suffix(&count.to_string()),
            };
            let latest = self.store.latest(user, Some(&name)).await;
            let latest = latest.map_err(store_failed)?;
            if latest.is_none_or(|job| !job.holds_name()) {
                return Ok(name);
            }
        }
        Ok(base.with_suffix(&mark()))
    }

    async fn spec_of(&self, caller: &Caller, request: JobRequest) -> Result<JobSpec, ErrorBody> {
        let own = &self.config.datacenter;
        if let Some(other) = request.datacenter.as_deref().filter(|name| *name != own.as_str()) {
            let problem = format!(
                "this server is datacenter `{own}`, not `{}`",
                other.escape_default()
            );
            return Err(field_error("datacenter", &problem));
        }
        let mut spec = spec_of(request, &self.storage.home_name(&caller.user))?;
        if spec.image.is_none() {
            spec.image.clone_from(&self.config.default_image);
        }
        if !self.config.embedded {
            spec.shell_env.clear();
        }
        let mut spec = spec.check().map_err(spec_refused)?;
        self.package_resolve(&caller.user, &mut spec).await?;
        Ok(spec)
    }
}

/// Who runs a job again has no folder at hand to send.
fn files_are_gone(job: &Job, error: ErrorBody) -> ErrorBody {
    match error.error {
        ErrorName::PackageMissing => ErrorBody::new(
            ErrorName::NotFound,
            format!("the files of {} ({}) are gone", job.spec.name, job.id),
        )
        .with_hint("submit the folder again"),
        _ => error,
    }
}

/// The documents' own requests may mean `paddle train`, so they are taken; their owner should know what comes.
fn no_trainer_yet(spec: &JobSpec) -> Option<String> {
    spec.runs_paddle_train().then(|| {
        "`paddle train` comes with a later version, so the trainers of this job will fail; \
         `-entry 'python train.py'` runs a program of your own"
            .to_owned()
    })
}

/// A suffix nobody else has.
fn mark() -> String {
    let mut random = [0u8; 5];
    // Without randomness the name may be taken, which the conductor notices.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The request with the defaults of the documents filled in; ranges are checked later.
fn spec_of(request: JobRequest, home: &str) -> Result<JobSpec, ErrorBody> {
    let package = match (&request.package_id, request.job_package) {
        (Some(_), Some(_)) => {
            return Err(field_error(
                "package_id",
                "`package_id` and `job_package` exclude each other",
            ));
        }
        (Some(_), None) => Some(format!("{home}/{}", folder_name(request.package_name)?)),
        (None, Some(path)) => Some(cluster_path(path)?),
        (None, None) => None,
    };
    let name = match &request.name {
        Some(name) => name.parse().map_err(|error| name_refused(name, &error))?,
        None => JobName::nearest(package.as_deref().and_then(folder_of).unwrap_or("job")),
    };
    let defaults = JobSpec::new(name);
    let parallelism = count("parallelism", request.parallelism, defaults.parallelism)?;
    let ps_entry = request.psentry.unwrap_or(defaults.ps_entry);
    let ps_ports = if is_own_pserver(&ps_entry) { 2 } else { 1 };
    Ok(JobSpec {
        package,
        snapshot: request.package_id,
        parallelism,
        trainer: Resources {
            cpu: amount("cpu", request.cpu, defaults.trainer.cpu)?,
            memory: amount("memory", request.memory, defaults.trainer.memory)?,
            gpu: count("gpu", request.gpu, defaults.trainer.gpu)?,
        },
        pservers: count("pservers", request.pservers, parallelism)?,
        pserver: Resources {
            cpu: amount("pscpu", request.pscpu, defaults.pserver.cpu)?,
            memory: amount("psmemory", request.psmemory, defaults.pserver.memory)?,
            gpu: 0,
        },
        entry: request.entry.unwrap_or(defaults.entry),
        ps_ports: count("psports", request.psports, ps_ports)?,
        ps_entry,
        topology: request.topology.filter(|topology| !topology.is_empty()),
        passes: count("passes", request.passes, defaults.passes)?,
        image: request.image.filter(|image| !image.is_empty()),
        registry: request.registry.filter(|registry| !registry.is_empty()),
        envs: request.envs,
        priority: count("priority", request.priority, defaults.priority)?,
        retries: count("retries", request.retries, defaults.retries)?,
        max_runtime: time("max_runtime", request.max_runtime)?,
        start_limit: time("start_limit", request.start_limit)?.unwrap_or(defaults.start_limit),
        grace: time("grace", request.grace)?.unwrap_or(defaults.grace),
        shell_env: request.shell_env,
        name: defaults.name,
    })
}

/// `/pfs/…` without a slash at its end. Whether it is the caller's is checked where the files are.
fn cluster_path(path: String) -> Result<String, ErrorBody> {
    let trimmed = path.trim_end_matches('/');
    if trimmed.starts_with("/pfs/") {
        return Ok(trimmed.to_owned());
    }
    let problem = format!(
        "`{}` is not on the cluster: a package's path begins with `/pfs/`",
        path.escape_default()
    );
    let refused = field_error("job_package", &problem);
    Err(refused.with_hint("`paddlectl submit <folder>` uploads a local folder"))
}

fn folder_of(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| !part.is_empty())
}

/// The folder an upload appears under.
fn folder_name(name: Option<String>) -> Result<String, ErrorBody> {
    let Some(name) = name else {
        return Err(field_error(
            "package_name",
            "`package_name` must come with `package_id`",
        ));
    };
    let odd = name.contains(['/', '\0']) || name.chars().any(char::is_control);
    if odd || matches!(name.as_str(), "" | "." | "..") || name.len() > 255 {
        let problem = format!("`{}` cannot be a folder's name", name.escape_default());
        return Err(field_error("package_name", &problem));
    }
    Ok(name)
}

fn is_own_pserver(command: &str) -> bool {
    command == DEFAULT_PS_ENTRY || command.starts_with("paddle pserver ")
}

/// A number that fits its field; what the field allows beyond that is the spec's to check.
fn count<T: TryFrom<i64>>(field: &'static str, value: Option<i64>, default: T) -> Result<T, ErrorBody> {
    let Some(value) = value else {
        return Ok(default);
    };
    T::try_from(value).map_err(|_| field_error(field, &format!("`{field}` cannot be {value}")))
}

fn amount<T>(field: &'static str, value: Option<Amount>, default: T) -> Result<T, ErrorBody>
where
    T: FromStr<Err: std::fmt::Display>,
{
    let Some(value) = value else {
        return Ok(default);
    };
    value
        .to_string()
        .parse()
        .map_err(|error| field_error(field, &format!("`{field}`: {error}")))
}

fn time(field: &'static str, value: Option<Amount>) -> Result<Option<SignedDuration>, ErrorBody> {
    let Some(value) = value else {
        return Ok(None);
    };
    let read = duration::parse(&value.to_string());
    read.map(Some)
        .map_err(|error| field_error(field, &error.to_string()))
}

fn field_error(field: &str, problem: &str) -> ErrorBody {
    let named = if problem.contains(&format!("`{field}`")) {
        problem.to_owned()
    } else {
        format!("`{field}`: {problem}")
    };
    ErrorBody::new(ErrorName::BadRequest, named)
}

fn spec_refused(error: SpecError) -> ErrorBody {
    let refused = field_error(error.field, &error.problem);
    match error.hint {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

fn name_refused(name: &str, error: &paddlecloud_core::names::NameError) -> ErrorBody {
    let mut shown: String = name.chars().take(MAX_JOB_NAME).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    let problem = format!("cannot submit `{}`: {error}", shown.escape_debug());
    let refused = ErrorBody::new(ErrorName::BadRequest, problem);
    match error.suggestion() {
        Some(near) => refused.with_hint(format!("try `{near}`")),
        None => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> JobRequest {
        JobRequest {
            job_package: Some("/pfs/local/home/me/job_word_emb/".into()),
            ..JobRequest::default()
        }
    }

    fn refused(change: impl FnOnce(&mut JobRequest)) -> String {
        let mut request = request();
        change(&mut request);
        let spec = spec_of(request, "/pfs/local/home/me").and_then(|spec| spec.check().map_err(spec_refused));
        let error = spec.expect_err("must be refused");
        [error.msg]
            .into_iter()
            .chain(error.hints)
            .collect::<Vec<_>>()
            .join("\n  hint: ")
    }

    #[test]
    fn what_is_left_out_gets_the_defaults_of_the_documents() {
        let spec = spec_of(request(), "/pfs/local/home/me").unwrap().check().unwrap();
        let mut expected = JobSpec::new("job-word-emb".parse().unwrap());
        expected.package = Some("/pfs/local/home/me/job_word_emb".into());
        assert_eq!(spec, expected);
    }

    #[test]
    fn there_are_as_many_pservers_as_trainers_unless_said_otherwise() {
        let mut many = request();
        many.parallelism = Some(7);
        assert_eq!(spec_of(many.clone(), "").unwrap().pservers, 7);
        many.pservers = Some(0);
        assert_eq!(spec_of(many, "").unwrap().pservers, 0);
    }

    #[test]
    fn a_pserver_of_the_users_own_has_one_port() {
        let ports = |entry: &str| {
            let mut own = request();
            own.psentry = Some(entry.into());
            spec_of(own, "").unwrap().ps_ports
        };
        assert_eq!(ports("paddle pserver"), 2);
        assert_eq!(ports("paddle pserver --port 1"), 2);
        assert_eq!(ports("python ps.py"), 1);
    }

    #[test]
    fn an_uploaded_package_lies_in_the_home() {
        let mut uploaded = request();
        uploaded.job_package = None;
        uploaded.package_id = Some("abc".into());
        uploaded.package_name = Some("my_pkg".into());
        let spec = spec_of(uploaded, "/pfs/local/home/me").unwrap();
        assert_eq!(spec.package.as_deref(), Some("/pfs/local/home/me/my_pkg"));
        assert_eq!(spec.name.as_str(), "my-pkg");
    }

    #[test]
    fn every_wrong_field_is_named_in_one_sentence() {
        let texts = [
            refused(|r| r.parallelism = Some(0)),
            refused(|r| r.parallelism = Some(-1)),
            refused(|r| r.parallelism = Some(1_000_000)),
            refused(|r| r.memory = Some("1X".into())),
            refused(|r| r.cpu = Some(Amount::Number(0))),
            refused(|r| r.pscpu = Some("x".into())),
            refused(|r| r.gpu = Some(i64::MAX)),
            refused(|r| r.name = Some("my_job".into())),
            refused(|r| r.name = Some("x".repeat(300))),
            refused(|r| r.max_runtime = Some("soon".into())),
            refused(|r| r.start_limit = Some(Amount::Number(0))),
            refused(|r| r.psports = Some(70_000)),
            refused(|r| r.job_package = Some("./here".into())),
            refused(|r| r.job_package = None),
            refused(|r| drop(r.envs.insert("A=B".into(), String::new()))),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        `parallelism` must be between 1 and 10000, not 0
        `parallelism` cannot be -1
        `parallelism` must be between 1 and 10000, not 1000000
        `memory`: `1X` is not an amount of memory: write a whole number and one of Ki Mi Gi Ti Pi Ei (or K M G T P E), for example `10Gi`
        `cpu`: a worker needs more than 0 cores
        `pscpu`: `x` is not a number of cores: write `2` or `500m`
        `gpu` cannot be 9223372036854775807
        cannot submit `my_job`: `_` is not allowed in a job name
          hint: try `my-job`
        cannot submit `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…`: a job name has at most 63 characters, this one has 300
          hint: try `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx`
        `max_runtime`: `soon` is not a time span: write `90s`, `10m`, `1h30m`, `7d` or a number of seconds
        `start_limit` must be longer than nothing, for example `10m`
        `psports` cannot be 70000
        `job_package`: `./here` is not on the cluster: a package's path begins with `/pfs/`
          hint: `paddlectl submit <folder>` uploads a local folder
        `job_package`: a job needs a package or an image that contains one
          hint: name the folder of your program, for example `paddlectl submit ./my_package`
        `envs`: `A=B` is not the name of an environment variable
        ");
    }
}
