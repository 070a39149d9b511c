//! Every operation of the typed client, as Python sends it: `{"do": "job_get", "job": "last"}`.

use std::path::PathBuf;
use std::time::Duration;

use paddlecloud_api::client::{AnyRequest, Client, ClientError, JobFilter, new_idempotency_key};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::jobs::{JobRequest, KillOptions, PruneOptions, SubmitReply};
use paddlecloud_connect::package::{self, Delivery, Package};
use paddlecloud_connect::{ConnectError, Environment, Session, check_programs, python_note};
use paddlecloud_transfer::FileService;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::files::FileOperation;

#[derive(Clone, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Operation {
    JobsList {
        all: bool,
        limit: Option<u32>,
        name: Option<String>,
        after: Option<String>,
        #[serde(default)]
        all_users: bool,
        #[serde(default)]
        reasons: bool,
    },
    JobSubmit {
        request: Box<JobRequest>,
        /// A local folder that becomes the job's package.
        folder: Option<PathBuf>,
        key: Option<String>,
    },
    JobGet {
        job: String,
    },
    JobKill {
        job: String,
        remove: bool,
    },
    JobWhy {
        job: String,
    },
    JobWait {
        job: String,
        /// Seconds; `None`: until the job has ended.
        timeout: Option<f64>,
    },
    JobRerun {
        job: String,
        key: Option<String>,
    },
    JobsPrune {
        /// Seconds.
        older_than: Option<f64>,
        dry_run: bool,
    },
    WorkersList {
        job: Option<String>,
        #[serde(default)]
        all_users: bool,
    },
    QuotaGet {
        #[serde(default)]
        all_users: bool,
    },
    ServerGet,
    ServerStop,
    WhoamiGet,
    Ping,
    Login,
    Files {
        call: FileOperation,
    },
    /// Any route, by its name; the reply is handed on as it came.
    Request {
        method: String,
        target: String,
        json: Option<serde_json::Value>,
    },
}

/// The result of an operation: JSON, or a file's bytes.
pub enum Reply {
    Text(String),
    Bytes(Vec<u8>),
}

impl Reply {
    pub fn into_object(self, py: Python<'_>) -> Py<PyAny> {
        match self {
            Reply::Text(text) => PyString::new(py, &text).into_any().unbind(),
            Reply::Bytes(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
        }
    }
}

impl Operation {
    pub async fn run(self, session: &Session, environment: &Environment) -> Result<Reply, Failure> {
        let client = &session.client;
        match self {
            Operation::JobsList {
                all,
                limit,
                name,
                after,
                all_users,
                reasons,
            } => {
                let filter = JobFilter {
                    all,
                    limit,
                    name,
                    after,
                    all_users,
                    reasons,
                };
                reply(&client.jobs_list(&filter).await?)
            }
            Operation::JobSubmit {
                mut request,
                folder,
                key,
            } => {
                let active = request.shell_env.get("VIRTUAL_ENV").cloned();
                let active = active.or_else(|| environment.python_environment().map(str::to_owned));
                share_shell(&mut request, session, environment);
                let package = match folder {
                    Some(folder) => Some(collect(folder, &mut request).await?),
                    None => None,
                };
                let notes = package.as_ref().map(notes_on).unwrap_or_default();
                let mut accepted = submit(client, &request, package, &sure(key)).await?;
                accepted.notes.splice(0..0, notes);
                accepted.notes.extend(python_note(&accepted, active.as_deref()));
                reply(&accepted)
            }
            Operation::JobGet { job } => reply(&client.job_get(&job).await?),
            Operation::JobKill { job, remove } => {
                let options = KillOptions { remove, now: false };
                reply(&client.job_kill(&job, options).await?)
            }
            Operation::JobWhy { job } => reply(&client.job_why(&job).await?),
            Operation::JobWait { job, timeout } => reply(&client.job_wait(&job, timeout.map(seconds)).await?),
            Operation::JobRerun { job, key } => reply(&client.job_rerun(&job, None, &sure(key)).await?),
            Operation::JobsPrune { older_than, dry_run } => {
                let options = PruneOptions {
                    dry_run,
                    outputs: false,
                };
                reply(&client.jobs_prune(older_than.map(seconds), options).await?)
            }
            Operation::WorkersList { job, all_users } => {
                reply(&client.workers_list(job.as_deref(), all_users).await?)
            }
            Operation::QuotaGet { all_users } => reply(&client.quota_get(all_users).await?),
            Operation::ServerGet => reply(&client.server_get().await?),
            Operation::ServerStop => reply(&stop(session).await?),
            Operation::WhoamiGet => reply(&client.whoami_get().await?),
            Operation::Ping => reply(&client.ping().await?),
            Operation::Login => {
                client.login().await?;
                reply(&())
            }
            Operation::Files { call } => call.run(client.files()).await,
            Operation::Request { method, target, json } => {
                let request = AnyRequest::new(&method, &target, json.as_ref());
                let request =
                    request.ok_or_else(|| local(format!("`{method} {target}` is not a request")))?;
                Ok(Reply::Bytes(client.send_any(&request).await?.into()))
            }
        }
    }
}

/// A value as JSON.
pub fn reply(value: &impl Serialize) -> Result<Reply, Failure> {
    let text = serde_json::to_string(value).expect("wire types always serialize");
    Ok(Reply::Text(text))
}

/// The embedded server has exited when this returns; a shared one has only been asked to stop.
async fn stop(session: &Session) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    if session.is_embedded {
        return Ok(paddlecloud_connect::embedded::stop(&session.client).await?);
    }
    Ok(session.client.server_stop().await?)
}

fn sure(key: Option<String>) -> String {
    key.unwrap_or_else(new_idempotency_key)
}

/// An error that this client finds without the server.
fn local(message: String) -> Failure {
    let hints = Vec::new();
    Failure::from(ConnectError::Refused { message, hints })
}

/// A number too large for a duration means no limit; Python has already refused negative values and NaN.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number.max(0.0)).unwrap_or(Duration::MAX / 4)
}

/// The embedded server also gets the submitter's `PATH` and locale; on a shared server they have no meaning.
fn share_shell(request: &mut JobRequest, session: &Session, environment: &Environment) {
    let given = std::mem::take(&mut request.shell_env);
    if session.is_embedded {
        request.shell_env = environment.shell();
        request.shell_env.extend(given);
    }
}

/// Checks the request and reads the folder, which becomes the job's package; nothing is sent yet.
async fn collect(folder: PathBuf, request: &mut JobRequest) -> Result<Package, Failure> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let checked = request.to_spec(name.or_else(|| Some("job".to_owned())));
    checked.map_err(|error| ClientError::Refused(error.into()))?;
    let collected = tokio::task::spawn_blocking(move || package::collect(&folder)).await;
    let package = collected.map_err(|error| local(format!("reading the package failed: {error}")))??;
    check_programs(request, &package)?;
    request.package_id = Some(package.id());
    request.package_name = Some(package.name.clone());
    Ok(package)
}

/// What the command line says before it uploads.
fn notes_on(package: &Package) -> Vec<String> {
    let mut notes = package.left_out();
    let volume = package.volume();
    if volume.is_large() {
        notes.push(format!(
            "the package has {} MB in {} files: list what the job does not need in `.paddleignore`; upload data \
             with `paddlectl cp` and read it from `/pfs/…`",
            volume.bytes / 1_000_000,
            volume.files
        ));
    }
    notes
}

/// The server checks everything else before it asks for the package; where it has it already, nothing is sent.
async fn submit(
    client: &Client,
    request: &JobRequest,
    package: Option<Package>,
    key: &str,
) -> Result<SubmitReply, Failure> {
    let Some(package) = package else {
        return Ok(client.job_submit(request, key).await?);
    };
    let mut request = request.clone();
    package.list_in(&mut request);
    let mut delivery = Delivery::of(client, &package);
    loop {
        match client.job_submit(&request, key).await {
            Err(missing) if missing.refusal() == Some(ErrorName::PackageMissing) => {
                delivery.send(missing, |_, _| {}).await?;
            }
            Err(error) => delivery.after(error).await?,
            Ok(reply) => return Ok(reply),
        }
    }
}
