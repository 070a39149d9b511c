//! A sum over a window of bytes that can move by one byte in constant time.

/// Two sums, of the bytes and of the bytes weighted by their distance from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rolling {
    plain: u32,
    weighted: u32,
    len: u32,
}

/// Bytes summed up at once; small enough for the inner loop to stay in vector registers.
const LANE: usize = 32;

impl Rolling {
    /// The sum of a whole window.
    pub fn of(window: &[u8]) -> Self {
        let (mut plain, mut weighted) = (0_u32, 0_u32);
        let lanes = window.chunks_exact(LANE);
        let rest = lanes.remainder();
        for lane in lanes {
            let (mut sum, mut slope) = (0_u32, 0_u32);
            for (position, byte) in lane.iter().enumerate() {
                sum += u32::from(*byte);
                slope += u32::from(*byte) * (LANE - position) as u32;
            }
            weighted = weighted
                .wrapping_add(plain.wrapping_mul(LANE as u32))
                .wrapping_add(slope);
            plain = plain.wrapping_add(sum);
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

    /// The sum of the window one byte further.
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

    proptest! {
        #[test]
        fn rolling_on_gives_the_same_as_starting_afresh(
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
