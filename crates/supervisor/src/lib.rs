//! One small process per worker: isolates it, captures its output, records its end.
//!
//! The server writes a [`protocol::WorkerPlan`] into a folder of the attempt and starts
//! `paddlecloud-supervise <folder>`. From then on the worker depends on that process alone: the
//! server may die, come back and connect again. What is *not* here: which workers exist, when a
//! job ends, retries, and everything about the network beyond loopback.
//!
//! How the server uses it:
//! 1. `probe` once, at its start; the result goes into every plan, its sentences to the user.
//! 2. For an attempt: make a folder, [`protocol::WorkerPlan::store`], run `paddlecloud-supervise
//!    <folder>` and wait for it: 0 means that the supervisor, now detached, can be reached.
//! 3. `connect(folder)`; the first line is a [`protocol::Report::State`]. The end is
//!    [`protocol::Report::Exited`] or, on a connection that just ends or is reset (the supervisor
//!    left before it was accepted), [`protocol::Exit::load`].
//! 4. No `exit.json` and not `is_alive(folder)`: the attempt was lost; `sweep(marker)`.
//!
//! [`protocol`] and [`log`] are portable and free of I/O tricks; the rest needs Linux.

/// Says something on stderr, which is the file of a supervisor's troubles. Unlike `eprintln!` it
/// does not panic when that cannot be written: the disk may be full just then.
macro_rules! trouble {
    ($($message:tt)*) => {{
        let mut line = format!($($message)*);
        line.push('\n');
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}
use trouble;

pub mod log;
pub mod protocol;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::{
    ActingAs, SweepError, Swept, act_as, connect, end_hung, find_account, is_alive, probe, run, sweep,
    take_place,
};
