//! A few thousand runs of the fuzzer; `cargo run --release --example fuzz_requests 1000000` makes more.

#[path = "../../fuzz/body.rs"]
mod body;

use body::{Noise, run, session};
use paddlecloud_pserver::steps::Mode;

#[test]
fn damaged_requests_neither_crash_a_server_nor_exceed_its_memory() {
    let seeds = [session(Mode::Sync), session(Mode::Async)];
    seeds.iter().for_each(|requests| run(requests));
    let mut noise = Noise::new(7);
    for _ in 0..5000 {
        run(&noise.damaged(&seeds));
    }
}
