//! Inputs for the readers: small valid files, and those files damaged at random; the same seed gives the same inputs
//! everywhere.

use paddlecloud_recordio::{Compressor, HEADER_LEN, Header, Layout, WriteError, WriteOptions, Writer};

/// Small files of every compressor and layout, with a RecordIO file inside a record.
pub fn seeds() -> Result<Vec<Vec<u8>>, WriteError> {
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
    seeds.push(OLD_SNAPPY[..OLD_SNAPPY_CHUNK].to_vec());
    Ok(seeds)
}

/// The first chunk of this is small.
const OLD_SNAPPY: &[u8] = include_bytes!("../tests/vectors/fluid-snappystream-cpp.rio");
const OLD_SNAPPY_CHUNK: usize = HEADER_LEN + 651;

fn write(records: &[Vec<u8>], compressor: Compressor, chunk_size: u64) -> Result<Vec<u8>, WriteError> {
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

/// A small generator (xorshift).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// One of the seeds, with up to four errors.
    pub fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
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
