//! Every operation of the typed client, as Python sends it: `{"do": "job_get", "job": "last"}`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use paddlecloud_api::client::{JobFilter, new_idempotency_key};
use paddlecloud_api::jobs::JobRequest;
use paddlecloud_connect::{ConnectError, Environment, Session, package};
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
    },
    QuotaGet,
    ServerGet,
    ServerStop,
    WhoamiGet,
    Ping,
    Login,
    Files {
        call: FileOperation,
    },
}

/// What an operation brings: JSON, or a file's bytes.
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
            } => {
                let filter = JobFilter {
                    all,
                    limit,
                    name,
                    after,
                };
                reply(&client.jobs_list(&filter).await?)
            }
            Operation::JobSubmit {
                mut request,
                folder,
                key,
            } => {
                share_shell(&mut request, session, environment);
                if let Some(folder) = folder {
                    bring(&folder, &mut request, session).await?;
                }
                reply(&client.job_submit(&request, &sure(key)).await?)
            }
            Operation::JobGet { job } => reply(&client.job_get(&job).await?),
            Operation::JobKill { job, remove } => reply(&client.job_kill(&job, remove).await?),
            Operation::JobWhy { job } => reply(&client.job_why(&job).await?),
            Operation::JobWait { job, timeout } => reply(&client.job_wait(&job, timeout.map(seconds)).await?),
            Operation::JobRerun { job, key } => reply(&client.job_rerun(&job, &sure(key)).await?),
            Operation::JobsPrune { older_than, dry_run } => {
                reply(&client.jobs_prune(older_than.map(seconds), dry_run).await?)
            }
            Operation::WorkersList { job } => reply(&client.workers_list(job.as_deref()).await?),
            Operation::QuotaGet => reply(&client.quota_get().await?),
            Operation::ServerGet => reply(&client.server_get().await?),
            Operation::ServerStop => reply(&stop(session).await?),
            Operation::WhoamiGet => reply(&client.whoami_get().await?),
            Operation::Ping => reply(&client.ping().await?),
            Operation::Login => {
                client.login().await?;
                reply(&())
            }
            Operation::Files { call } => call.run(client.files()).await,
        }
    }
}

/// A value as JSON.
pub fn reply(value: &impl Serialize) -> Result<Reply, Failure> {
    let text = serde_json::to_string(value).expect("wire types always serialize");
    Ok(Reply::Text(text))
}

/// On one machine the server is gone when this returns; elsewhere it has been asked to go.
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

/// What is longer than a duration can be means for ever; Python has refused what is negative or no number.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number.max(0.0)).unwrap_or(Duration::MAX / 4)
}

/// On one machine the submitter's `PATH` and locale come along; elsewhere they mean nothing.
fn share_shell(request: &mut JobRequest, session: &Session, environment: &Environment) {
    let given = std::mem::take(&mut request.shell_env);
    if session.is_embedded {
        request.shell_env = environment.shell();
        request.shell_env.extend(given);
    }
}

/// Brings the folder up, as far as the server lacks it, and makes it the job's package.
async fn bring(folder: &Path, request: &mut JobRequest, session: &Session) -> Result<(), Failure> {
    let folder = folder.to_owned();
    let collected = tokio::task::spawn_blocking(move || package::collect(&folder)).await;
    let package = collected.unwrap_or_else(|error| {
        Err(ConnectError::Refused {
            message: format!("reading the package failed: {error}"),
            hints: Vec::new(),
        })
    })?;
    if !request.dry_run {
        package::upload(&session.client, &package, |_, _| {}).await?;
    }
    request.package_id = Some(package.id());
    request.package_name = Some(package.name);
    Ok(())
}
