//! One program that answers to every name.
fn main() {}
