//! Transfers against servers that misbehave on purpose.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod files;
mod rewritten;
#[path = "../../../api/tests/client/scripted.rs"]
mod scripted;
mod uploads;
