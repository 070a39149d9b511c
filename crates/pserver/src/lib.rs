//! The parameter server of PaddleCloud and its client.
//!
//! Trainers push gradients and pull parameters; each server holds a portion of the parameters. See
//! `docs/design/0012-parameter-server.md`. This crate knows nothing of jobs, datacenters or Python.

pub mod budget;
mod checkpoint;
pub mod client;
pub mod codec;
pub mod dense;
pub mod hello;
pub mod message;
pub mod optimizer;
pub mod placement;
mod planted;
mod refusal;
mod saving;
pub mod schedule;
pub mod server;
mod shared;
pub mod sparse;
pub mod steps;
mod stream;
mod tensor_name;
pub mod wire;

#[cfg(test)]
#[path = "../tests/crashes/mod.rs"]
mod crashes;
