//! Maps users to system users, looked up on this machine.
//!
//! A user without a mapping acts as the server's own system user, and so does a user who is mapped to it. If several users share
//! a server that runs as root, this would be root and is refused.

use std::collections::HashMap;
use std::io;
use std::str::FromStr;

use paddlecloud_core::names::UserName;
use paddlecloud_worker::protocol::{Isolation, Namespaces, RunAs};

use super::User;

/// A range of uids: the account with number `n` runs as `first + n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    pub first: u32,
    pub last: u32,
}

impl UidRange {
    /// The number of the account with this id, if the range is large enough.
    pub fn number(self, id: u64) -> Option<u32> {
        let number = u32::try_from(id).ok().and_then(|id| self.first.checked_add(id));
        number.filter(|number| *number <= self.last)
    }
}

/// Why a text is not a range of uids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a range of user numbers: write `20000-29999`", .0.escape_debug())]
pub struct UidRangeError(String);

impl FromStr for UidRange {
    type Err = UidRangeError;

    fn from_str(text: &str) -> Result<UidRange, UidRangeError> {
        let numbers = text.split_once('-').and_then(|(first, last)| {
            let range = UidRange {
                first: first.trim().parse().ok()?,
                last: last.trim().parse().ok()?,
            };
            (range.first > 0 && range.first <= range.last).then_some(range)
        });
        numbers.ok_or_else(|| UidRangeError(text.to_owned()))
    }
}

/// Users who act as another system user than the server's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemUsers(HashMap<UserName, RunAs>);

/// Why the mapping of the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SystemUserError {
    #[error("user `{user}`: there is no system user `{account}` on this machine")]
    Unknown { user: UserName, account: String },
    #[error("user `{user}`: system user `{account}` cannot be looked up")]
    Lookup {
        user: UserName,
        account: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the workers of user `{user}` cannot run as system user `{account}`, because the server does not run as root"
    )]
    NotRoot { user: UserName, account: String },
    #[error("the workers of user `{user}` would run as root and could read other users' files")]
    Root { user: UserName },
    #[error("the workers of users `{first}` and `{second}` would run as the same system user")]
    Shared { first: UserName, second: UserName },
    #[error(
        "the workers of user `{user}` cannot run as another system user, because this machine permits no mount namespaces"
    )]
    NoView { user: UserName },
    #[error("`system_uids` has no number left for user `{user}`")]
    NoNumber { user: UserName },
}

impl SystemUserError {
    pub fn hint(&self) -> &'static str {
        match self {
            SystemUserError::Unknown { .. } | SystemUserError::Lookup { .. } => {
                "create it with `useradd`, or correct `system_user`"
            }
            SystemUserError::NotRoot { .. } => "start the server as root, or leave `system_user` out",
            SystemUserError::Shared { .. } | SystemUserError::Root { .. } => {
                "give every user their own `system_user`"
            }
            SystemUserError::NoNumber { .. } => "make `system_uids` larger; running jobs are not affected",
            SystemUserError::NoView { .. } => {
                "permit mount namespaces (a container needs CAP_SYS_ADMIN), or leave `system_user` out"
            }
        }
    }
}

impl SystemUsers {
    /// Looks up all users and checks that the server can act as their system users on a machine that permits `isolation`.
    pub fn find(users: &[User], isolation: &Isolation) -> Result<SystemUsers, SystemUserError> {
        let own = rustix::process::geteuid().as_raw();
        let found = find_with(users, own, paddlecloud_supervisor::find_account)?;
        // Inside a user namespace there are no other users.
        let has_view = matches!(isolation.namespaces, Some(Namespaces { user: false, .. }));
        match found.0.keys().next() {
            Some(user) if !has_view => Err(SystemUserError::NoView { user: user.clone() }),
            _ => Ok(found),
        }
    }

    pub fn get(&self, user: &UserName) -> Option<&RunAs> {
        self.0.get(user)
    }
}

/// Finds the system user of an account that is not in the configuration.
#[derive(Debug, Clone, Copy)]
pub struct SystemUserMap {
    range: Option<UidRange>,
    own: u32,
    /// Whether workers can run as other users on this machine.
    has_view: bool,
}

impl SystemUserMap {
    pub fn new(range: Option<UidRange>, isolation: &Isolation) -> SystemUserMap {
        SystemUserMap {
            range,
            own: rustix::process::geteuid().as_raw(),
            has_view: matches!(isolation.namespaces, Some(Namespaces { user: false, .. })),
        }
    }

    /// For an engine that isolates workers by other means.
    pub fn none() -> SystemUserMap {
        SystemUserMap {
            range: None,
            own: 0,
            has_view: false,
        }
    }

    /// The system user that runs the account's workers: the named one, or one by number. `None`: the server's own.
    pub fn find(
        &self,
        user: &UserName,
        id: u64,
        account: Option<&str>,
    ) -> Result<Option<RunAs>, SystemUserError> {
        let found = match (account, self.range) {
            (Some(account), _) => Some(self.named(user, account)?),
            (None, Some(range)) => Some(numbered(user, id, range)?),
            (None, None) => None,
        };
        let Some(found) = found.filter(|found| found.uid != self.own) else {
            return Ok(None);
        };
        if found.uid == 0 {
            return Err(SystemUserError::Root { user: user.clone() });
        }
        if self.own != 0 {
            let account = account.map_or_else(|| found.uid.to_string(), str::to_owned);
            let user = user.clone();
            return Err(SystemUserError::NotRoot { user, account });
        }
        match self.has_view {
            true => Ok(Some(found)),
            false => Err(SystemUserError::NoView { user: user.clone() }),
        }
    }

    fn named(&self, user: &UserName, account: &str) -> Result<RunAs, SystemUserError> {
        let (user, account) = (|| user.clone(), account.to_owned());
        let found = paddlecloud_supervisor::find_account(&account);
        let found = found.map_err(|source| SystemUserError::Lookup {
            user: user(),
            account: account.clone(),
            source,
        })?;
        found.ok_or_else(|| SystemUserError::Unknown {
            user: user(),
            account,
        })
    }
}

fn numbered(user: &UserName, id: u64, range: UidRange) -> Result<RunAs, SystemUserError> {
    let uid = range.number(id);
    let uid = uid.ok_or_else(|| SystemUserError::NoNumber { user: user.clone() })?;
    Ok(RunAs {
        uid,
        gid: uid,
        groups: vec![uid],
    })
}

fn find_with(
    users: &[User],
    own: u32,
    look_up: impl Fn(&str) -> io::Result<Option<RunAs>>,
) -> Result<SystemUsers, SystemUserError> {
    let mut taken: HashMap<u32, &UserName> = HashMap::new();
    let mut others = HashMap::new();
    for user in users {
        let Some(account) = &user.system_user else {
            continue;
        };
        let (name, account) = (|| user.name.clone(), || account.clone());
        let found = look_up(&account()).map_err(|source| SystemUserError::Lookup {
            user: name(),
            account: account(),
            source,
        })?;
        let found = found.ok_or_else(|| SystemUserError::Unknown {
            user: name(),
            account: account(),
        })?;
        if let Some(first) = taken.insert(found.uid, &user.name) {
            let (first, second) = (first.clone(), name());
            return Err(SystemUserError::Shared { first, second });
        }
        if found.uid == 0 && users.len() > 1 {
            return Err(SystemUserError::Root { user: name() });
        }
        if found.uid == own {
            continue;
        }
        if own != 0 {
            return Err(SystemUserError::NotRoot {
                user: name(),
                account: account(),
            });
        }
        others.insert(name(), found);
    }
    let unmapped = users.iter().find(|user| user.system_user.is_none());
    match (taken.get(&own), unmapped) {
        (Some(&first), Some(second)) => Err(SystemUserError::Shared {
            first: first.clone(),
            second: second.name.clone(),
        }),
        (None, Some(user)) if own == 0 && !taken.is_empty() => Err(SystemUserError::Root {
            user: user.name.clone(),
        }),
        _ => Ok(SystemUsers(others)),
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_store::Limits;

    use super::*;

    /// `a` runs as the system user `ann`, `c` as the server's own: `users("a=ann c")`.
    fn users(list: &str) -> Vec<User> {
        let user = |word: &str| {
            let (name, system_user) = match word.split_once('=') {
                Some((name, system_user)) => (name, Some(system_user.to_owned())),
                None => (word, None),
            };
            User {
                name: name.parse().unwrap(),
                credential: None,
                admin: false,
                limits: Limits::default(),
                system_user,
            }
        };
        list.split(' ').map(user).collect()
    }

    fn machine(account: &str) -> io::Result<Option<RunAs>> {
        let uid = match account {
            "root" => 0,
            "ann" => 1001,
            "bob" | "robert" => 1002,
            "ldap" => return Err(io::ErrorKind::TimedOut.into()),
            _ => return Ok(None),
        };
        Ok(Some(RunAs {
            uid,
            gid: uid,
            groups: vec![uid],
        }))
    }

    fn refused(own: u32, list: &str) -> String {
        let error = find_with(&users(list), own, machine).expect_err(list);
        format!("{error}\n  hint: {}", error.hint())
    }

    #[test]
    fn only_users_mapped_to_another_account_run_as_it() {
        let two = users("a=ann b=bob");
        let found = find_with(&two, 0, machine).unwrap();
        assert_eq!(found.get(&two[0].name).unwrap().uid, 1001);
        assert_eq!(found.get(&two[1].name).unwrap().groups, [1002]);
        let alone = find_with(&users("c"), 0, machine).unwrap();
        assert_eq!(alone, SystemUsers::default(), "nobody is beside them");
        let own = find_with(&users("a=ann"), 1001, machine).unwrap();
        assert_eq!(
            own,
            SystemUsers::default(),
            "the server's own account needs no root"
        );
    }

    #[test]
    fn every_mapping_that_cannot_be_kept_is_refused_in_one_sentence() {
        let texts = [
            refused(0, "a=nobody-here"),
            refused(0, "a=ldap"),
            refused(1001, "a=bob"),
            refused(0, "a=bob b=robert"),
            refused(0, "a=root b"),
            refused(0, "a=ann c"),
            refused(0, "c a=ann"),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        user `a`: there is no system user `nobody-here` on this machine
          hint: create it with `useradd`, or correct `system_user`
        user `a`: system user `ldap` cannot be looked up
          hint: create it with `useradd`, or correct `system_user`
        the workers of user `a` cannot run as system user `bob`, because the server does not run as root
          hint: start the server as root, or leave `system_user` out
        the workers of users `a` and `b` would run as the same system user
          hint: give every user their own `system_user`
        the workers of user `a` would run as root and could read other users' files
          hint: give every user their own `system_user`
        the workers of user `c` would run as root and could read other users' files
          hint: give every user their own `system_user`
        the workers of user `c` would run as root and could read other users' files
          hint: give every user their own `system_user`
        ");
    }
}
