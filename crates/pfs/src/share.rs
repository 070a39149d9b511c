//! Links that let anyone who has them read one file for a while.
//!
//! A link carries what it allows and a keyed BLAKE3 over it; the service keeps only its key and the ids
//! of links that were taken back.

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
    #[error("this link has expired")]
    Expired,
    #[error("this link was taken back")]
    Revoked,
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
    pub fn sign(&self, share: &Share) -> String {
        let payload = serde_json::to_vec(share).expect("strings and numbers always become JSON");
        format!("{}.{}", to_hex(&payload), self.mac(&payload).to_hex())
    }

    /// Reads a link back, if it is ours, not expired at `now` and not among the revoked.
    pub fn open(
        &self,
        token: &str,
        now: Mtime,
        is_revoked: impl FnOnce(&ShareId) -> bool,
    ) -> Result<Share, ShareError> {
        let (payload, mac) = token.split_once('.').ok_or(ShareError::Invalid)?;
        let payload = from_hex(payload).ok_or(ShareError::Invalid)?;
        let mac = blake3::Hash::from_hex(mac).map_err(|_| ShareError::Invalid)?;
        // Compares in constant time.
        if self.mac(&payload) != mac {
            return Err(ShareError::Invalid);
        }
        let share: Share = serde_json::from_slice(&payload).map_err(|_| ShareError::Invalid)?;
        if now >= share.expires {
            return Err(ShareError::Expired);
        }
        if is_revoked(&share.id) {
            return Err(ShareError::Revoked);
        }
        Ok(share)
    }

    fn mac(&self, payload: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"paddlecloud share v1\0");
        hasher.update(payload);
        hasher.finalize()
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

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

    #[test]
    fn a_link_works_until_it_expires_or_is_taken_back() {
        let share = share();
        let token = key().sign(&share);
        assert!(
            token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        );
        let open = |now, revoked: bool| key().open(&token, Mtime::from_nanos(now), |_| revoked);
        assert_eq!(open(999, false), Ok(share));
        assert_eq!(open(1000, false), Err(ShareError::Expired));
        assert_eq!(open(999, true), Err(ShareError::Revoked));
    }

    #[test]
    fn a_changed_link_and_a_foreign_one_are_invalid() {
        let token = key().sign(&share());
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                key().open(&changed, Mtime::default(), |_| false),
                Err(ShareError::Invalid),
                "{at}"
            );
        }
        let other = ShareKey::from_bytes([8; 32]);
        assert_eq!(
            other.open(&token, Mtime::default(), |_| false),
            Err(ShareError::Invalid)
        );
        for text in ["", ".", "é.é", "00.", "zz.00"] {
            assert_eq!(
                key().open(text, Mtime::default(), |_| false),
                Err(ShareError::Invalid),
                "{text}"
            );
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "ShareKey(…)");
    }
}
