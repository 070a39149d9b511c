//! Fuzzes the readers without cargo-fuzz: `fuzz_loop RUNS [SEED]` damages valid files at random.
//!
//! `fuzz_loop --seeds FOLDER` writes the undamaged files there, as a corpus for cargo-fuzz.

#[path = "../fuzz/body.rs"]
mod body;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use paddlecloud_recordio::{Compressor, HEADER_LEN, Header, Layout, WriteOptions, Writer};

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
    let mut noise = Noise(seed | 1);
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

/// Small files of every compressor and layout, with a RecordIO file inside a record.
fn seeds() -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let plain: Vec<Vec<u8>> = (0..12u8).map(|i| vec![i; usize::from(i) * 7 % 40]).collect();
    let inner = write(&plain[..4], Compressor::None, 20)?;
    let mut nested = plain.clone();
    nested.insert(5, inner);
    let mut seeds = Vec::new();
    for compressor in Compressor::ALL {
        seeds.push(write(&plain, compressor, 60)?);
        seeds.push(write(&nested, compressor, 200)?);
    }
    let fluid: Vec<_> = seeds[..4].iter().map(|file| to_fluid(file)).collect();
    seeds.extend(fluid);
    Ok(seeds)
}

fn write(
    records: &[Vec<u8>],
    compressor: Compressor,
    chunk_size: u64,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let options = WriteOptions::new().compressor(compressor).chunk_size(chunk_size);
    let mut writer = Writer::new(Vec::new(), options)?;
    for record in records {
        writer.write(record)?;
    }
    Ok(writer.finish()?.0)
}

/// The same chunks with their headers in the other order.
fn to_fluid(file: &[u8]) -> Vec<u8> {
    let mut out = file.to_vec();
    let mut at = 0;
    while let Some(bytes) = file[at..].first_chunk::<HEADER_LEN>() {
        let header = Header::parse(bytes, Layout::Cloud).expect("the file was just written");
        out[at..at + HEADER_LEN].copy_from_slice(&header.to_bytes(Layout::Fluid));
        at += header.chunk_len() as usize;
    }
    out
}

/// A small generator (xorshift): a seed gives the same runs everywhere.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..self.below(5) {
            let at = self.below(bytes.len());
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = self.next() as u8,
                2 => bytes.truncate(at),
                3 => bytes.resize(bytes.len() + self.below(60), 0),
                4 => drop(bytes.drain(at..bytes.len().min(at + self.below(60)))),
                5 => drop(bytes.splice(at..at, seeds[self.below(seeds.len())].clone())),
                _ if at + 4 <= bytes.len() => {
                    let word = [0, 1, 4, 20, 0x0102_0304, u32::MAX][self.below(6)];
                    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
                _ => {}
            }
        }
        bytes
    }
}
