//! The domain: what a job is, what it needs, when it may start and how it ends.
//!
//! Values in, values out. Nothing here reads a file, opens a socket or reads the clock: a function that needs the time
//! takes `now`.

pub mod access;
pub mod command;
pub mod conductor;
pub mod duration;
pub mod error_chain;
pub mod exit;
pub mod gpu;
pub mod job;
pub mod names;
pub mod plan;
pub mod planted;
pub mod ports;
pub mod quantity;
pub mod resumed;
pub mod scheduler;
pub mod spec;
pub mod testing;
