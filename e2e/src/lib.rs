//! Drives the real programs as a user does: an empty home, a cleared environment, nothing left behind.
//!
//! This is only the test environment; the tests are in `tests/`, one file per theme. It uses none of our crates, so
//! that it sees what users see.
#![cfg(target_os = "linux")]

pub mod api_proxy;
mod background;
pub mod cluster;
mod disk;
mod environment;
mod gate;
mod leftovers;
mod package;
mod program;
mod ran;
mod shared;
mod small_memory;
mod wait;

pub use background::Background;
pub use disk::Disk;
pub use environment::TestEnvironment;
pub use gate::Gate;
pub use leftovers::Process;
pub use package::Package;
pub use program::{built as built_program, link_names_to};
pub use ran::Ran;
pub use shared::{PASSWORD, Shared};
pub use small_memory::SmallMemory;
pub use wait::{LIMIT, wait_until};
