//! Encodings of gradients in fewer bytes: two kinds of half precision, and a selection of elements.

use std::io::{self, Read};

use crate::message::Encoding;

/// Bytes decoded at a time.
const CHUNK: usize = 16 * 1024;

/// Rounds to nearest, ties to even.
pub fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return ((bits >> 16) as u16) | 0x40;
    }
    let rounding = 0x7fff + ((bits >> 16) & 1);
    (bits.wrapping_add(rounding) >> 16) as u16
}

pub fn from_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Rounds to nearest, ties to even; values beyond 65504 become infinite.
pub fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x7f80_0000 {
        return sign | 0x7c00 | u16::from(magnitude > 0x7f80_0000) << 9;
    }
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Too small for a normal half: the float adder does the rounding.
        let small = f32::from_bits(magnitude) + f32::from_bits(0x3f00_0000);
        return sign | (small.to_bits() - 0x3f00_0000) as u16;
    }
    let rounded = magnitude + 0x0fff + ((magnitude >> 13) & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}

pub fn from_f16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff);
    let bits = match magnitude >> 10 {
        0 => return f32::from_bits(sign | (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits()),
        0x1f => (magnitude << 13) | 0x7f80_0000,
        _ => (magnitude << 13) + 0x3800_0000,
    };
    f32::from_bits(sign | bits)
}

/// Appends numbers in a half-precision encoding.
pub fn encode_halves(values: &[f32], encoding: Encoding, to: &mut Vec<u8>) {
    to.reserve(values.len() * 2);
    let halve = match encoding {
        Encoding::F16 => to_f16,
        _ => to_bf16,
    };
    to.extend(values.iter().flat_map(|value| halve(*value).to_le_bytes()));
}

/// Decodes numbers of any encoding except plain floats. `values` must be zero where nothing is sent.
pub fn read(stream: &mut impl Read, encoding: Encoding, values: &mut [f32]) -> io::Result<()> {
    let mut bytes = [0; CHUNK];
    match encoding {
        Encoding::F32 => stream.read_exact(crate::wire::bytes_of_mut(values)),
        Encoding::Bf16 | Encoding::F16 => {
            let widen = if encoding == Encoding::F16 {
                from_f16
            } else {
                from_bf16
            };
            for values in values.chunks_mut(CHUNK / 2) {
                let bytes = &mut bytes[..values.len() * 2];
                stream.read_exact(bytes)?;
                for (value, half) in values.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = widen(u16::from_le_bytes([half[0], half[1]]));
                }
            }
            Ok(())
        }
        Encoding::Sparse { count } => {
            let mut left = count as usize;
            while left > 0 {
                let now = left.min(CHUNK / 8);
                let bytes = &mut bytes[..now * 8];
                stream.read_exact(bytes)?;
                for pair in bytes.chunks_exact(8) {
                    let at = u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
                    let value = f32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
                    let place = values.get_mut(at as usize).ok_or_else(|| {
                        io::Error::new(io::ErrorKind::InvalidData, format!("there is no element {at}"))
                    })?;
                    *place = value;
                }
                left -= now;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_round_trip() {
        for half in 0..=u16::MAX {
            let wide = from_f16(half);
            if wide.is_nan() {
                assert!(from_f16(to_f16(wide)).is_nan());
            } else {
                assert_eq!(to_f16(wide), half, "{half:#x} is {wide}");
            }
            let wide = from_bf16(half);
            if !wide.is_nan() {
                assert_eq!(to_bf16(wide), half);
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_the_nearest() {
        assert_eq!(from_f16(to_f16(1.0 + 1.0 / 2048.0)), 1.0, "half way: to even");
        assert_eq!(from_f16(to_f16(1.0 + 3.0 / 2048.0)), 1.0 + 2.0 / 1024.0);
        assert_eq!(from_f16(to_f16(65519.0)), 65504.0);
        assert_eq!(from_f16(to_f16(65520.0)), f32::INFINITY);
        assert_eq!(from_bf16(to_bf16(1.0 + 1.0 / 256.0)), 1.0);
    }

    #[test]
    fn a_selection_leaves_the_others_alone() {
        let mut bytes = Vec::new();
        for (at, value) in [(3u32, 1.5f32), (0, -2.0)] {
            bytes.extend(at.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        let mut values = [0.0; 4];
        read(&mut &bytes[..], Encoding::Sparse { count: 2 }, &mut values).unwrap();
        assert_eq!(values, [-2.0, 0.0, 0.0, 1.5]);
        let short = read(&mut &bytes[..], Encoding::Sparse { count: 2 }, &mut [0.0; 3]);
        assert!(short.is_err());
    }
}
