//! The program `paddlecloud-server`: jobs, users, quotas, logs, packages, and the engine that runs workers.
//!
//! `http` reads requests and calls `app`; `app` holds the use cases; `reconcile` alone changes jobs;
//! `store` keeps them; `engine` runs their workers.

pub mod app;
pub mod auth;
pub mod config;
mod data_folder;
mod durable;
pub mod engine;
pub mod files;
pub mod http;
pub mod lane;
pub mod logs;
pub mod long;
pub mod metrics;
mod nearest;
pub mod openapi;
pub mod packages;
pub mod ready;
pub mod reconcile;
mod run;
#[cfg(test)]
mod small_disk;
pub mod start;
pub mod store;
pub mod tls;

pub use run::main;

/// The version of this program, as every reply carries it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
