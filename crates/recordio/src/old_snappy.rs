//! The stream format before Snappy's framing format, as `snappystream` 0.2.8 writes it inside chunks of the second
//! layout. Read only.
//!
//! Seven bytes `snappy\\0`, then blocks: a byte that is 1 for a compressed block and 0 for a stored one, the length of
//! what follows the checksum (16 bits), the masked CRC-32C of the decompressed bytes (32 bits), both big endian, and
//! the bytes themselves. If the writer was restarted, the first seven bytes are repeated.

use crate::fault::Fault;
use crate::snappy::{Block, broken};

const IDENTIFIER: &[u8; 7] = b"snappy\0";
const BLOCK_HEADER: usize = 7;

/// The blocks of such a stream.
pub(crate) struct OldBlocks<'a> {
    rest: &'a [u8],
}

impl<'a> OldBlocks<'a> {
    /// `None` if the payload has another format.
    pub(crate) fn of(stored: &'a [u8]) -> Option<Self> {
        let rest = stored.strip_prefix(IDENTIFIER)?;
        Some(Self { rest })
    }
}

impl<'a> Iterator for OldBlocks<'a> {
    type Item = Result<Block<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(rest) = self.rest.strip_prefix(IDENTIFIER) {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let block = take_block(self.rest);
        self.rest = match &block {
            Ok((_, rest)) => rest,
            Err(_) => &[],
        };
        Some(block.map(|(block, _)| block))
    }
}

fn take_block(bytes: &[u8]) -> Result<(Block<'_>, &[u8]), Fault> {
    let Some((header, after)) = bytes.split_first_chunk::<BLOCK_HEADER>() else {
        return Err(broken("a block's header is truncated"));
    };
    let [kind, len_high, len_low, checksum @ ..] = *header;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let compressed = match kind {
        0 => false,
        1 => true,
        other => return Err(broken(format!("unknown block type {other:#04x}"))),
    };
    let Some((body, rest)) = after.split_at_checked(len) else {
        return Err(broken("a block is truncated"));
    };
    let block = Block {
        compressed,
        checksum: u32::from_be_bytes(checksum),
        body,
    };
    Ok((block, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::snappy::unpack;

    /// A stored block, and one that repeats four letters: a literal of four and a copy of eight.
    const STREAM: &[u8] = b"snappy\0\
        \x00\x00\x03\x21\xf0\xb0\xe3abc\
        snappy\0\
        \x01\x00\x08\xa2\x82\xea\xd8\x0c\x0cabcd\x11\x04";

    fn unpacked(stored: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = Buffer::default();
        unpack(&mut snap::raw::Decoder::new(), stored, 1 << 20, &mut out, |_| ())?;
        Ok(out.to_vec())
    }

    #[test]
    fn blocks_are_unpacked_and_their_checksums_verified() {
        let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8);
        let mut stream = STREAM.to_vec();
        stream[10..14].copy_from_slice(&masked(b"abc").to_be_bytes());
        stream[27..31].copy_from_slice(&masked(b"abcdabcdabcd").to_be_bytes());
        assert_eq!(unpacked(&stream).unwrap(), b"abcabcdabcdabcd");
        for bit in 7 * 8..stream.len() * 8 {
            let mut bad = stream.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(unpacked(&bad).is_err(), "bit {bit} went unnoticed");
        }
        for len in 8..stream.len() {
            let is_between_blocks = [17, 24].contains(&len);
            assert_eq!(
                unpacked(&stream[..len]).is_ok(),
                is_between_blocks,
                "cut at {len}"
            );
        }
    }

    #[test]
    fn a_stream_without_blocks_is_empty() {
        assert_eq!(unpacked(IDENTIFIER).unwrap(), b"");
        assert!(unpacked(b"snappy").is_err());
    }
}
