//! A whole server on port 0 and on a unix socket, spoken to byte by byte.
//!
//! One small job holds a bit of the machine, so that the jobs of the tests wait until they are killed: what
//! becomes of jobs that run is tested with the real programs elsewhere.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod client;
mod departing;
mod engine;
mod jobs;
mod life;
mod logins;
mod package_turns;
mod packages;
mod stage;
mod system_users;
mod tls;
mod wire;
