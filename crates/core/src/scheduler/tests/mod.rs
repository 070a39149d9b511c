//! Tests of the whole scheduler: examples of each rule, then random workloads against a plain reference.

mod build;
mod examples;
mod explaining;
mod labelled;
mod properties;
mod reclaiming;
mod reference;
