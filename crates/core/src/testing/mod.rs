//! For tests here and in other crates: fakes that fail on anything unexpected, one suite per port, and a
//! simulator that drives the conductor through every misfortune it is built for.
//!
//! Nothing outside tests uses this, except the switch for planted bugs, which is constantly off there.

mod block_on;
pub mod engine_suite;
pub mod job_store_suite;
mod memory_store;
pub mod planted;
mod pretend_engine;
pub mod rng;
pub mod samples;
pub mod simulator;
mod strict_engine;

pub use block_on::block_on;
pub use memory_store::MemoryStore;
pub use pretend_engine::{PretendEngine, PretendMachine};
pub use strict_engine::{Order, StrictEngine};
