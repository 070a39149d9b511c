//! The compressors of chunks, and how each compresses and decompresses a payload.
//!
//! Snappy's framing is in `snappy`; this file only selects and limits.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use crate::buffer::Buffer;
use crate::fault::Fault;
use crate::snappy;

/// How the payload of a chunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compressor {
    None,
    /// The default of the original: Snappy in its framing format.
    #[default]
    Snappy,
    Gzip,
    /// Ours, not part of the original format: no other RecordIO library reads it.
    ///
    /// Used only if requested by name. Its number in the header reads `zstd` in a hex dump.
    Zstd,
}

/// The fewest bytes of a payload of each self-describing kind.
const MIN_SNAPPY: u32 = 10;
const MIN_GZIP: u32 = 18;
const MIN_ZSTD: u32 = 9;
const ZSTD_LEVEL: i32 = 3;
/// The largest window a zstd frame may ask for (2^27 bytes = 128 MiB).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl Compressor {
    pub const ALL: [Self; 4] = [Self::None, Self::Snappy, Self::Gzip, Self::Zstd];

    /// The number in a chunk's header.
    pub const fn id(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Snappy => 1,
            Self::Gzip => 2,
            Self::Zstd => u32::from_le_bytes(*b"zstd"),
        }
    }

    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.id() == id)
    }

    /// Whether the original library can read such chunks.
    pub fn is_original(self) -> bool {
        self != Self::Zstd
    }

    pub(crate) fn can_hold(self, records: u32, stored_len: u32) -> bool {
        match self {
            Self::None => stored_len / 4 >= records && (records == 0) == (stored_len == 0),
            Self::Snappy => stored_len >= MIN_SNAPPY,
            Self::Gzip => stored_len >= MIN_GZIP,
            Self::Zstd => stored_len >= MIN_ZSTD,
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// An unknown compressor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown compressor `{0}` (use none, snappy, gzip or, readable by PaddleCloud only, zstd)")]
pub struct UnknownCompressor(String);

impl FromStr for Compressor {
    type Err = UnknownCompressor;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|c| c.to_string() == name)
            .ok_or_else(|| UnknownCompressor(name.to_owned()))
    }
}

/// Compresses payloads; keeps its tables between chunks.
pub(crate) struct Packer {
    snappy: snap::raw::Encoder,
}

impl Default for Packer {
    fn default() -> Self {
        Self {
            snappy: snap::raw::Encoder::new(),
        }
    }
}

impl Packer {
    /// Appends the compressed form of `payload` to `out`.
    pub(crate) fn pack(
        &mut self,
        compressor: Compressor,
        payload: &[u8],
        out: &mut Buffer,
    ) -> io::Result<()> {
        match compressor {
            Compressor::None => out.append(payload),
            Compressor::Snappy => snappy::pack(&mut self.snappy, payload, out),
            Compressor::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(out, flate2::Compression::default());
                gzip.write_all(payload)?;
                gzip.finish()?;
            }
            Compressor::Zstd => {
                let mut zstd = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                zstd.include_checksum(true)?;
                zstd.write_all(payload)?;
                zstd.finish()?;
            }
        }
        Ok(())
    }
}

/// Decompresses payloads; keeps its state between chunks.
#[derive(Default)]
pub(crate) struct Unpacker {
    snappy: snap::raw::Decoder,
}

impl Unpacker {
    /// Decompresses `stored` into `out`, never beyond `limit` bytes. `None` is not decompressed at all.
    ///
    /// `look` gets everything decompressed so far, from the start, each time that there is more.
    pub(crate) fn unpack(
        &mut self,
        compressor: Compressor,
        stored: &[u8],
        limit: usize,
        out: &mut Buffer,
        mut look: impl FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let unpackable = |reason: io::Error| Fault::Unpack {
            compressor,
            reason: reason.to_string(),
        };
        match compressor {
            Compressor::None => unreachable!("stored payloads are used in place"),
            Compressor::Snappy => snappy::unpack(&mut self.snappy, stored, limit, out, look),
            Compressor::Gzip => {
                let gzip = flate2::bufread::MultiGzDecoder::new(stored);
                drain(gzip, limit, out, &mut look).map_err(unpackable)?
            }
            Compressor::Zstd => {
                let mut zstd = zstd::stream::read::Decoder::with_buffer(stored).map_err(unpackable)?;
                zstd.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(unpackable)?;
                drain(zstd, limit, out, &mut look).map_err(unpackable)?
            }
        }
    }
}

/// Reads all of `from`; the inner result says that there was more than `limit`.
fn drain(
    mut from: impl Read,
    limit: usize,
    out: &mut Buffer,
    look: &mut impl FnMut(&[u8]),
) -> io::Result<Result<(), Fault>> {
    const FIRST_STEP: usize = 256 << 10;
    out.clear();
    loop {
        let filled = out.len();
        if filled > limit {
            return Ok(Err(Fault::TooLarge { limit: limit as u64 }));
        }
        let room = filled.max(FIRST_STEP).min(limit + 1 - filled);
        let got = read_some(&mut from, &mut out.grow(room)[filled..])?;
        out.truncate(filled + got);
        look(out);
        if got == 0 {
            return Ok(Ok(()));
        }
    }
}

fn read_some(from: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buf) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(compressor: Compressor, payload: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
        let mut packed = Buffer::default();
        Packer::default().pack(compressor, payload, &mut packed).unwrap();
        let mut out = Buffer::default();
        Unpacker::default().unpack(compressor, &packed, limit, &mut out, |_| ())?;
        Ok(out.to_vec())
    }

    const PACKING: [Compressor; 3] = [Compressor::Snappy, Compressor::Gzip, Compressor::Zstd];

    #[test]
    fn packed_bytes_survive_the_round_trip() {
        let payload: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) / 7) as u8).collect();
        for compressor in PACKING {
            for len in [0, 1, 65_535, 65_536, 65_537, 300_000] {
                assert_eq!(
                    round_trip(compressor, &payload[..len], len).unwrap(),
                    &payload[..len]
                );
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let zeros = vec![0; 10 << 20];
        for compressor in PACKING {
            let fault = round_trip(compressor, &zeros, 1 << 20).unwrap_err();
            assert_eq!(fault, Fault::TooLarge { limit: 1 << 20 });
        }
    }

    #[test]
    fn names_and_numbers_go_both_ways() {
        for compressor in Compressor::ALL {
            assert_eq!(compressor.to_string().parse(), Ok(compressor));
            assert_eq!(Compressor::from_id(compressor.id()), Some(compressor));
        }
        assert!("lz4".parse::<Compressor>().is_err());
        assert_eq!(Compressor::from_id(3), None);
    }
}
