//! A short run of the fuzzer: the same checks on inputs that are always the same.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/body.rs"]
mod body;
#[path = "../../fuzz/inputs.rs"]
mod inputs;

const RUNS: usize = 3_000;
const SEED: u64 = 20_261_115;

#[test]
fn readers_agree_on_good_files_and_on_damaged_ones() {
    let seeds = inputs::seeds().unwrap();
    seeds.iter().for_each(|bytes| body::run(bytes));
    let mut noise = inputs::Noise::new(SEED);
    for _ in 0..RUNS {
        body::run(&noise.damaged(&seeds));
    }
}

#[test]
fn readers_agree_on_every_beginning_of_the_vectors() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    for name in [
        "cloud-none.rio",
        "cloud-snappy.rio",
        "cloud-gzip.rio",
        "fluid-none.rio",
        "fluid-snappy.rio",
    ] {
        let bytes = fs::read(vectors.join(name)).unwrap();
        for end in (0..=bytes.len()).step_by(7) {
            body::run(&bytes[..end]);
        }
    }
}
