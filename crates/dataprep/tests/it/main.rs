//! Every format into every other, and what is said where that cannot be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod elsewhere;
mod formats;
mod refusals;
mod review;
mod workbench;
