//! Links that let anyone who has them read one file for a limited time.
//!
//! A link does not reveal its target: it is the share's random id and a keyed BLAKE3 of the id. The service stores the target and
//! the expiry of each share.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::entry::Mtime;
use crate::path::Place;

/// The service's secret. Never printed, not even for debugging.
#[derive(Clone)]
pub struct ShareKey([u8; 32]);

impl fmt::Debug for ShareKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareKey(…)")
    }
}

/// The id by which a link can be revoked.
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

/// The file that a link gives access to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub id: ShareId,
    pub place: Place,
    pub expires: Mtime,
}

/// Why a link is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    #[error("this link is not valid")]
    Invalid,
    #[error("this link has expired or has been revoked")]
    Over,
    /// The file no longer exists or is unreadable. The holder of a link gets no details.
    #[error("the file of this link no longer exists")]
    Empty,
}

impl Share {
    /// Creates a share. The caller has checked that the user may share the place.
    pub fn new(place: Place, expires: Mtime) -> Self {
        Self {
            id: ShareId(crate::root::fresh_name()),
            place,
            expires,
        }
    }
}

impl ShareKey {
    /// Creates a key from 32 secret random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The token for a link: letters, digits and one dot.
    pub fn sign(&self, id: &ShareId) -> String {
        format!("{id}.{}", self.mac(id).to_hex())
    }

    /// The id of the share in a token, if the signature is valid. The list of shares decides whether it still works.
    pub fn read(&self, token: &str) -> Result<ShareId, ShareError> {
        let (body, mac) = token.split_once('.').ok_or(ShareError::Invalid)?;
        let mac = blake3::Hash::from_hex(mac).map_err(|_| ShareError::Invalid)?;
        let id: ShareId = body.parse()?;
        // `blake3::Hash` compares in constant time.
        match self.mac(&id) == mac {
            true => Ok(id),
            false => Err(ShareError::Invalid),
        }
    }

    fn mac(&self, id: &ShareId) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(KIND);
        hasher.update(id.0.as_bytes());
        hasher.finalize()
    }
}

/// The prefix of the signed bytes.
const KIND: &[u8] = b"paddlecloud share v2\0";

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
    fn a_changed_link_and_a_foreign_one_are_invalid() {
        let token = key().sign(&share().id);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(key().read(&changed), Err(ShareError::Invalid), "{at}");
        }
        let other = ShareKey::from_bytes([8; 32]);
        assert_eq!(other.read(&token), Err(ShareError::Invalid));
        for text in ["", ".", "é.é", "00.", "zz.00"] {
            assert_eq!(key().read(text), Err(ShareError::Invalid), "{text}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "ShareKey(…)");
    }
}
