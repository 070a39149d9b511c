//! The request for a job, its defaults and checks, and the view of a job.
//!
//! This is the only conversion from a request to a `JobSpec`: `paddlectl`, the Python client and the server use it, so
//! a request that passes here passes everywhere. Only the server checks names in use, quotas and files.

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::duration;
use paddlecloud_core::gpu::{GpuType, NotAGpuType};
use paddlecloud_core::names::{DatacenterName, JobName, JobRef, MAX_JOB_NAME, NameError, UserName};
use paddlecloud_core::plan::is_own_pserver;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::spec::{self, JobSpec, Resources, SecretRef, SpecError, whole};
use paddlecloud_pfs::package::{Manifest, PackageId};
use serde::{Deserialize, Serialize};

use crate::jobs::{Amount, JobStatus};

/// Body of `POST /api/v1/jobs`. Omitted fields get the defaults of the documents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JobRequest {
    /// Omitted: derived from the package's folder name, unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `/pfs/…`: a package on the cluster, used in place.
    #[serde(alias = "jobPackage", skip_serializing_if = "Option::is_none")]
    pub job_package: Option<String>,
    /// Id of an uploaded package (`/api/v1/packages`), instead of `job_package`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package_id: Option<String>,
    /// The name of the uploaded folder, under which it appears in the user's home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package_name: Option<String>,
    /// The list of the package's files. A server that lacks the package then replies which files to send, or publishes it if
    /// it has all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub package_list: Option<Manifest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<i64>,
    /// The type of the trainers' GPUs, such as `a100`; `gpu` is then 1 if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Labels that the nodes of all workers have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Omitted: as many as trainers; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pservers: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pscpu: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psmemory: Option<Amount>,
    /// The most that each worker may write to the disk of its node (Kubernetes only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psentry: Option<String>,
    /// Ports a parameter server must listen on before the trainers start (2 for `paddle pserver`, else 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psports: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, String>,
    /// Stored secrets for the workers: `NAME` or `NAME=VARIABLE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
    /// `90s`, `10m`, `1h30m`, or a number of seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_limit: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Amount>,
    /// One line about this run, shown by `describe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Continue the parameter-server training of an ended run of yours: its id, its name, or `last`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// `PATH`, virtual environment and locale of the submitter; used by the embedded server only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shell_env: BTreeMap<String, String>,
    /// Check everything and reply with the plan, but start nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// With `dry_run`: reply with Kubernetes objects that run the job without a server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub manifests: bool,
}

/// A job as lists and `describe` show it: the fields of the client design, then ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    pub name: String,
    pub job_package: Option<String>,
    pub parallelism: u32,
    /// A number for whole cores, otherwise a text such as `500m`.
    pub cpu: Amount,
    pub gpu: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    pub memory: String,
    pub pservers: u32,
    pub pscpu: Amount,
    pub psmemory: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    pub topology: Option<String>,
    pub entry: String,
    pub psentry: String,
    pub passes: u32,
    pub image: Option<String>,
    pub registry: Option<String>,
    pub datacenter: String,
    pub envs: BTreeMap<String, String>,
    pub priority: i32,
    pub retries: u32,
    pub max_runtime: Option<String>,
    pub start_limit: String,
    pub grace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The id of the run whose training this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,

    pub id: String,
    pub user: String,
    pub namespace: String,
    pub status: JobStatus,
    /// One sentence: why it waits, or how it ended.
    pub message: Option<String>,
    /// `/pfs/…`, the folder of its results.
    pub output: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub submitted: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub completed: Option<Timestamp>,
    /// Trainers that succeeded, failed, are running.
    pub succeeded: u32,
    pub failed: u32,
    pub active: u32,
}

impl JobRequest {
    /// The job that this request describes, with every default filled in and every value checked.
    ///
    /// `package` is the folder of the program, as far as the caller knows it: a client that has not sent a folder yet
    /// passes its name. The last part of it is the default for the job's name.
    pub fn to_spec(&self, package: Option<String>) -> Result<JobSpec, SpecError> {
        let defaults = JobSpec::new(self.job_name(package.as_deref())?);
        let parallelism = self.parallelism;
        let parallelism = count(
            "parallelism",
            parallelism,
            &spec::PARALLELISM,
            defaults.parallelism,
        )?;
        let gpu_type = self.gpu_type()?;
        let some_gpu = if gpu_type.is_some() {
            1
        } else {
            defaults.trainer.gpu
        };
        let ps_entry = self.psentry.clone().unwrap_or(defaults.ps_entry);
        let ps_ports = match is_own_pserver(&ps_entry) {
            true => defaults.ps_ports,
            false => 1,
        };
        let spec = JobSpec {
            name: defaults.name,
            package,
            snapshot: self.package_id.clone(),
            parallelism,
            trainer: Resources {
                cpu: amount("cpu", self.cpu.as_ref(), defaults.trainer.cpu)?,
                memory: amount("memory", self.memory.as_ref(), defaults.trainer.memory)?,
                gpu: count("gpu", self.gpu, &spec::GPU, some_gpu)?,
            },
            pservers: count("pservers", self.pservers, &spec::PSERVERS, parallelism)?,
            pserver: Resources {
                cpu: amount("pscpu", self.pscpu.as_ref(), defaults.pserver.cpu)?,
                memory: amount("psmemory", self.psmemory.as_ref(), defaults.pserver.memory)?,
                gpu: 0,
            },
            gpu_type,
            node_labels: self.node_labels.clone(),
            disk: match &self.disk {
                Some(disk) => Some(amount("disk", Some(disk), Bytes::mib(0))?),
                None => None,
            },
            entry: self.entry.clone().unwrap_or(defaults.entry),
            ps_ports: count("psports", self.psports, &spec::PS_PORTS, ps_ports)?,
            ps_entry,
            topology: given(self.topology.as_deref()),
            passes: count("passes", self.passes, &spec::PASSES, defaults.passes)?,
            image: given(self.image.as_deref()),
            registry: given(self.registry.as_deref()),
            envs: self.envs.clone(),
            secrets: self
                .secrets
                .iter()
                .map(|text| SecretRef::parse(text))
                .collect::<Result<_, _>>()?,
            priority: count("priority", self.priority, &spec::PRIORITY, defaults.priority)?,
            retries: count("retries", self.retries, &spec::RETRIES, defaults.retries)?,
            max_runtime: time("max_runtime", self.max_runtime.as_ref())?,
            start_limit: time("start_limit", self.start_limit.as_ref())?.unwrap_or(defaults.start_limit),
            grace: time("grace", self.grace.as_ref())?.unwrap_or(defaults.grace),
            comment: given(self.comment.as_deref()),
            resume: None,
            shell_env: self.shell_env.clone(),
        };
        self.check_resume(&spec)?;
        spec.check()
    }

    /// The run to continue, as typed. Only the server knows which one that is.
    pub fn resume_ref(&self) -> Result<Option<JobRef>, SpecError> {
        let parsed = self.resume.as_deref().map(str::parse).transpose();
        parsed.map_err(|error: NameError| SpecError::remark("resume", error.to_string()))
    }

    fn gpu_type(&self) -> Result<Option<GpuType>, SpecError> {
        let parsed = given(self.gpu_type.as_deref())
            .map(|name| name.parse())
            .transpose();
        parsed.map_err(|error: NotAGpuType| SpecError::remark("gpu_type", error.to_string()))
    }

    fn check_resume(&self, spec: &JobSpec) -> Result<(), SpecError> {
        match self.resume_ref()? {
            Some(_) if spec.pservers == 0 => Err(SpecError::predicate(
                "resume",
                "needs parameter servers, and this job has none",
            )
            .with_hint("ask for some with `-pservers`")),
            Some(_) if self.manifests => Err(SpecError::predicate(
                "resume",
                "cannot be in manifests: a job without this server does not find the earlier run",
            )),
            _ => Ok(()),
        }
    }

    /// The package on the cluster: `job_package`, or the uploaded folder below `home`.
    ///
    /// The server checks that it exists and belongs to the caller.
    pub fn package_path(&self, home: &str) -> Result<Option<String>, SpecError> {
        match (&self.package_id, &self.job_package) {
            (Some(_), Some(_)) => Err(SpecError::sentence(
                "package_id",
                "`package_id` and `job_package` cannot be combined",
            )),
            (Some(_), None) => {
                let folder = folder_name(self.package_name.as_deref())?;
                Ok(Some(format!("{home}/{folder}")))
            }
            (None, Some(path)) => cluster_path(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Takes the list of files out of the request. It must be that of the package.
    pub fn take_list(&mut self) -> Result<Option<Manifest>, SpecError> {
        let Some(list) = self.package_list.take() else {
            return Ok(None);
        };
        let id = list.id();
        match self.package_id.as_deref().map(str::parse::<PackageId>) {
            Some(Ok(asked)) if asked == id => Ok(Some(list)),
            Some(_) => Err(SpecError::predicate(
                "package_list",
                format!("must be the list of `package_id`, not of the package {id}"),
            )),
            None => Err(SpecError::predicate(
                "package_list",
                "must come with `package_id`",
            )),
        }
    }

    fn job_name(&self, package: Option<&str>) -> Result<JobName, SpecError> {
        match &self.name {
            Some(name) => parse_job_name(name),
            None => Ok(JobName::nearest(package.and_then(last_part).unwrap_or("job"))),
        }
    }
}

/// A job's name as typed.
pub fn parse_job_name(text: &str) -> Result<JobName, SpecError> {
    text.parse().map_err(|error: NameError| {
        let mut shown: String = text.chars().take(MAX_JOB_NAME).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        let problem = format!("cannot submit `{}`: {error}", shown.escape_debug());
        let refused = SpecError::sentence("name", problem);
        match error.suggestion() {
            Some(near) => refused.with_hint(format!("try `{near}`")),
            None => refused,
        }
    })
}

impl JobView {
    /// A job that was not accepted yet, for a dry run: no id, no times, nothing running.
    pub fn planned(spec: &JobSpec, user: &UserName, datacenter: &DatacenterName, now: Timestamp) -> JobView {
        JobView {
            name: spec.name.to_string(),
            job_package: spec.package.clone(),
            parallelism: spec.parallelism,
            cpu: cores(spec.trainer.cpu),
            gpu: spec.trainer.gpu,
            gpu_type: spec.gpu_type.as_ref().map(GpuType::to_string),
            node_labels: spec.node_labels.clone(),
            memory: spec.trainer.memory.to_string(),
            pservers: spec.pservers,
            pscpu: cores(spec.pserver.cpu),
            psmemory: spec.pserver.memory.to_string(),
            disk: spec.disk.map(|disk| disk.to_string()),
            topology: spec.topology.clone(),
            entry: spec.entry.clone(),
            psentry: spec.ps_entry.clone(),
            passes: spec.passes,
            image: spec.image.clone(),
            registry: spec.registry.clone(),
            datacenter: datacenter.to_string(),
            envs: spec.envs.clone(),
            priority: spec.priority,
            retries: spec.retries,
            max_runtime: spec.max_runtime.map(duration::print),
            start_limit: duration::print(spec.start_limit),
            grace: duration::print(spec.grace),
            comment: spec.comment.clone(),
            resumed_from: spec.resume.as_ref().map(|run| run.id.to_string()),

            id: String::new(),
            user: user.to_string(),
            namespace: user.namespace(),
            status: JobStatus::Pending,
            message: None,
            output: None,
            submitted: now,
            started: None,
            completed: None,
            succeeded: 0,
            failed: 0,
            active: 0,
        }
    }
}

/// Whole cores are a number on the wire, as in the client design; parts of one a text.
fn cores(cpu: Cpu) -> Amount {
    match cpu.as_millis() % 1000 {
        0 => Amount::Number(cpu.as_millis() / 1000),
        _ => Amount::Text(cpu.to_string()),
    }
}

/// An empty text on the wire means the same as none.
fn given(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// `/pfs/…` without a trailing slash.
fn cluster_path(path: &str) -> Result<String, SpecError> {
    let trimmed = path.trim_end_matches('/');
    if trimmed.starts_with("/pfs/") {
        return Ok(trimmed.to_owned());
    }
    let problem = format!(
        "`{}` is not on the cluster: the path of a package starts with `/pfs/`",
        path.escape_debug()
    );
    let refused = SpecError::remark("job_package", problem);
    Err(refused.with_hint("`paddlectl submit <folder>` uploads a local folder"))
}

fn last_part(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| !part.is_empty())
}

/// The folder under which an upload appears.
fn folder_name(name: Option<&str>) -> Result<&str, SpecError> {
    let Some(name) = name else {
        return Err(SpecError::predicate(
            "package_name",
            "must come with `package_id`",
        ));
    };
    let odd = name.contains(['/', '\0']) || name.chars().any(char::is_control);
    if odd || matches!(name, "" | "." | "..") || name.len() > 255 {
        let problem = format!("`{}` is not a valid folder name", name.escape_debug());
        return Err(SpecError::remark("package_name", problem));
    }
    Ok(name)
}

fn count<T: TryFrom<i64>>(
    field: &'static str,
    value: Option<i64>,
    allowed: &std::ops::RangeInclusive<i64>,
    default: T,
) -> Result<T, SpecError> {
    value.map_or(Ok(default), |value| whole(field, value, allowed))
}

fn amount<T>(field: &'static str, value: Option<&Amount>, default: T) -> Result<T, SpecError>
where
    T: FromStr<Err: std::fmt::Display>,
{
    let Some(value) = value else {
        return Ok(default);
    };
    let read = value.to_string().parse();
    read.map_err(|error: T::Err| SpecError::remark(field, error.to_string()))
}

fn time(field: &'static str, value: Option<&Amount>) -> Result<Option<SignedDuration>, SpecError> {
    let Some(value) = value else {
        return Ok(None);
    };
    let read = duration::parse(&value.to_string());
    read.map(Some)
        .map_err(|error| SpecError::remark(field, error.to_string()))
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

    fn spec_of(request: &JobRequest) -> Result<JobSpec, SpecError> {
        request.to_spec(request.package_path("/pfs/local/home/me")?)
    }

    fn refused(change: impl FnOnce(&mut JobRequest)) -> String {
        let mut request = request();
        change(&mut request);
        let spec = spec_of(&request);
        let error = spec.expect_err("must be refused");
        let hint = error.hint.iter().map(|hint| format!("\n  hint: {hint}"));
        error.to_string() + &hint.collect::<String>()
    }

    #[test]
    fn a_type_of_gpus_means_one_gpu_unless_more_are_requested() {
        let typed = |gpu| JobRequest {
            gpu,
            gpu_type: Some("NVIDIA A100".into()),
            ..request()
        };
        let spec = spec_of(&typed(None)).unwrap();
        assert_eq!((spec.trainer.gpu, spec.gpu_type.unwrap().as_str()), (1, "a100"));
        assert_eq!(spec_of(&typed(Some(4))).unwrap().trainer.gpu, 4);
        insta::assert_snapshot!(refused(|request| *request = typed(Some(0))), @r"
        `gpu_type` names GPUs of type `a100`, and the trainers have none
          hint: ask for some with `-gpu`
        ");
        insta::assert_snapshot!(
            refused(|request| request.gpu_type = Some("-".into())),
            @"`gpu_type`: `-` is not the name of a GPU type: at most 63 characters, with a letter or digit"
        );
        let labels = [("a b".to_owned(), "x".to_owned())];
        insta::assert_snapshot!(
            refused(|request| request.node_labels = labels.into()),
            @"`node_labels`: `a b` cannot be the name of a node's label"
        );
    }

    #[test]
    fn missing_fields_get_the_documented_defaults() {
        let spec = spec_of(&request()).unwrap();
        let mut expected = JobSpec::new("job-word-emb".parse().unwrap());
        expected.package = Some("/pfs/local/home/me/job_word_emb".into());
        assert_eq!(spec, expected);
    }

    #[test]
    fn there_are_as_many_pservers_as_trainers_unless_said_otherwise() {
        let mut many = request();
        many.parallelism = Some(7);
        assert_eq!(spec_of(&many).unwrap().pservers, 7);
        many.pservers = Some(0);
        assert_eq!(spec_of(&many).unwrap().pservers, 0);
    }

    #[test]
    fn a_pserver_of_the_users_own_has_one_port() {
        let ports = |entry: &str| {
            let mut own = request();
            own.psentry = Some(entry.into());
            spec_of(&own).unwrap().ps_ports
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
        let spec = spec_of(&uploaded).unwrap();
        assert_eq!(spec.package.as_deref(), Some("/pfs/local/home/me/my_pkg"));
        assert_eq!(spec.name.as_str(), "my-pkg");
    }

    #[test]
    fn a_list_of_files_must_be_that_of_the_package() {
        let list = Manifest::new(Vec::new()).unwrap();
        let taken = |id: Option<String>| {
            let mut request = JobRequest {
                package_id: id,
                package_list: Some(list.clone()),
                ..JobRequest::default()
            };
            request.take_list().map_err(|error| error.to_string())
        };
        assert_eq!(taken(Some(list.id().to_string())), Ok(Some(list.clone())));
        let other = format!(
            "`package_list` must be the list of `package_id`, not of the package {}",
            list.id()
        );
        for id in ["0".repeat(64), "x".to_owned()] {
            assert_eq!(taken(Some(id)), Err(other.clone()));
        }
        assert_eq!(
            taken(None),
            Err("`package_list` must come with `package_id`".to_owned())
        );
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
            refused(|r| r.comment = Some("two\nlines".into())),
            refused(|r| r.comment = Some("é".repeat(201))),
            refused(|r| r.resume = Some("my_job".into())),
            refused(|r| r.resume = Some(String::new())),
            refused(|r| (r.resume, r.pservers) = (Some("last".into()), Some(0))),
            refused(|r| (r.resume, r.manifests) = (Some("last".into()), true)),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        `parallelism` must be between 1 and 10000, not 0
        `parallelism` must be between 1 and 10000, not -1
        `parallelism` must be between 1 and 10000, not 1000000
        `memory`: `1X` is not an amount of memory: write a whole number and one of Ki Mi Gi Ti Pi Ei (or K M G T P E), for example `10Gi`
        `cpu`: a worker needs more than 0 cores
        `pscpu`: `x` is not a number of cores: write `2` or `500m`
        `gpu` must be between 0 and 1024, not 9223372036854775807
        cannot submit `my_job`: `_` is not allowed in a job name
          hint: try `my-job`
        cannot submit `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…`: a job name has at most 63 characters, this one has 300
          hint: try `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx`
        `max_runtime`: `soon` is not a time span: write `90s`, `10m`, `1h30m`, `7d` or a number of seconds
        `start_limit` must be greater than zero, for example `10m`
        `psports` must be between 1 and 64, not 70000
        `job_package`: `./here` is not on the cluster: the path of a package starts with `/pfs/`
          hint: `paddlectl submit <folder>` uploads a local folder
        a job needs a package or an image that contains one
          hint: name the folder of your program, for example `paddlectl submit ./my_package`
        `envs`: `A=B` is not the name of an environment variable
        `comment` must be one line without control characters
        `comment` has 201 characters; the limit is 200
        `resume`: `_` is not allowed in a job name
        `resume`: a job name must not be empty
        `resume` needs parameter servers, and this job has none
          hint: ask for some with `-pservers`
        `resume` cannot be in manifests: a job without this server does not find the earlier run
        ");
    }
}
