//! A whole server on port 0 and on a Unix socket, tested byte by byte.
//!
//! One small job holds a part of the machine, so that the jobs of the tests wait until they are killed; running jobs
//! are tested with the real programs elsewhere.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod client;
mod departing;
mod engine;
mod fuzz;
mod home_owners;
mod isolation;
mod jobs;
mod kubernetes;
mod life;
mod limits;
mod listed_packages;
mod logins;
mod package_turns;
mod packages;
mod quotas;
mod resilience;
mod resume;
mod scopes;
mod secrets;
mod stage;
mod system_users;
mod tls;
mod tokens;
mod wire;
