//! Fuzzes every reader with arbitrary bytes, seeded by `examples/fuzz_loop --seeds`.

#![no_main]

#[path = "../body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
