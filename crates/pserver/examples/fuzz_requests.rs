//! Fuzzes the server: `fuzz_requests RUNS [SEED]` sends it damaged requests.

#[path = "../fuzz/body.rs"]
mod body;

use std::panic::{AssertUnwindSafe, catch_unwind};

use body::{Noise, session};
use paddlecloud_pserver::steps::Mode;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let (runs, seed) = match numbers[..] {
        [runs] => (runs, 1),
        [runs, seed] => (runs, seed),
        _ => return Err("usage: fuzz_requests RUNS [SEED]".into()),
    };
    let seeds = [session(Mode::Sync), session(Mode::Async)];
    let mut noise = Noise::new(seed);
    for n in 0..runs {
        let bytes = noise.damaged(&seeds);
        if catch_unwind(AssertUnwindSafe(|| body::run(&bytes))).is_err() {
            let path = std::env::temp_dir().join(format!("ps-fuzz-{seed}-{n}"));
            std::fs::write(&path, &bytes)?;
            return Err(format!(
                "run {n} of seed {seed} failed; its input is in `{}`",
                path.display()
            )
            .into());
        }
    }
    println!("{runs} runs of seed {seed} without a failure");
    Ok(())
}
