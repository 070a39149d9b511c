//! Jobs, workers and quotas on the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::submit::{JobRequest, JobView, parse_job_name};

/// A number or a text: the client design writes `"cpu": 1`, people also write `"cpu": "500m"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Amount {
    Number(u64),
    Text(String),
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Amount::Number(number) => number.fmt(f),
            Amount::Text(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    /// Accepts every number, so that the code that parses the amount can say what is wrong with it.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Any {
            Whole(u64),
            Other(serde_json::Number),
            Text(String),
        }
        Ok(match Any::deserialize(deserializer)? {
            Any::Whole(number) => Amount::Number(number),
            Any::Other(number) => Amount::Text(number.to_string()),
            Any::Text(text) => Amount::Text(text),
        })
    }
}

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Amount::Text(text.to_owned())
    }
}

/// Reply to a submit: `{"code":200,"msg":"OK"}` as in the client design, and the job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitReply {
    pub code: u16,
    pub msg: String,
    /// Empty for a dry run.
    pub id: String,
    pub job: JobView,
    /// The engine that runs it: `local` or `kubernetes`.
    pub engine: String,
    /// Notes for the user: degraded isolation, oversubscription.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Kubernetes objects that run the job without a server, if a dry run asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub manifests: Vec<serde_json::Value>,
    /// The Python that trainers start by name, if workers are processes of the server's machine and the command shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobStatus {
    Pending,
    Starting,
    Running,
    Stopping,
    Succeeded,
    Failed,
    Killed,
    Lost,
}

impl JobStatus {
    pub fn is_final(self) -> bool {
        matches!(
            self,
            JobStatus::Succeeded | JobStatus::Failed | JobStatus::Killed | JobStatus::Lost
        )
    }
}

impl std::fmt::Display for JobStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// One worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    /// The owner, in lists of all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub name: String,
    pub job: String,
    pub job_id: String,
    /// `trainer` or `pserver`.
    pub role: String,
    pub index: u32,
    /// `Pending`, `Starting`, `Ready`, `Running`, `Stopping`, `Succeeded`, `Failed`, `Killed`, `Lost`.
    pub status: String,
    pub attempt: u32,
    pub address: Option<String>,
    /// The node of the cluster that it runs or ran on; omitted on one machine and while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
    pub exit_code: Option<i32>,
    /// An explanation of the exit.
    pub message: Option<String>,
}

/// `GET /api/v1/jobs/{job}`: the job, its workers and what happened when.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobDetail {
    pub job: JobView,
    pub workers: Vec<WorkerView>,
    pub events: Vec<EventView>,
    /// What the run has in the cluster now; empty on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectView>,
}

/// An object of the cluster that belongs to a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectView {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// One line of a job's timeline.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventView {
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    pub text: String,
}

/// `GET /api/v1/jobs/{job}/why`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhyView {
    pub job: JobView,
    /// Why it waits, or how it ended.
    pub reason: String,
    /// Jobs ahead, nearest first: name and id.
    #[serde(default)]
    pub ahead: Vec<String>,
    pub ahead_total: usize,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub estimate: Option<Timestamp>,
    /// The assumptions of the estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_basis: Option<String>,
    /// The smallest change that would start it now.
    pub change: Option<String>,
    /// For a failed job: the first worker that failed, an explanation of its exit, its last lines.
    pub first_failure: Option<FailureView>,
}

/// The worker that failed first, with the evidence.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureView {
    pub worker: WorkerView,
    pub exit: String,
    pub last_lines: Vec<String>,
    /// How many other workers were stopped because of it.
    pub others: u32,
}

/// One row of `get quota`; `None` means no limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaRow {
    /// The user, in lists of all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The group whose members share this limit; omitted: the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `cpu`, `memory`, `gpu`, `parallelism`, `storage`.
    pub resource: String,
    pub limit: Option<String>,
    /// What the user can count on. Use above it is borrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    pub used: String,
    /// The part of it that is held and not in use yet: jobs that start, unfinished uploads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
}

/// Reply to a kill.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KillReply {
    pub code: u16,
    pub msg: String,
    pub id: String,
    #[serde(default)]
    pub name: String,
    /// Workers that are terminating in the background.
    pub ending: u32,
    pub removed: bool,
    /// Set if the kill took effect but is not durable yet: a server that stops now forgets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a kill does besides stopping the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KillOptions {
    /// Also remove the job from the history.
    pub remove: bool,
    /// Kill its workers without waiting for the grace period.
    pub now: bool,
}

/// What a prune does besides removing ended jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneOptions {
    /// Only report what would be removed.
    pub dry_run: bool,
    /// Also remove the jobs' outputs.
    pub outputs: bool,
}

// The body of `POST /api/v1/prune`. A doc comment would change openapi.json.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PruneRequest {
    /// Only jobs that ended longer ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_seconds: Option<u32>,
    /// All jobs that have ended. One of the two must be given.
    pub all: bool,
    /// Return what would be removed, remove nothing.
    pub dry_run: bool,
    /// Also remove what the jobs wrote to `output`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outputs: bool,
}

/// Reply to `POST /api/v1/prune`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReply {
    pub removed: Vec<String>,
    /// Bytes freed, or that would be: logs, working copies, packages.
    pub bytes: u64,
    /// Describes the ids in `removed`.
    #[serde(default)]
    pub jobs: Vec<PrunedJob>,
    /// Set if a run stays because another job continues its training, or if some of it is not durable yet, as in
    /// [`KillReply::note`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A job that was removed from the history, or would be.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrunedJob {
    pub id: String,
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
}

/// One page of `GET /api/v1/jobs`; pass `next` as `?after=` for the next page.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPage {
    pub code: u16,
    pub msg: Vec<JobView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The server's state of a package that a client wants to use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackageReply {
    pub id: String,
    /// The folder (`/pfs/…`) into which the missing files are uploaded. Announce the package, or submit the job, again afterwards.
    pub folder: String,
    /// Digests (hex) of files the server lacks; empty: the package is stored.
    pub missing: Vec<String>,
    pub stored: bool,
}
