//! The client as people use it: command lines in, text and exit codes out, a real server on a real socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod bad_input;
mod configuration;
mod controls;
mod copying;
mod data_sets;
mod doctoring;
mod documents;
mod helping;
#[cfg(target_os = "linux")]
mod replacing;
mod scripted;
mod shell;
mod showing;
mod submitting;
