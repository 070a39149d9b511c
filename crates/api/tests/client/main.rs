//! The client against servers that misbehave on purpose.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calls;
mod following;
#[cfg(unix)]
mod reviving;
mod scripted;
mod sockets;
