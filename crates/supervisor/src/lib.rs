//! One small process per worker: isolates it, captures its output, records its end.
//!
//! The server writes a [`protocol::WorkerPlan`] into a folder of the attempt and starts
//! `paddlecloud-supervise <folder>`. From then on the worker depends on that process alone: the
//! server may die, come back and connect again. What is *not* here: which workers exist, when a
//! job ends, retries, and everything about the network beyond loopback.
//!
//! [`protocol`] and [`log`] are portable and free of I/O tricks; the rest needs Linux.

pub mod log;
pub mod protocol;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::{SweepError, Swept, connect, is_alive, probe, run, sweep};
