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
mod tests;
