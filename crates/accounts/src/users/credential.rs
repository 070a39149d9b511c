//! What a user's password is checked against. `auth` checks it.

use std::fmt;

/// What a password is checked against. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// An argon2id hash in PHC string format.
    Hash(String),
    /// The password itself, from a file that only the server can read.
    Plain(String),
}

impl Credential {
    /// `None` unless the text is an argon2id hash in PHC string format.
    pub fn from_hash(text: &str) -> Option<Credential> {
        let text = text.trim();
        let hash = argon2::PasswordHash::new(text).ok()?;
        (hash.algorithm.as_str() == "argon2id").then(|| Credential::Hash(text.to_owned()))
    }

    /// Bytes that change when the password changes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Credential::Hash(text) | Credential::Plain(text) => text.as_bytes(),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}
