//! The program `paddlecloud-server`: jobs, users, quotas, logs, packages, and the engine that runs workers.
//!
//! `http` parses requests and calls `app`; `app` contains the use cases; only `reconcile` changes jobs; `engine`
//! runs their workers.

pub mod app;
mod backup;
pub mod config;
mod data_folder;
pub mod engine;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod homes;
pub mod http;
pub mod init;
mod job_status;
pub mod lane;
pub mod locks;
pub mod logs;
pub mod metrics;
mod nearest;
pub mod packages;
mod programs;
pub mod queue;
pub mod ready;
pub mod reconcile;
mod run;
pub mod runs;
pub mod start;

pub use run::main;

/// The version of this program, sent with every reply.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
