//! The program `paddlecloud-server`: jobs, users, quotas, logs, packages, and the engine that runs workers.
//!
//! `http` parses requests and calls `app`; `app` contains the use cases; only `reconcile` changes jobs; `engine`
//! runs their workers.

pub mod app;
mod backup;
pub mod config;
mod data_folder;
pub mod engine;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod init;
mod job_status;
pub mod logs;
pub mod metrics;
mod nearest;
mod programs;
pub mod ready;
pub mod reconcile;
mod run;
pub mod start;

pub use run::main;

/// The version of this program, sent with every reply.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
