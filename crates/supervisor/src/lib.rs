//! One small process per worker: isolates it, captures its output, records its exit.
//!
//! The server writes a [`protocol::WorkerPlan`] into a folder for the attempt and starts `paddlecloud-supervise
//! <folder>`. From then on the worker depends only on that process: the server may exit, restart and reconnect. *Not*
//! here: which workers exist, when a job ends, retries, and any network beyond loopback.
//!
//! How the server uses it:
//!
//! 1. `probe` once, at start; the result goes into every plan, and its `degraded` sentences are shown to the user.
//! 2. For an attempt: create a folder, [`protocol::WorkerPlan::store`], `start(program, folder)`: when that returns, the
//!    supervisor is detached and accepts connections.
//! 3. `connect(folder)`; the first line is a [`protocol::Report::State`]. The exit is [`protocol::Report::Exited`] or,
//!    if the connection just ends or is reset (the supervisor exited before it accepted), [`protocol::Exit::load`].
//! 4. No `exit.json` and not `is_alive(folder)`: the attempt was lost; `sweep(marker)`.
//!
//! Two engines use it. The local one isolates its workers as far as `probe` permits. In a pod, which is already
//! isolated, the launcher (`crates/runtime`) runs the same supervisor with [`protocol::Isolation::default`]: the gate
//! before a trainer's program, readiness by listening ports, the log and the recorded exit are the same code, without
//! namespaces and control groups. Its tests run in both modes. `core::exit` explains exits in words.
//!
//! What the server and a supervisor tell each other is in [`paddlecloud_worker`]. This crate needs Linux.

/// Writes to stderr, the supervisor's own error file. Unlike `eprintln!`, it does not panic if the write fails: the
/// disk may be full.
macro_rules! trouble {
    ($($message:tt)*) => {{
        let mut line = format!($($message)*);
        line.push('\n');
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}
use trouble;

#[cfg(doc)]
use paddlecloud_worker::protocol;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::{
    ActingAs, StartError, SweepError, Swept, act_as, connect, end_hung, find_account, hosts_text, is_alive,
    is_shortage, peer_user, probe, run, start, sweep, take_place,
};
