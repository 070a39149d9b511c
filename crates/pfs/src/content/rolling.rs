//! A sum over a window of bytes that moves by one byte in constant time.

/// Two sums, of the bytes and of the bytes weighted by their distance from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rolling {
    plain: u32,
    weighted: u32,
    len: u32,
}

/// Bytes summed in parallel: the inner loop needs no multiplication and stays in vector registers.
const LANES: usize = 16;

impl Rolling {
    /// The sum of a whole window.
    pub fn of(window: &[u8]) -> Self {
        let (rows, rest) = window.as_chunks::<LANES>();
        let (mut sums, mut ramps) = ([0_u32; LANES], [0_u32; LANES]);
        for row in rows {
            for lane in 0..LANES {
                sums[lane] = sums[lane].wrapping_add(u32::from(row[lane]));
                ramps[lane] = ramps[lane].wrapping_add(sums[lane]);
            }
        }
        // A byte in row r of R and lane l weighs LANES * (R - r) - l; the ramps hold the first part.
        let (mut plain, mut weighted) = (0_u32, 0_u32);
        for (lane, (sum, ramp)) in sums.into_iter().zip(ramps).enumerate() {
            plain = plain.wrapping_add(sum);
            let steep = ramp.wrapping_mul(LANES as u32);
            weighted = weighted
                .wrapping_add(steep)
                .wrapping_sub(sum.wrapping_mul(lane as u32));
        }
        for byte in rest {
            plain = plain.wrapping_add(u32::from(*byte));
            weighted = weighted.wrapping_add(plain);
        }
        Self {
            plain,
            weighted,
            len: window.len() as u32,
        }
    }

    /// The sum of the window moved by one byte.
    pub fn roll(self, out: u8, next: u8) -> Self {
        let out = u32::from(out);
        let plain = self.plain.wrapping_sub(out).wrapping_add(u32::from(next));
        let weighted = self
            .weighted
            .wrapping_sub(out.wrapping_mul(self.len))
            .wrapping_add(plain);
        Self {
            plain,
            weighted,
            ..self
        }
    }

    /// Both sums as one number.
    pub fn value(self) -> u64 {
        u64::from(self.weighted) << 32 | u64::from(self.plain)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sums_are_those_of_the_definition() {
        let window: Vec<u8> = (0..100).map(|i| (i * 37) as u8).collect();
        let plain: u32 = window.iter().map(|byte| u32::from(*byte)).sum();
        let weighted: u32 = window
            .iter()
            .zip((1..=100).rev())
            .map(|(byte, weight)| u32::from(*byte) * weight)
            .sum();
        assert_eq!(
            Rolling::of(&window).value(),
            u64::from(weighted) << 32 | u64::from(plain)
        );
    }

    proptest! {
        #[test]
        fn a_rolled_sum_equals_a_fresh_one(
            bytes in proptest::collection::vec(any::<u8>(), 2..400),
            len in 1_usize..200,
        ) {
            let len = len.min(bytes.len() - 1);
            let mut sum = Rolling::of(&bytes[..len]);
            for start in 1..=bytes.len() - len {
                sum = sum.roll(bytes[start - 1], bytes[start + len - 1]);
                prop_assert_eq!(sum, Rolling::of(&bytes[start..start + len]));
            }
        }
    }
}
