//! For tests in this crate and others: fakes that fail on anything unexpected, one suite per port, and a simulator that
//! drives the conductor through every fault it must survive.
//!
//! Only tests use this.

mod block_on;
pub mod engine_suite;
pub mod job_store_suite;
pub mod log_suite;
mod memory_logs;
mod memory_store;
mod pretend_engine;
mod pretend_runs;
pub mod rng;
pub mod samples;
pub mod simulator;
mod strict_engine;
pub mod worker_variables;

pub use block_on::block_on;
pub use memory_logs::MemoryLogs;
pub use memory_store::MemoryStore;
pub use pretend_engine::{PretendEngine, PretendMachine};
pub use pretend_runs::{PretendRuns, UNPREPARED};
pub use strict_engine::{Order, StrictEngine};
