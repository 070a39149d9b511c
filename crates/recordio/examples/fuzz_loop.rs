//! Fuzzes the readers without cargo-fuzz: `fuzz_loop RUNS [SEED]` damages valid files at random.
//!
//! `fuzz_loop --seeds FOLDER` writes the undamaged files there, as a corpus for cargo-fuzz.

#[path = "../fuzz/body.rs"]
mod body;
#[path = "../fuzz/inputs.rs"]
mod inputs;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use inputs::{Noise, seeds};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--seeds", folder] => write_seeds(Path::new(folder)),
        [runs] => run(runs.parse()?, 1),
        [runs, seed] => run(runs.parse()?, seed.parse()?),
        _ => Err("usage: fuzz_loop RUNS [SEED] | --seeds FOLDER".into()),
    }
}

fn write_seeds(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(folder)?;
    for (n, file) in seeds()?.into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{n}")), file)?;
    }
    Ok(())
}

fn run(runs: u64, seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let seeds = seeds()?;
    let mut noise = Noise::new(seed);
    for n in 0..runs {
        let bytes = noise.damaged(&seeds);
        if catch_unwind(AssertUnwindSafe(|| body::run(&bytes))).is_err() {
            let path = std::env::temp_dir().join(format!("fuzz-loop-{seed}-{n}"));
            fs::write(&path, &bytes)?;
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
