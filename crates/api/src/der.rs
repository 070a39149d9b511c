//! A minimal DER parser for certificates and certificate requests.

pub const BITS: u8 = 0x03;
pub const OBJECT_ID: u8 = 0x06;
pub const UTF8: u8 = 0x0c;
pub const PRINTABLE: u8 = 0x13;
pub const IA5: u8 = 0x16;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// The bytes that are left to parse.
pub struct Der<'a>(pub &'a [u8]);

impl<'a> Der<'a> {
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element's tag and content.
    pub fn element(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let add = |length, digit: &u8| (length << 8) | usize::from(*digit);
                (digits.iter().fold(0, add), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    pub fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.element()?;
        (found == tag).then_some(content)
    }

    /// The whole next element, including its tag and length.
    pub fn whole(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        self.element()?;
        before.get(..before.len() - self.0.len())
    }

    /// The next element, a bit string of whole bytes.
    pub fn bits(&mut self) -> Option<&'a [u8]> {
        let (unused, bytes) = self.expect(BITS)?.split_first()?;
        (*unused == 0).then_some(bytes)
    }
}
