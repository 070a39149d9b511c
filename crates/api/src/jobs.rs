//! Jobs, workers and quotas on the wire. S4's field names come first, ours stand beside them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use paddlecloud_pfs::RelPath;
use serde::{Deserialize, Serialize};

/// A number or a text: S4 writes `"cpu": 1`, people also write `"cpu": "500m"`.
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
    /// Takes every number, so that whoever reads the amount can say what is wrong with it.
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

/// Body of `POST /api/v1/jobs`. What is left out gets the default of the documents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JobRequest {
    /// Left out: made from the package's folder name, unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `/pfs/…`: a package that lies on the cluster, used in place.
    #[serde(alias = "jobPackage", skip_serializing_if = "Option::is_none")]
    pub job_package: Option<String>,
    /// Id of an uploaded package (`/api/v1/packages`), instead of `job_package`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package_id: Option<String>,
    /// The uploaded folder's name, which it keeps below the user's home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Left out: as many as trainers; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pservers: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pscpu: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psmemory: Option<Amount>,
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
    /// `PATH`, virtual environment and locale of the submitter; used on one machine only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shell_env: BTreeMap<String, String>,
    /// Check everything and reply with the plan, but start nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Reply to a submit: S4's `{"code":200,"msg":"OK"}` and the job beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitReply {
    pub code: u16,
    pub msg: String,
    /// Empty for a dry run.
    pub id: String,
    pub job: JobView,
    /// Which engine really runs it: `local` or `kubernetes`.
    pub engine: String,
    /// Things the user should know: degraded isolation, oversubscription.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Where a job stands.
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

/// A job as lists and `describe` show it: S4's fields, then ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    pub name: String,
    pub job_package: Option<String>,
    pub parallelism: u32,
    /// A number for whole cores, else a text such as `500m`.
    pub cpu: Amount,
    pub gpu: u32,
    pub memory: String,
    pub pservers: u32,
    pub pscpu: Amount,
    pub psmemory: String,
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

    pub id: String,
    pub user: String,
    pub namespace: String,
    pub status: JobStatus,
    /// One sentence: why it waits, or how it ended.
    pub message: Option<String>,
    /// `/pfs/…` where its results lie.
    pub output: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub submitted: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub completed: Option<Timestamp>,
    /// Trainers that succeeded, failed, run now.
    pub succeeded: u32,
    pub failed: u32,
    pub active: u32,
}

/// One worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
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
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
    pub exit_code: Option<i32>,
    /// The end in words.
    pub message: Option<String>,
}

/// `GET /api/v1/jobs/{job}`: the job, its workers and what happened when.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobDetail {
    pub job: JobView,
    pub workers: Vec<WorkerView>,
    pub events: Vec<EventView>,
}

/// One line of a job's history.
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
    /// Who is ahead, nearest first: name and id.
    #[serde(default)]
    pub ahead: Vec<String>,
    pub ahead_total: usize,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub estimate: Option<Timestamp>,
    /// What the estimate rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_basis: Option<String>,
    /// The smallest change that would start it now.
    pub change: Option<String>,
    /// For a failed job: the first worker that failed, its end in words, its last lines.
    pub first_failure: Option<FailureView>,
}

/// The worker that failed first, with the evidence.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureView {
    pub worker: WorkerView,
    pub exit: String,
    pub last_lines: Vec<String>,
    /// How many others ended because of it.
    pub others: u32,
}

/// One row of `get quota`; `None` means no limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaRow {
    /// `cpu`, `memory`, `gpu`, `parallelism`, `storage`.
    pub resource: String,
    pub limit: Option<String>,
    pub used: String,
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
    /// Workers that are being ended in the background.
    pub ending: u32,
    pub removed: bool,
}

/// Reply to `POST /api/v1/prune`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReply {
    pub removed: Vec<String>,
    /// Freed, or what would be: logs, working copies, packages.
    pub bytes: u64,
    /// What the ids in `removed` stand for.
    #[serde(default)]
    pub jobs: Vec<PrunedJob>,
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

/// One page of `GET /api/v1/jobs`; `next` is given back as `?after=`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPage {
    pub code: u16,
    pub msg: Vec<JobView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What the server says of a package that a client wants to use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackageReply {
    pub id: String,
    /// Digests (hex) of files the server cannot find among the caller's packages; empty: it is stored.
    pub missing: Vec<String>,
    /// Files among the missing of which the server has the beginning, from an upload that broke.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PackagePart>,
    pub stored: bool,
}

/// How much of a package's file the server has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackagePart {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: RelPath,
    /// Bytes from its beginning on; the rest may be sent as such.
    pub have: u64,
}
