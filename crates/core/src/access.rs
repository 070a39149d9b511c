//! The scopes of a credential: what it may be used for.
//!
//! Each route declares the scope it needs; the policy (`accounts::auth::policy`) decides whose resources a caller may
//! use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One kind of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See jobs, logs, quotas and the server's state.
    Read,
    /// Submit and kill jobs, upload packages.
    Submit,
    /// Read and write files below `/pfs`, publish links.
    Files,
    /// Manage the server and act for other users.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Submit, Scope::Files, Scope::Admin];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Submit => "submit",
            Scope::Files => "files",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that does not name a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a scope: use read, submit, files or admin", .0.escape_debug())]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Scope, UnknownScope> {
        let found = Scope::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| UnknownScope(text.to_owned()))
    }
}

/// A set of scopes, written as a comma-separated list: `read,files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scopes(u8);

impl Scopes {
    pub const NONE: Scopes = Scopes(0);

    /// What an ordinary user may do.
    pub fn user() -> Scopes {
        [Scope::Read, Scope::Submit, Scope::Files].into_iter().collect()
    }

    /// What an administrator may do.
    pub fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The scopes in both sets: a credential never grants more than its owner has.
    pub fn within(self, most: Scopes) -> Scopes {
        Scopes(self.0 & most.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |set, scope| set | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, scope) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{scope}")?;
        }
        Ok(())
    }
}

impl FromStr for Scopes {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Scopes, UnknownScope> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(str::parse::<Scope>).collect()
    }
}

impl TryFrom<String> for Scopes {
    type Error = UnknownScope;

    fn try_from(text: String) -> Result<Scopes, UnknownScope> {
        text.parse()
    }
}

impl From<Scopes> for String {
    fn from(scopes: Scopes) -> String {
        scopes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for set in [Scopes::NONE, Scopes::user(), Scopes::all()] {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert_eq!(Scopes::user().to_string(), "read,submit,files");
        assert_eq!(
            "read, root".parse::<Scopes>().unwrap_err().to_string(),
            "`root` is not a scope: use read, submit, files or admin"
        );
    }

    #[test]
    fn a_narrower_set_stays_within_the_wider_one() {
        let files: Scopes = "files,admin".parse().unwrap();
        assert_eq!(files.within(Scopes::user()).to_string(), "files");
        assert!(!files.contains(Scope::Read));
    }
}
