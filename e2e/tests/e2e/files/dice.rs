//! Repeatable random numbers, from a seed that is printed.

use std::env::var;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring numbers.
        let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self((mixed ^ (mixed >> 29)) | 1)
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        range.start + (self.0 >> 11) % (range.end - range.start)
    }
}

/// Another one in every run, printed, unless `PADDLECLOUD_TEST_SEED` repeats an earlier one.
pub fn seed() -> u64 {
    let requested = var("PADDLECLOUD_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = requested.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    eprintln!("PADDLECLOUD_TEST_SEED={seed} repeats this");
    seed
}
