//! The supervisor on the real kernel: as root and as nobody, with and without namespaces.
//!
//! Tests that need root are skipped for other users; these still run everything else.
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
