//! Accounts and groups as stored in the database.

use paddlecloud_core::names::UserName;
use serde::{Deserialize, Serialize};

use super::Limits;

/// Separates a deleted account's name from its number. No new account's name may contain it.
pub const RETIRED: char = '~';

/// Most characters of a name that a retired name keeps.
const KEPT: usize = 100;

/// A certificate that was signed for a user. One that is no longer listed has been revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCertificate {
    /// The serial number, by which users refer to it.
    pub id: String,
    /// The digest of the whole certificate.
    pub digest: String,
    /// Unix seconds, here and below.
    pub created: i64,
    pub expires: i64,
}

/// A user of a login provider. Only issuer and subject together identify one; an e-mail address does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderUser {
    pub issuer: String,
    pub subject: String,
    /// Grows when the provider ends the login, which ends all tokens.
    #[serde(default)]
    pub ended: u64,
}

impl ProviderUser {
    pub fn new(issuer: &str, subject: &str) -> ProviderUser {
        ProviderUser {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            ended: 0,
        }
    }

    pub fn is(&self, issuer: &str, subject: &str) -> bool {
        self.issuer == issuer && self.subject == subject
    }
}

/// One account. It has no `Debug` because it contains the password hash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Never reused for another account.
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
    /// The user of the login provider who has this account; then it has no password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderUser>,
    /// Unix seconds.
    #[serde(default)]
    pub created: i64,
}

/// A group: limits for members who have none of their own, and limits for all members together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    #[serde(default)]
    pub limits: Limits,
    /// Set by [`Limits::set_total`].
    #[serde(default)]
    pub total: Limits,
}

impl Group {
    pub fn new(name: &str) -> Group {
        Group {
            name: name.to_owned(),
            limits: Limits::default(),
            total: Limits::default(),
        }
    }
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
            provider: None,
            created: 0,
        }
    }

    /// The unique key: the folded name. A deleted account frees its name for others.
    pub fn folded(&self) -> String {
        match self.deleted {
            true => folded(&self.retired_name()),
            false => folded(&self.name),
        }
    }

    /// The owner of what a deleted account leaves behind.
    pub fn retired_name(&self) -> UserName {
        retired_name(&self.name, self.id)
    }

    /// The folder in the home of the user who gets this one's home.
    pub fn given_folder(&self) -> String {
        format!("from-{}", self.retired_name())
    }
}

/// Names that differ only in the case of their letters are the same name.
pub fn folded(name: &UserName) -> String {
    name.as_str().to_lowercase()
}

/// A unique name for this deleted account that no usable account can have.
pub fn retired_name(name: &UserName, id: u64) -> UserName {
    let name: String = name.as_str().chars().take(KEPT).collect();
    // A long name of multi-byte characters may exceed the limit in bytes.
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
    fn a_deleted_account_frees_its_name_and_gets_a_unique_one() {
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
