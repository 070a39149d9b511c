//! What a worker is, for all who run or watch one: its plan, commands, reports and exit, its log, and the frames of the
//! link between a pod and the server.
//!
//! Values and files. *Not* here: processes, sockets and Kubernetes. Supervisors and launchers of an earlier version
//! outlive an upgrade of the server, so `tests/bytes.rs` fixes the bytes of everything they exchange.

pub mod attempts;
pub mod link;
pub mod log;
pub mod news;
mod plan;
pub mod printed;
pub mod protocol;
