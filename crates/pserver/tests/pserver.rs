//! The parameter server as its clients see it: over real connections, and fuzzed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "pserver/checkpoints.rs"]
mod checkpoints;
#[path = "pserver/contradictions.rs"]
mod contradictions;
#[path = "pserver/counters.rs"]
mod counters;
#[path = "pserver/eviction.rs"]
mod eviction;
#[path = "pserver/floods.rs"]
mod floods;
#[path = "pserver/fuzz.rs"]
mod fuzz;
#[path = "pserver/models.rs"]
mod models;
#[path = "pserver/optimizers.rs"]
mod optimizers;
#[path = "pserver/reading.rs"]
mod reading;
#[path = "pserver/remainders.rs"]
mod remainders;
#[path = "pserver/restarts.rs"]
mod restarts;
#[path = "pserver/resume.rs"]
mod resume;
#[path = "pserver/simulator.rs"]
mod simulator;
#[path = "pserver/states.rs"]
mod states;
#[path = "pserver/training.rs"]
mod training;
