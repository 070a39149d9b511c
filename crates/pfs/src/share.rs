//! Links that let anyone who has them read one file for a while.
//!
//! A link says nothing of what it leads to: it is the share's random id and a keyed BLAKE3 over that. What it allows and
//! until when is known to the service alone, which keeps the shares that work.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::entry::Mtime;
use crate::path::Place;

/// The service's secret. Never shown, not even for debugging.
#[derive(Clone)]
pub struct ShareKey([u8; 32]);

impl fmt::Debug for ShareKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareKey(…)")
    }
}

/// The name under which a link can be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShareId(String);

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ShareId {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_ours = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_ours {
            Ok(Self(text.to_owned()))
        } else {
            Err(ShareError::Invalid)
        }
    }
}

/// What a link allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub id: ShareId,
    pub place: Place,
    pub expires: Mtime,
}

/// Why a link is not honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    #[error("this link is not valid")]
    Invalid,
    #[error("this link has expired or was taken back")]
    Over,
    /// The file is gone, or cannot be read any more. Strangers hear no more of it.
    #[error("this link leads to nothing any more")]
    Empty,
}

impl Share {
    /// A link to be signed; whether its maker may share the place is decided before.
    pub fn new(place: Place, expires: Mtime) -> Self {
        Self {
            id: ShareId(crate::root::fresh_name()),
            place,
            expires,
        }
    }
}

impl ShareKey {
    /// Takes 32 secret random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The text that goes into a link: letters, digits and one dot.
    pub fn sign(&self, id: &ShareId) -> String {
        format!("{id}.{}", self.mac(OPAQUE, id.0.as_bytes()).to_hex())
    }

    /// Which share a link of ours is for; whether it still works only the list of shares knows.
    pub fn read(&self, token: &str) -> Result<ShareId, ShareError> {
        let (body, mac) = token.split_once('.').ok_or(ShareError::Invalid)?;
        let mac = blake3::Hash::from_hex(mac).map_err(|_| ShareError::Invalid)?;
        match body.parse::<ShareId>() {
            // Hashes compare in constant time.
            Ok(id) if self.mac(OPAQUE, id.0.as_bytes()) == mac => Ok(id),
            Ok(_) => Err(ShareError::Invalid),
            Err(_) => self.read_speaking(body, mac),
        }
    }

    /// Links of the first kind carried the whole share. They work as long as was promised, at most 366 days; after that
    /// this can go.
    fn read_speaking(&self, payload: &str, mac: blake3::Hash) -> Result<ShareId, ShareError> {
        let payload = from_hex(payload).ok_or(ShareError::Invalid)?;
        if self.mac(SPEAKING, &payload) != mac {
            return Err(ShareError::Invalid);
        }
        let share: Share = serde_json::from_slice(&payload).map_err(|_| ShareError::Invalid)?;
        Ok(share.id)
    }

    fn mac(&self, kind: &[u8], payload: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(kind);
        hasher.update(payload);
        hasher.finalize()
    }
}

/// What a link's signature begins with, by its kind.
const OPAQUE: &[u8] = b"paddlecloud share v2\0";
const SPEAKING: &[u8] = b"paddlecloud share v1\0";

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Space;

    fn share() -> Share {
        let space = Space::Home("ann".parse().unwrap());
        Share::new(
            Place {
                space,
                path: "out/model.bin".parse().unwrap(),
            },
            Mtime::from_nanos(1000),
        )
    }

    fn key() -> ShareKey {
        ShareKey::from_bytes([7; 32])
    }

    fn speaking(share: &Share) -> String {
        let payload = serde_json::to_vec(share).unwrap();
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}.{}", key().mac(SPEAKING, &payload).to_hex())
    }

    #[test]
    fn a_link_names_its_share_and_nothing_else() {
        let share = share();
        let token = key().sign(&share.id);
        assert_eq!(token.len(), 32 + 1 + 64, "{token}");
        assert!(
            token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        );
        assert_eq!(key().read(&token), Ok(share.id));
    }

    #[test]
    fn a_link_of_the_first_kind_is_still_understood() {
        let share = share();
        assert_eq!(key().read(&speaking(&share)), Ok(share.id));
    }

    #[test]
    fn a_changed_link_and_a_foreign_one_are_invalid() {
        let share = share();
        for token in [key().sign(&share.id), speaking(&share)] {
            for at in 0..token.len() {
                let mut changed = token.clone().into_bytes();
                changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(key().read(&changed), Err(ShareError::Invalid), "{at}");
            }
            let other = ShareKey::from_bytes([8; 32]);
            assert_eq!(other.read(&token), Err(ShareError::Invalid));
        }
        for text in ["", ".", "é.é", "00.", "zz.00"] {
            assert_eq!(key().read(text), Err(ShareError::Invalid), "{text}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "ShareKey(…)");
    }
}
