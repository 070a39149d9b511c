//! Every format into every other, and the errors where that is impossible.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod elsewhere;
mod formats;
mod refusals;
mod review;
mod workbench;
