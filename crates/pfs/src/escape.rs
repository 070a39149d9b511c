//! A reversible text form for file names, which on Unix are bytes and need not be UTF-8.
//!
//! Control characters and bytes that are not UTF-8 become `\xNN`, a backslash becomes `\\`; everything else is unchanged. So a
//! name can be put into JSON and printed on a terminal safely.

use std::fmt::{self, Write};

/// Displays bytes in their text form.
pub(crate) struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => write_bytes(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                    c => f.write_char(c)?,
                }
            }
            write_bytes(f, chunk.invalid())?;
        }
        Ok(())
    }
}

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Parses the text form; `None` if an escape is invalid.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('\\') {
            out.push(b'\\');
            rest = after;
        } else {
            let digits = rest.strip_prefix('x')?.get(..2)?;
            if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[3..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        assert_eq!(
            Escaped("train data/été 100%.txt".as_bytes()).to_string(),
            "train data/été 100%.txt"
        );
    }

    #[test]
    fn strange_bytes_are_spelled_out() {
        assert_eq!(Escaped(b"a\xff\n\\b").to_string(), r"a\xff\x0a\\b");
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in [r"\", r"\x", r"\x1", r"\xg0", r"\x+1", r"\n", "\\x\u{e9}1"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_name_survives_the_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(unescape(&Escaped(&bytes).to_string()), Some(bytes));
        }
    }
}
