//! BLAKE3 digests, which name content, and their text form.
//!
//! Does not read files; see `content`.

use std::fmt;
use std::str::FromStr;

/// A BLAKE3 digest, written as 64 lower-case hex digits (the same text `b3sum` prints).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; Self::LEN]);

impl Digest {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// The digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        blake3::hash(bytes).into()
    }

    /// Creates a digest from raw bytes, for example from a stream.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

/// Text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: 64 hex digits are expected")]
pub struct DigestSyntaxError(String);

impl FromStr for Digest {
    type Err = DigestSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text)
            .map(Self::from)
            .map_err(|_| DigestSyntaxError(text.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

crate::as_text!(Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_is_the_one_b3sum_prints() {
        let digest = Digest::of(b"");
        let text = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{text}\""));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "af13",
            "zz1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
