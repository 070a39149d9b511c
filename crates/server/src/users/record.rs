//! Accounts and groups as the database keeps them.

use paddlecloud_core::names::UserName;
use serde::{Deserialize, Serialize};

use super::{Limits, folded};

pub use crate::config::RETIRED;

/// Most characters of a name that a retired name keeps.
const KEPT: usize = 100;

/// A certificate that was signed for a user. Those that are not here any more are revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCertificate {
    /// What people call it by: its serial number.
    pub id: String,
    /// Of the whole certificate.
    pub digest: String,
    /// Unix seconds, here and below.
    pub created: i64,
    pub expires: i64,
}

/// One account. Not printable: it has the hash of the password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Never given to another account.
    pub id: u64,
    pub name: UserName,
    #[serde(default)]
    pub password_hash: Option<String>,
    #[serde(default)]
    pub admin: bool,
    #[serde(default)]
    pub service: bool,
    #[serde(default)]
    pub disabled: bool,
    #[serde(default)]
    pub deleted: bool,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub system_user: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<UserCertificate>,
    /// Unix seconds.
    #[serde(default)]
    pub created: i64,
}

/// A group: limits for members who have none of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    #[serde(default)]
    pub limits: Limits,
}

impl Record {
    pub fn new(id: u64, name: UserName) -> Record {
        Record {
            id,
            name,
            password_hash: None,
            admin: false,
            service: false,
            disabled: false,
            deleted: false,
            groups: Vec::new(),
            limits: Limits::default(),
            system_user: None,
            certificates: Vec::new(),
            created: 0,
        }
    }

    /// What must be unique: the folded name, which a deleted account leaves to others.
    pub fn folded(&self) -> String {
        match self.deleted {
            true => folded(&self.retired_name()),
            false => folded(&self.name),
        }
    }

    /// Who owns what a deleted account leaves behind.
    pub fn retired_name(&self) -> UserName {
        retired_name(&self.name, self.id)
    }
}

/// A name that no account has that can be used, and that belongs to this one alone.
pub fn retired_name(name: &UserName, id: u64) -> UserName {
    let name: String = name.as_str().chars().take(KEPT).collect();
    // Long names of wide characters may exceed the most bytes.
    let short = || format!("deleted{RETIRED}{id}").parse();
    format!("{name}{RETIRED}{id}")
        .parse()
        .or_else(|_| short())
        .expect("a short word is a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_account_leaves_its_name_and_keeps_one_of_its_own() {
        let mut record = Record::new(7, "Ann@Example.com".parse().unwrap());
        assert_eq!(record.folded(), "ann@example.com");
        record.deleted = true;
        assert_eq!(record.folded(), "ann@example.com~7");
        let long = Record::new(8, "x".repeat(128).parse().unwrap());
        assert!(long.retired_name().as_str().ends_with("x~8"));
        let wide = Record::new(9, "é".repeat(64).parse().unwrap());
        assert_eq!(wide.retired_name().as_str(), "deleted~9");
    }
}
