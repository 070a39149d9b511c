//! Snappy's framing format, compressed and decompressed directly between the caller's buffers; the older stream format,
//! which the C++ library of the second layout writes, is decompressed too.
//!
//! `snap`'s own framing adaptors copy every block through an internal buffer; here blocks are written where they
//! belong. Block compression itself is `snap`'s.

use crate::buffer::Buffer;
use crate::compressor::Compressor;
use crate::fault::Fault;
use crate::old_snappy::OldBlocks;

pub(crate) const STREAM_IDENTIFIER: &[u8; 10] = b"\xff\x06\x00\x00sNaPpY";
const MAX_BLOCK: usize = 1 << 16;
pub(crate) const FRAME_HEADER: usize = 4;
const BLOCK_CHECKSUM: usize = 4;

const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const FIRST_SKIPPABLE: u8 = 0x80;
const IDENTIFIER: u8 = 0xff;

/// Appends the framed form of `payload` to `out`.
pub(crate) fn pack(encoder: &mut snap::raw::Encoder, payload: &[u8], out: &mut Buffer) {
    out.append(STREAM_IDENTIFIER);
    for block in payload.chunks(MAX_BLOCK) {
        pack_block(encoder, block, out);
    }
}

/// Compresses a block in place: after the space for its frame's header.
fn pack_block(encoder: &mut snap::raw::Encoder, block: &[u8], out: &mut Buffer) {
    let start = out.len();
    let room = FRAME_HEADER + BLOCK_CHECKSUM + snap::raw::max_compress_len(block.len());
    let frame = &mut out.grow(room)[start..];
    let (header, body) = frame.split_at_mut(FRAME_HEADER + BLOCK_CHECKSUM);
    let packed = encoder
        .compress(block, body)
        .expect("there is room for the worst case");
    // The original's rule: saving less than an eighth is not worth decompressing.
    let (kind, len) = match packed < block.len() - block.len() / 8 {
        true => (COMPRESSED, packed),
        false => {
            body[..block.len()].copy_from_slice(block);
            (UNCOMPRESSED, block.len())
        }
    };
    let frame_len = (BLOCK_CHECKSUM + len) as u32;
    header[..FRAME_HEADER].copy_from_slice(&(frame_len << 8 | u32::from(kind)).to_le_bytes());
    header[FRAME_HEADER..].copy_from_slice(&masked_crc32c(block).to_le_bytes());
    out.truncate(start + FRAME_HEADER + BLOCK_CHECKSUM + len);
}

/// Decompresses a framed payload into `out`; every block's own checksum is verified too.
pub(crate) fn unpack(
    decoder: &mut snap::raw::Decoder,
    stored: &[u8],
    limit: usize,
    out: &mut Buffer,
    mut look: impl FnMut(&[u8]),
) -> Result<(), Fault> {
    let total = unpacked_len(stored, limit)?;
    out.clear();
    let out = out.resize(total);
    let mut filled = 0;
    for block in Blocks::of(stored)? {
        let block = block?;
        let end = filled + block.unpacked_len()?;
        block.unpack(decoder, &mut out[filled..end])?;
        filled = end;
        look(&out[..filled]);
    }
    Ok(())
}

/// The length of the frame with this header, or `None` if no frame can start here.
///
/// With [`STREAM_IDENTIFIER`] this is enough to follow the frames of a damaged payload.
pub(crate) fn frame_extent(header: [u8; FRAME_HEADER]) -> Option<u64> {
    (!is_reserved(header[0])).then(|| (FRAME_HEADER + frame_len(&header)) as u64)
}

/// Whether frames follow each other up to the very end of `stored`.
pub(crate) fn frames_fit(stored: &[u8]) -> bool {
    match OldBlocks::of(stored) {
        Some(mut blocks) => blocks.all(|block| block.is_ok()),
        None => stored.starts_with(STREAM_IDENTIFIER) && Frames::new(stored).all(|frame| frame.is_ok()),
    }
}

/// The decompressed size of all blocks together, before a byte is decompressed.
fn unpacked_len(stored: &[u8], limit: usize) -> Result<usize, Fault> {
    let mut total = 0;
    for block in Blocks::of(stored)? {
        total += block?.unpacked_len()?;
        if total > limit {
            return Err(Fault::TooLarge { limit: limit as u64 });
        }
    }
    Ok(total)
}

/// The blocks of a payload in either format.
enum Blocks<'a> {
    Framed(Frames<'a>),
    Old(OldBlocks<'a>),
}

impl<'a> Blocks<'a> {
    fn of(stored: &'a [u8]) -> Result<Self, Fault> {
        if let Some(blocks) = OldBlocks::of(stored) {
            return Ok(Self::Old(blocks));
        }
        match stored.starts_with(STREAM_IDENTIFIER) {
            true => Ok(Self::Framed(Frames::new(stored))),
            false => Err(broken("it does not start with the stream identifier")),
        }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<Block<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Framed(frames) => frames.find_map(|frame| match frame.and_then(|frame| frame.block()) {
                Ok(None) => None,
                Ok(Some(block)) => Some(Ok(block)),
                Err(fault) => Some(Err(fault)),
            }),
            Self::Old(blocks) => blocks.next(),
        }
    }
}

/// A block and the masked CRC-32C of its decompressed bytes.
pub(crate) struct Block<'a> {
    pub(crate) compressed: bool,
    pub(crate) checksum: u32,
    pub(crate) body: &'a [u8],
}

impl Block<'_> {
    fn unpacked_len(&self) -> Result<usize, Fault> {
        let len = match self.compressed {
            true => snap::raw::decompress_len(self.body).map_err(|e| broken(e.to_string()))?,
            false => self.body.len(),
        };
        if len > MAX_BLOCK {
            return Err(broken("a block is larger than 64 KiB"));
        }
        Ok(len)
    }

    /// `to` is as long as the decompressed block.
    fn unpack(&self, decoder: &mut snap::raw::Decoder, to: &mut [u8]) -> Result<(), Fault> {
        match self.compressed {
            true => {
                decoder
                    .decompress(self.body, to)
                    .map_err(|e| broken(e.to_string()))?;
            }
            false => to.copy_from_slice(self.body),
        }
        match masked_crc32c(to) == self.checksum {
            true => Ok(()),
            false => Err(broken("a block's checksum does not match")),
        }
    }
}

struct Frame<'a> {
    kind: u8,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The block in this frame; frames without data have none.
    fn block(&self) -> Result<Option<Block<'a>>, Fault> {
        if self.kind == IDENTIFIER && self.body != &STREAM_IDENTIFIER[FRAME_HEADER..] {
            return Err(broken("a stream identifier is wrong"));
        }
        if self.kind >= FIRST_SKIPPABLE {
            return Ok(None);
        }
        let (checksum, body) = self
            .body
            .split_first_chunk::<BLOCK_CHECKSUM>()
            .ok_or_else(|| broken("a block is too short"))?;
        Ok(Some(Block {
            compressed: self.kind == COMPRESSED,
            checksum: u32::from_le_bytes(*checksum),
            body,
        }))
    }
}

struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    fn new(stored: &'a [u8]) -> Self {
        Self { rest: stored }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((header, after)) = self.rest.split_first_chunk::<FRAME_HEADER>() else {
            return Some(Err(broken("a frame header is truncated")));
        };
        if is_reserved(header[0]) {
            return Some(Err(broken(format!("unknown frame type {:#04x}", header[0]))));
        }
        let Some((body, rest)) = after.split_at_checked(frame_len(header)) else {
            return Some(Err(broken("a frame is truncated")));
        };
        self.rest = rest;
        Some(Ok(Frame {
            kind: header[0],
            body,
        }))
    }
}

fn is_reserved(kind: u8) -> bool {
    (UNCOMPRESSED + 1..FIRST_SKIPPABLE).contains(&kind)
}

fn frame_len(header: &[u8]) -> usize {
    u32::from_le_bytes([header[1], header[2], header[3], 0]) as usize
}

fn masked_crc32c(block: &[u8]) -> u32 {
    crc32c::crc32c(block).rotate_right(15).wrapping_add(0xa282_ead8)
}

pub(crate) fn broken(reason: impl Into<String>) -> Fault {
    Fault::Unpack {
        compressor: Compressor::Snappy,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn sample() -> Vec<u8> {
        let noise = (0..100_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
        noise.chain(std::iter::repeat_n(7, 100_000)).collect()
    }

    fn packed(payload: &[u8]) -> Vec<u8> {
        let mut out = Buffer::default();
        pack(&mut snap::raw::Encoder::new(), payload, &mut out);
        out.to_vec()
    }

    #[test]
    fn the_reference_decoder_reads_our_output() {
        let mut back = Vec::new();
        snap::read::FrameDecoder::new(&packed(&sample())[..])
            .read_to_end(&mut back)
            .unwrap();
        assert_eq!(back, sample());
    }

    #[test]
    fn output_of_the_reference_encoder_is_unpacked() {
        let mut reference = snap::write::FrameEncoder::new(Vec::new());
        reference.write_all(&sample()).unwrap();
        let mut out = Buffer::default();
        let stored = reference.into_inner().unwrap();
        unpack(&mut snap::raw::Decoder::new(), &stored, 1 << 20, &mut out, |_| ()).unwrap();
        assert_eq!(&out[..], &sample()[..]);
    }

    #[test]
    fn padding_and_repeated_identifiers_are_skipped() {
        let mut stored = packed(b"abc");
        stored.extend_from_slice(b"\xfe\x03\x00\x00\x00\x00\x00");
        stored.extend_from_slice(&packed(b"def"));
        let mut out = Buffer::default();
        unpack(&mut snap::raw::Decoder::new(), &stored, 100, &mut out, |_| ()).unwrap();
        assert_eq!(&out[..], b"abcdef");
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        let stored = packed(b"a small stream, a small stream, a small stream");
        // A damaged frame type can become one that is skipped: the chunk's checksum notices that.
        let block = STREAM_IDENTIFIER.len() + FRAME_HEADER;
        for bit in block * 8..stored.len() * 8 {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut out = Buffer::default();
            let result = unpack(&mut snap::raw::Decoder::new(), &bad, 1 << 20, &mut out, |_| ());
            assert!(result.is_err(), "bit {bit} went unnoticed");
        }
    }
}
