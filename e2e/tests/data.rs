//! Data sets, driven as a user does: `paddlectl data`, `paddle-data` and the scripts that build images.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "data/commands.rs"]
mod commands;
#[path = "data/docker.rs"]
mod docker;
#[path = "data/examples.rs"]
mod examples;
#[path = "data/faults.rs"]
mod faults;
#[path = "data/legacy.rs"]
mod legacy;
#[path = "data/preparation.rs"]
mod preparation;
#[path = "data/python.rs"]
mod python;
#[path = "data/resume.rs"]
mod resume;
#[path = "data/ten_trainers.rs"]
mod ten_trainers;
#[path = "data/training.rs"]
mod training;
#[path = "data/wide_and_deep.rs"]
mod wide_and_deep;
