//! Tests of the format through its public interface.

#![allow(clippy::unwrap_used, reason = "this is a test program, helpers and all")]

mod atomicity;
mod bounded;
mod damage;
mod embedded;
mod fuzz_smoke;
mod indexed;
mod original;
mod parallel;
mod proptest_damage;
mod random_access;
mod ranges;
mod samples;
mod shrinking;
mod stream_skip;
mod vectors;
