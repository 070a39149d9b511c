//! The bytes of a connection: the values of a message's head, and the frame around head and body.
//!
//! All numbers are little-endian. A length is compared with its bound before anything is allocated; `message` defines
//! what a length means.

use std::io::{self, Read};

use crate::optimizer::OutOfRange;
use crate::tensor_name::NameError;

/// Maximum bytes of a head: names, tensor ids and numbers, never tensor data.
pub const MAX_HEAD: usize = 1 << 20;
/// Maximum bytes of a body. The actual limit of a request follows from the tensors it names.
pub const MAX_BODY: u64 = 1 << 40;
/// Maximum bytes of a name or a message in a head.
pub const MAX_TEXT: usize = 4096;
/// Bytes of a frame before its head.
pub const FRAME_BYTES: usize = 16;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WireError {
    #[error("a message ends too early")]
    Short,
    #[error("a message has {0} bytes too many")]
    Long(usize),
    #[error("{what} is {found}, more than {limit}")]
    TooLarge {
        what: &'static str,
        found: u64,
        limit: u64,
    },
    #[error("{what} cannot be {found}")]
    Unknown { what: &'static str, found: u64 },
    #[error("{0} is not valid text")]
    NotText(&'static str),
    #[error(transparent)]
    Constant(#[from] OutOfRange),
    #[error("{0}")]
    Name(#[from] NameError),
}

/// The start of a message: its kind and the sizes of head and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub head: usize,
    pub body: u64,
}

impl Frame {
    pub fn encode(self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[0] = self.kind;
        bytes[4..8].copy_from_slice(&(self.head as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.body.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Frame, WireError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let unused = u64::from(reader.u8()?) + u64::from(reader.u16()?);
        if unused != 0 {
            return Err(WireError::Unknown {
                what: "a reserved byte",
                found: unused,
            });
        }
        let head = reader.u32()?;
        let body = reader.u64()?;
        bounded("a head", u64::from(head), MAX_HEAD as u64)?;
        bounded("a body", body, MAX_BODY)?;
        Ok(Frame {
            kind,
            head: head as usize,
            body,
        })
    }
}

pub fn bounded(what: &'static str, found: u64, limit: u64) -> Result<(), WireError> {
    match found <= limit {
        true => Ok(()),
        false => Err(WireError::TooLarge { what, found, limit }),
    }
}

/// Builds a head.
#[derive(Debug, Default, Clone)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    pub fn u8(&mut self, value: u8) -> &mut Writer {
        self.0.push(value);
        self
    }

    pub fn u16(&mut self, value: u16) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub fn f32(&mut self, value: f32) -> &mut Writer {
        self.u32(value.to_bits())
    }

    pub fn f64(&mut self, value: f64) -> &mut Writer {
        self.u64(value.to_bits())
    }

    /// Writes text, truncated to its bound, so that an error about a long name still fits.
    pub fn text(&mut self, value: &str) -> &mut Writer {
        let mut end = value.len().min(MAX_TEXT);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.bytes(&value.as_bytes()[..end])
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(value);
        self
    }

    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Parses a head; never reads beyond it.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        if count > self.0.len() {
            return Err(WireError::Short);
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn f32(&mut self) -> Result<f32, WireError> {
        self.u32().map(f32::from_bits)
    }

    pub fn f64(&mut self) -> Result<f64, WireError> {
        self.u64().map(f64::from_bits)
    }

    pub fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(WireError::Unknown {
                what,
                found: u64::from(found),
            }),
        }
    }

    pub fn text(&mut self, what: &'static str) -> Result<String, WireError> {
        let length = usize::from(self.u16()?);
        bounded(what, length as u64, MAX_TEXT as u64)?;
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| WireError::NotText(what))?;
        Ok(text.to_owned())
    }

    /// Reads a count of items that each take at least `least` of the remaining bytes.
    pub fn count(&mut self, what: &'static str, least: usize) -> Result<usize, WireError> {
        let count = self.u32()?;
        bounded(what, u64::from(count), (self.0.len() / least) as u64)?;
        Ok(count as usize)
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn end(self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(WireError::Long(left)),
        }
    }
}

/// Reads the start of a frame; `None` if the other side closed the connection between two messages.
pub fn read_frame(stream: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut bytes = [0; FRAME_BYTES];
    let first = loop {
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut bytes[first..])?;
    Frame::decode(&bytes).map(Some).map_err(invalid)
}

pub fn invalid(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(target_endian = "big")]
compile_error!("tensors travel as they lie in memory, which is little-endian");

/// The bytes of floats, as they are sent.
pub fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: every bit pattern is valid as bytes, and a byte needs no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

pub fn bytes_of_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above; every pattern of four bytes is a valid float.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), std::mem::size_of_val(values)) }
}

/// The bytes of row ids, as they are sent.
pub fn bytes_of_ids(ids: &[u64]) -> &[u8] {
    // SAFETY: every bit pattern is valid as bytes, and a byte needs no alignment.
    unsafe { std::slice::from_raw_parts(ids.as_ptr().cast(), std::mem::size_of_val(ids)) }
}

pub fn bytes_of_ids_mut(ids: &mut [u64]) -> &mut [u8] {
    // SAFETY: as above; every pattern of eight bytes is a valid number.
    unsafe { std::slice::from_raw_parts_mut(ids.as_mut_ptr().cast(), std::mem::size_of_val(ids)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back() {
        let frame = Frame {
            kind: 7,
            head: 12,
            body: 1 << 20,
        };
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn a_frame_beyond_its_bounds_is_refused() {
        let mut bytes = [0; FRAME_BYTES];
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Frame::decode(&bytes), Err(WireError::TooLarge { .. })));
        let mut bytes = [0; FRAME_BYTES];
        bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(Frame::decode(&bytes), Err(WireError::TooLarge { .. })));
    }

    #[test]
    fn a_count_is_bounded_by_the_remaining_bytes() {
        let head = Writer::new().u32(u32::MAX).u64(0).finish();
        assert!(Reader::new(&head).count("entries", 8).is_err());
        let head = Writer::new().u32(1).u64(0).finish();
        assert_eq!(Reader::new(&head).count("entries", 8), Ok(1));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let head = Writer::new().text(&"é".repeat(MAX_TEXT)).finish();
        let text = Reader::new(&head).text("a name").unwrap();
        assert_eq!(text.len(), MAX_TEXT);
    }
}
