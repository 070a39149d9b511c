//! The accounts of this server and their limits: the only authority on users.
//!
//! No other module keeps a copy of an account. Code that depends on an account looks it up when needed; code that must react to a
//! change watches [`UserStore::changes`].

mod credential;
mod system_users;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::UserName;
use paddlecloud_core::scheduler::Quota;
use paddlecloud_pfs::quota::Quota as StorageQuota;
use paddlecloud_store::{Limits, ProviderUser, UserCertificate, folded, retired_name};
use paddlecloud_worker::protocol::RunAs;
use tokio::sync::watch;

pub use credential::Credential;
pub use system_users::{SystemUserError, SystemUserMap, SystemUsers, UidRange, UidRangeError};

/// A user as the configuration declares them.
#[derive(Debug, Clone)]
pub struct User {
    pub name: UserName,
    /// `None`: password login is disabled; only a certificate or the server's own socket works.
    pub credential: Option<Credential>,
    pub admin: bool,
    pub limits: Limits,
    /// The system user this user's workers run as.
    pub system_user: Option<String>,
}

/// Where an account is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file; it changes only there.
    Configuration,
    Database,
}

/// A user as the server knows them at this moment.
#[derive(Debug, Clone)]
pub struct Account {
    pub name: UserName,
    /// Never reused for another account; 0 for all accounts of the configuration.
    pub id: u64,
    /// A deleted account had this name before.
    pub reuses_name: bool,
    pub origin: Origin,
    /// A program's account: it has tokens and no password.
    pub service: bool,
    pub groups: Vec<String>,
    /// The effective limits: the user's own, those of their groups, then the server's defaults.
    pub limits: Limits,
    /// `None`: password login is disabled; only a certificate or the server's own socket works.
    pub credential: Option<Credential>,
    /// Certificates issued by the server's own authority with which this user can log in.
    pub certificates: Vec<UserCertificate>,
    /// The user of the login provider who has this account.
    pub provider: Option<ProviderUser>,
    /// The most that any credential of the user grants.
    pub scopes: Scopes,
    /// A disabled user has no access; their data stays.
    pub disabled: bool,
    /// Limits on the user's jobs.
    pub quota: Quota,
    /// The user's groups that limit the sum of their members.
    pub totals: Vec<GroupTotal>,
    /// Limits on the user's files.
    pub storage: StorageQuota,
    /// The system user that owns the home and runs the workers; `None`: the server's own.
    pub run_as: Option<RunAs>,
}

/// What the running jobs of all members of a group may hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTotal {
    pub group: Arc<str>,
    pub quota: Quota,
}

impl Account {
    /// A user with the usual scopes and no limits, who cannot log in with a password.
    pub fn new(name: UserName) -> Account {
        Account {
            name,
            id: 0,
            reuses_name: false,
            origin: Origin::Configuration,
            service: false,
            groups: Vec::new(),
            limits: Limits::default(),
            credential: None,
            certificates: Vec::new(),
            provider: None,
            scopes: Scopes::user(),
            disabled: false,
            quota: Quota::default(),
            totals: Vec::new(),
            storage: StorageQuota::default(),
            run_as: None,
        }
    }

    /// The namespace of this account's jobs in a cluster. A deleted account's namespace is never reused.
    pub fn namespace(&self) -> String {
        match self.reuses_name {
            true => retired_name(&self.name, self.id).namespace(),
            false => self.name.namespace(),
        }
    }

    pub fn certificate(&self, digest: &str) -> Option<&UserCertificate> {
        self.certificates.iter().find(|own| own.digest == digest)
    }

    /// The same account with these limits.
    pub fn with_limits(self, limits: Limits) -> Account {
        Account {
            quota: limits.quota(),
            storage: StorageQuota {
                bytes: limits.storage.map(|bytes| bytes.as_u64()),
                files: limits.files,
            },
            limits,
            ..self
        }
    }
}

/// Where accounts come from.
pub trait UserStore: Send + Sync + 'static {
    /// The account of this name as it is now, disabled or not.
    fn find(&self, name: &UserName) -> Option<Arc<Account>>;

    /// All accounts.
    fn all(&self) -> Vec<Arc<Account>>;

    /// A number that grows with every change. A change is visible to `find` and `all` before the number grows.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// A shared handle to the accounts.
#[derive(Clone)]
pub struct Users(Arc<dyn UserStore>);

impl Users {
    pub fn new(store: impl UserStore) -> Users {
        Users(Arc::new(store))
    }

    /// The users of the configuration; they change only with a restart.
    pub fn configured(users: &[User], system_users: &SystemUsers) -> Users {
        Users::new(AccountTable::configured(users, system_users))
    }

    /// The account of this name, disabled or not.
    pub fn find(&self, name: &UserName) -> Option<Arc<Account>> {
        self.0.find(name)
    }

    /// The namespace of a user's jobs in a cluster.
    pub fn namespace_of(&self, name: &UserName) -> String {
        self.find(name)
            .map_or_else(|| name.namespace(), |account| account.namespace())
    }

    /// The account of this name, unless it is disabled.
    pub fn enabled(&self, name: &UserName) -> Option<Arc<Account>> {
        self.find(name).filter(|account| !account.disabled)
    }

    pub fn all(&self) -> Vec<Arc<Account>> {
        self.0.all()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    /// Whether a user's workers would run as the server's own system user although there are other accounts: they could read
    /// the other users' files, and those of the server. Users of the configuration are compared with each other at the start.
    pub fn shares_system_user(&self, name: &UserName) -> bool {
        let own = self.find(name);
        if own.as_ref().is_some_and(|own| own.run_as.is_some()) {
            return false;
        }
        let is_configured = own.is_some_and(|own| own.origin == Origin::Configuration);
        self.all().iter().any(|other| {
            let was_compared = is_configured && other.origin == Origin::Configuration;
            folded(&other.name) != folded(name) && !was_compared
        })
    }

    /// The current version of the accounts, see [`UserStore::changes`].
    pub fn version(&self) -> u64 {
        *self.changes().borrow()
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Default for Users {
    /// No users.
    fn default() -> Users {
        Users::new(AccountTable::default())
    }
}

/// Accounts in memory, by their folded names.
pub struct AccountTable {
    accounts: RwLock<HashMap<String, Arc<Account>>>,
    changes: watch::Sender<u64>,
}

impl AccountTable {
    pub fn new(accounts: impl IntoIterator<Item = Account>) -> AccountTable {
        AccountTable {
            accounts: RwLock::new(by_name(accounts)),
            changes: watch::Sender::new(0),
        }
    }

    /// The users of the configuration.
    pub fn configured(users: &[User], system_users: &SystemUsers) -> AccountTable {
        AccountTable::new(configured(users, system_users, &Limits::default()))
    }

    /// Adds an account, or replaces the one of this name.
    pub fn put(&self, account: Account) {
        let mut accounts = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
        accounts.insert(folded(&account.name), Arc::new(account));
        drop(accounts);
        self.changes.send_modify(|version| *version += 1);
    }

    /// Replaces all accounts.
    pub fn set(&self, all: impl IntoIterator<Item = Account>) {
        *self.accounts.write().unwrap_or_else(PoisonError::into_inner) = by_name(all);
        self.changes.send_modify(|version| *version += 1);
    }
}

fn by_name(accounts: impl IntoIterator<Item = Account>) -> HashMap<String, Arc<Account>> {
    let pair = |account: Account| (folded(&account.name), Arc::new(account));
    accounts.into_iter().map(pair).collect()
}

/// Accounts as the configuration declares them.
pub fn configured(users: &[User], system_users: &SystemUsers, defaults: &Limits) -> Vec<Account> {
    let account = |user: &User| {
        Account {
            credential: user.credential.clone(),
            scopes: if user.admin { Scopes::all() } else { Scopes::user() },
            run_as: system_users.get(&user.name).cloned(),
            ..Account::new(user.name.clone())
        }
        .with_limits(user.limits.or(defaults))
    };
    users.iter().map(account).collect()
}

impl Default for AccountTable {
    fn default() -> AccountTable {
        AccountTable::new([])
    }
}

impl UserStore for AccountTable {
    fn find(&self, name: &UserName) -> Option<Arc<Account>> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.get(&folded(name)).cloned()
    }

    fn all(&self) -> Vec<Arc<Account>> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.values().cloned().collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl<S: UserStore> UserStore for Arc<S> {
    fn find(&self, name: &UserName) -> Option<Arc<Account>> {
        S::find(self, name)
    }

    fn all(&self) -> Vec<Arc<Account>> {
        S::all(self)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        S::changes(self)
    }
}
