//! For tests here and in other crates: fakes that fail on anything unexpected, one suite per port, and a
//! simulator that drives the conductor through every misfortune it is built for.
//!
//! Nothing outside tests uses this, except the switch for planted bugs, which is constantly off there.

pub mod planted;
pub mod rng;
pub mod simulator;
