//! A few thousand runs of the fuzzer; `cargo run --release -p paddlecloud-server --example fuzz_parsers 1000000` makes more.

#[path = "../../fuzz/targets.rs"]
mod targets;

use targets::{Noise, targets};

#[test]
fn damaged_bytes_crash_no_parser() {
    for target in targets() {
        println!("{}", target.name);
        target.seeds.iter().for_each(|seed| (target.run)(seed));
        let mut noise = Noise::new(7);
        for _ in 0..2000 {
            (target.run)(&noise.damaged(&target.seeds));
        }
    }
}
