//! The program `paddlecloud-server`: jobs, users, quotas, logs, packages, and the engine that runs workers.
//!
//! `http` parses requests and calls `app`; `app` contains the use cases; only `reconcile` changes jobs; `engine`
//! runs their workers.

pub mod accounts;
pub mod app;
pub mod auth;
pub mod authority;
mod backup;
mod certificate_request;
pub mod config;
mod connections;
mod data_folder;
pub mod engine;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod homes;
pub mod http;
pub mod init;
mod job_status;
pub mod key_source;
pub mod lane;
pub mod locks;
pub mod logs;
pub mod metrics;
mod nearest;
pub mod oidc;
pub mod packages;
mod programs;
pub mod queue;
mod rates;
pub mod ready;
pub mod reconcile;
pub mod refusals;
mod run;
pub mod runs;
pub mod secrets;
pub mod start;
pub mod tls;
pub mod users;

pub use run::main;

/// The version of this program, sent with every reply.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
