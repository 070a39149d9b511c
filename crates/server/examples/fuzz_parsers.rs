//! Fuzzes the parsers of untrusted bytes: `fuzz_parsers RUNS [SEED]` gives each of them damaged inputs.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use targets::{Noise, Target, targets};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let (runs, seed) = match numbers[..] {
        [runs] => (runs, 1),
        [runs, seed] => (runs, seed),
        _ => return Err("usage: fuzz_parsers RUNS [SEED]".into()),
    };
    for target in targets() {
        fuzz(&target, runs, seed)?;
        println!("{}: {runs} runs of seed {seed} without a failure", target.name);
    }
    Ok(())
}

fn fuzz(target: &Target, runs: u64, seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut noise = Noise::new(seed);
    for n in 0..runs {
        let bytes = noise.damaged(&target.seeds);
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_err() {
            let path = std::env::temp_dir().join(format!("parser-fuzz-{seed}-{n}"));
            std::fs::write(&path, &bytes)?;
            let name = target.name;
            let path = path.display();
            return Err(format!("{name}: run {n} of seed {seed} failed; its input is in `{path}`").into());
        }
    }
    Ok(())
}
