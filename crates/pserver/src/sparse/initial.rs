//! The initial values of rows.

use crate::message::{Init, TableSpec};
use crate::placement::mix;

/// Initial values of a row: a function of seed, table and id, independent of the server.
#[derive(Debug)]
pub struct InitialValues {
    init: Init,
    start: u64,
}

impl InitialValues {
    pub fn new(spec: &TableSpec) -> InitialValues {
        let digest = blake3::hash(spec.name.as_bytes());
        let mut name = [0; 8];
        name.copy_from_slice(&digest.as_bytes()[..8]);
        InitialValues {
            init: spec.init,
            start: mix(spec.seed ^ u64::from_le_bytes(name)),
        }
    }

    pub fn fill(&self, id: u64, out: &mut [f32]) {
        let mut state = mix(self.start ^ mix(id));
        // 24 bits: the precision of a float between 0 and 1.
        let mut uniform = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            (mix(state) >> 40) as f32 / (1 << 24) as f32
        };
        match self.init {
            Init::Zero => out.fill(0.0),
            Init::Uniform { low, high } => out.iter_mut().for_each(|x| *x = low + (high - low) * uniform()),
            // The sum of twelve uniform numbers: close enough to normal, and the same on every machine.
            Init::Normal { mean, deviation } => out.iter_mut().for_each(|x| {
                let sum = (0..12).fold(0.0, |sum, _| sum + uniform());
                *x = mean + deviation * (sum - 6.0);
            }),
        }
    }
}
