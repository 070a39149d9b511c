//! The supervisor against the real kernel: as root and as nobody, with and without namespaces.
//!
//! What needs root is left out for other users, who still run everything in their own ways.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "the harness serves tests only, beyond what clippy can see"
)]

mod harness;
mod isolation;
mod life;
mod limits;
mod output;
mod ports;
mod users;
