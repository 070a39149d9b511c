//! Collects a request's body in memory bounded by its content, however it is split into frames.
//!
//! A frame is a slice of the connection's read buffer and keeps the whole buffer alive: a frame of one byte can pin 128
//! KiB. Small frames are therefore copied together, and only large ones are kept without copying.

use bytes::{Bytes, BytesMut};

/// Frames of at least this size are kept without copying. The read buffer is at most eight times as large.
const LARGE: usize = 16 << 10;

/// Frames of a body, in order.
#[derive(Default)]
pub(super) struct Gathered {
    whole: Vec<Bytes>,
    /// Small frames after the last large one.
    tail: BytesMut,
    len: usize,
}

impl Gathered {
    pub fn push(&mut self, frame: Bytes) {
        self.len += frame.len();
        if frame.len() < LARGE {
            self.tail.extend_from_slice(&frame);
            return;
        }
        self.end_tail();
        self.whole.push(frame);
    }

    /// Bytes gathered so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The content in a few pieces.
    pub fn into_pieces(mut self) -> Vec<Bytes> {
        self.end_tail();
        self.whole
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.whole.push(std::mem::take(&mut self.tail).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_frames_of_one_byte_become_one_piece() {
        let buffer = Bytes::from(vec![7; 1 << 20]);
        let mut gathered = Gathered::default();
        for at in 0..buffer.len() {
            gathered.push(buffer.slice(at..=at));
        }
        assert_eq!(gathered.len(), buffer.len());
        let pieces = gathered.into_pieces();
        assert_eq!(pieces.concat(), buffer);
        assert!(buffer.is_unique(), "no frame keeps the buffer it came in");
    }

    #[test]
    fn large_frames_are_not_copied_and_the_order_is_kept() {
        let large = Bytes::from(vec![b'L'; LARGE]);
        let mut gathered = Gathered::default();
        for frame in [&b"a"[..], b"b", &large, b"c", &large] {
            match frame.len() {
                LARGE => gathered.push(large.clone()),
                _ => gathered.push(Bytes::copy_from_slice(frame)),
            }
        }
        let pieces = gathered.into_pieces();
        let lengths: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2, LARGE, 1, LARGE]);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
    }
}
