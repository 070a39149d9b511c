//! Accounts and their changes. Accounts of the database can be changed, those of the configuration cannot; both are kept in memory.
//!
//! A change becomes durable together with its audit entry and is visible afterwards, even if the client disconnects in between.
//! The caller decides who may make a change.

mod home_owners;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::Guarantee;
use paddlecloud_store::{AuditEntry, Group, Heir, LimitError, Limits, RETIRED, Record, Store, folded};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::users::{
    self, Account, AccountTable, Credential, GroupTotal, Origin, SystemUserError, SystemUserMap, SystemUsers,
    UidRange, User, Users,
};

use home_owners::HomeOwners;
pub use home_owners::{ForeignHome, OWN_FOLDERS, claim_home};

/// Why a change of accounts is refused.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("there is no user `{0}`")]
    NotFound(UserName),
    #[error("user `{0}` already exists")]
    Taken(UserName),
    #[error("user `{0}` is in the server's configuration and can be changed only there")]
    Configured(UserName),
    #[error("`{RETIRED}` is not allowed in the name of a new user")]
    Reserved,
    #[error("user `{0}` already has that subject")]
    SubjectTaken(UserName),
    #[error("`{0}` is the only administrator")]
    LastAdministrator(UserName),
    #[error("there is no group `{0}`")]
    NoGroup(String),
    #[error("`{0}` is not a group name: use letters, digits, `-`, `_` and `.`, at most 63")]
    GroupName(String),
    #[error("the sum of all guarantees would be {asked}, but the machines have {there}")]
    Guarantees { asked: String, there: String },
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    SystemUser(#[from] SystemUserError),
    #[error(transparent)]
    Home(#[from] ForeignHome),
    #[error("the owners of the homes in the storage cannot be read: {0}")]
    Homes(#[source] io::Error),
    #[error("accounts cannot be changed now")]
    Store(#[from] StoreError),
}

/// What the configuration says about accounts.
#[derive(Debug, Clone, Copy)]
pub struct AccountSettings<'a> {
    pub users: &'a [User],
    /// The limits of users who have none of their own.
    pub default_limits: Limits,
    /// Uids for accounts of the database that do not name a system user.
    pub system_uids: Option<UidRange>,
    /// What users' homes are in. The owners of homes show which numbers are taken.
    pub storage: &'a Path,
}

/// All accounts. Those of the database can be changed.
pub struct Accounts {
    store: Store,
    table: Arc<AccountTable>,
    configured: Vec<Account>,
    defaults: Limits,
    system_users: SystemUserMap,
    /// The range from which accounts get numbers.
    uids: Option<UidRange>,
    homes: HomeOwners,
    /// Held during a change, so that changes are serialized.
    state: Arc<Mutex<State>>,
    /// The total resources of the engine's nodes; `None` until they are known.
    capacity: RwLock<Option<Guarantee>>,
}

#[derive(Default, Clone)]
struct State {
    /// By folded name, without deleted accounts.
    records: BTreeMap<String, Record>,
    groups: BTreeMap<String, Group>,
    last_id: u64,
    /// Folded names of deleted accounts.
    left: BTreeSet<String>,
}

impl Accounts {
    /// Reads the accounts of the database and adds those of the configuration.
    pub async fn open(
        store: Store,
        settings: AccountSettings<'_>,
        named: &SystemUsers,
        system_users: SystemUserMap,
    ) -> Result<Arc<Accounts>, StoreError> {
        let configured = users::configured(settings.users, named, &settings.default_limits);
        let mut state = State::default();
        for record in store.accounts_load().await? {
            state.last_id = state.last_id.max(record.id);
            match record.deleted {
                true => drop(state.left.insert(folded(&record.name))),
                false => drop(state.records.insert(record.folded(), record)),
            }
        }
        for group in store.groups_load().await? {
            state.groups.insert(group.name.clone(), group);
        }
        let accounts = Accounts {
            store,
            table: Arc::new(AccountTable::default()),
            configured,
            defaults: settings.default_limits,
            system_users,
            uids: settings.system_uids,
            homes: HomeOwners::in_storage(settings.storage),
            state: Arc::default(),
            capacity: RwLock::new(None),
        };
        accounts.publish(&state);
        *accounts.state.lock().await = state;
        Ok(Arc::new(accounts))
    }

    /// Sets the total resources of the nodes, against which guarantees are checked.
    pub fn set_capacity(&self, capacity: Guarantee) {
        *self.capacity.write().unwrap_or_else(PoisonError::into_inner) = Some(capacity);
    }

    pub fn users(&self) -> Users {
        Users::new(Arc::clone(&self.table))
    }

    /// The records of the database, and the groups.
    pub async fn list(&self) -> (Vec<Record>, Vec<Group>) {
        let state = self.state.lock().await;
        let records = state.records.values().cloned().collect();
        (records, state.groups.values().cloned().collect())
    }

    pub async fn find(&self, name: &UserName) -> Option<Record> {
        self.state.lock().await.records.get(&folded(name)).cloned()
    }

    /// The account of a provider's user.
    pub async fn find_provider_user(&self, issuer: &str, subject: &str) -> Option<Record> {
        let state = self.state.lock().await;
        let is_theirs = |record: &&Record| {
            record
                .provider
                .as_ref()
                .is_some_and(|user| user.is(issuer, subject))
        };
        state.records.values().find(is_theirs).cloned()
    }

    /// Adds an account; `fill` sets its fields.
    pub async fn add(
        self: &Arc<Self>,
        name: UserName,
        fill: impl FnOnce(&mut Record) -> Result<(), LimitError>,
        entry: AuditEntry,
    ) -> Result<Record, AccountError> {
        let state = self.lock().await;
        if let Some(holder) = self.holder(&state, &name) {
            return Err(AccountError::Taken(holder));
        }
        if name.as_str().contains(RETIRED) {
            return Err(AccountError::Reserved);
        }
        let id = self.free_id(&state, &name)?;
        let mut record = Record::new(id, name);
        record.created = Timestamp::now().as_second();
        fill(&mut record)?;
        self.check(&state, &record)?;
        self.check_system_user(&state, &record)?;
        self.check_guarantees(&state, |next| {
            next.records.insert(record.folded(), record.clone());
        })?;
        self.save(state, record, entry).await
    }

    /// Changes an account.
    pub async fn change(
        self: &Arc<Self>,
        name: &UserName,
        change: impl FnOnce(&mut Record) -> Result<(), LimitError>,
        entry: AuditEntry,
    ) -> Result<Record, AccountError> {
        let state = self.lock().await;
        let before = self.record(&state, name)?;
        let mut record = before.clone();
        change(&mut record)?;
        self.check(&state, &record)?;
        if record.system_user != before.system_user {
            self.check_system_user(&state, &record)?;
        }
        self.check_administrators(&state, &record)?;
        self.check_guarantees(&state, |next| {
            next.records.insert(record.folded(), record.clone());
        })?;
        self.save(state, record, entry).await
    }

    /// Deletes an account. Its name becomes free, its number does not. With an heir, its jobs get a new owner.
    pub async fn retire(
        self: &Arc<Self>,
        name: &UserName,
        heir: Option<Heir>,
        entry: AuditEntry,
    ) -> Result<(), AccountError> {
        let state = self.lock().await;
        let mut record = self.record(&state, name)?.clone();
        let folded = record.folded();
        record.deleted = true;
        record.disabled = true;
        record.password_hash = None;
        record.certificates.clear();
        record.provider = None;
        self.check_administrators(&state, &record)?;
        let store = self.store.clone();
        let write = async move { store.account_retire(&record, heir.as_ref(), entry).await };
        let update = move |state: &mut State| {
            state.records.remove(&folded);
            state.left.insert(folded);
        };
        self.commit(state, write, update).await
    }

    /// Adds a group or changes its limits.
    pub async fn group_set(
        self: &Arc<Self>,
        name: &str,
        change: impl FnOnce(&mut Group) -> Result<(), LimitError>,
        entry: AuditEntry,
    ) -> Result<Group, AccountError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 63 || !name.chars().all(allowed) {
            return Err(AccountError::GroupName(name.to_owned()));
        }
        let state = self.lock().await;
        let known = state.groups.get(name).cloned();
        let mut group = known.unwrap_or_else(|| Group::new(name));
        change(&mut group)?;
        self.check_guarantees(&state, |next| {
            next.groups.insert(name.to_owned(), group.clone());
        })?;
        let (store, saved, shown) = (self.store.clone(), group.clone(), group.clone());
        let write = async move { store.group_save(&saved, entry).await };
        let update = move |state: &mut State| drop(state.groups.insert(group.name.clone(), group));
        self.commit(state, write, update).await?;
        Ok(shown)
    }

    /// Removes a group and the membership of its users.
    pub async fn group_remove(self: &Arc<Self>, name: &str, entry: AuditEntry) -> Result<(), AccountError> {
        let state = self.lock().await;
        if !state.groups.contains_key(name) {
            return Err(AccountError::NoGroup(name.to_owned()));
        }
        let members = state.records.values().filter(|record| is_in(record, name));
        let members: Vec<Record> = members
            .cloned()
            .map(|mut record| {
                record.groups.retain(|group| group != name);
                record
            })
            .collect();
        let (store, removed, name) = (self.store.clone(), members.clone(), name.to_owned());
        let group = name.clone();
        let write = async move { store.group_remove(&group, &removed, entry).await };
        let update = move |state: &mut State| {
            state.groups.remove(&name);
            state
                .records
                .extend(members.into_iter().map(|record| (record.folded(), record)));
        };
        self.commit(state, write, update).await
    }

    async fn lock(&self) -> OwnedMutexGuard<State> {
        Arc::clone(&self.state).lock_owned().await
    }

    async fn save(
        self: &Arc<Self>,
        state: OwnedMutexGuard<State>,
        record: Record,
        entry: AuditEntry,
    ) -> Result<Record, AccountError> {
        let (store, saved, shown) = (self.store.clone(), record.clone(), record.clone());
        let write = async move { store.accounts_save(&[saved], entry).await };
        let update = move |state: &mut State| {
            state.last_id = state.last_id.max(record.id);
            state.records.insert(record.folded(), record);
        };
        self.commit(state, write, update).await?;
        Ok(shown)
    }

    /// Writes a change, then makes it visible. Runs as its own task: the client may disconnect between the two, and a
    /// durable change must take effect immediately.
    async fn commit(
        self: &Arc<Self>,
        mut state: OwnedMutexGuard<State>,
        write: impl Future<Output = Result<(), StoreError>> + Send + 'static,
        update: impl FnOnce(&mut State) + Send + 'static,
    ) -> Result<(), AccountError> {
        let accounts = Arc::clone(self);
        let committed = tokio::spawn(async move {
            write.await?;
            update(&mut state);
            accounts.publish(&state);
            Ok(())
        });
        committed.await.map_err(|panic| StoreError::Write(panic.into()))?
    }

    fn is_configured(&self, name: &UserName) -> bool {
        self.configured_name(name).is_some()
    }

    fn configured_name(&self, name: &UserName) -> Option<&UserName> {
        let wanted = folded(name);
        let mut names = self.configured.iter().map(|account| &account.name);
        names.find(|name| folded(name) == wanted)
    }

    /// The account that has this name, as it is spelled there.
    fn holder(&self, state: &State, name: &UserName) -> Option<UserName> {
        let stored = || state.records.get(&folded(name)).map(|record| &record.name);
        self.configured_name(name).or_else(stored).cloned()
    }

    /// The number of a new account. Skips numbers that own homes: a restored backup may not have the accounts of all homes.
    fn free_id(&self, state: &State, name: &UserName) -> Result<u64, AccountError> {
        let next = state.last_id + 1;
        let Some(range) = self.uids else { return Ok(next) };
        let owners = self.homes.owners_except(name).map_err(AccountError::Homes)?;
        let is_free = |id: &u64| range.number(*id).is_none_or(|uid| !owners.contains(&uid));
        Ok((next..).find(is_free).unwrap_or(next))
    }

    fn record<'a>(&self, state: &'a State, name: &UserName) -> Result<&'a Record, AccountError> {
        if self.is_configured(name) {
            return Err(AccountError::Configured(name.clone()));
        }
        let found = state.records.get(&folded(name));
        found.ok_or_else(|| AccountError::NotFound(name.clone()))
    }

    fn check(&self, state: &State, record: &Record) -> Result<(), AccountError> {
        if let Some(missing) = record
            .groups
            .iter()
            .find(|name| !state.groups.contains_key(*name))
        {
            return Err(AccountError::NoGroup(missing.clone()));
        }
        if let Some(provider) = &record.provider {
            let same = state.records.values().find(|other| {
                let theirs = other.provider.as_ref();
                other.id != record.id
                    && theirs.is_some_and(|user| user.is(&provider.issuer, &provider.subject))
            });
            if let Some(other) = same {
                return Err(AccountError::SubjectTaken(other.name.clone()));
            }
        }
        Ok(())
    }

    /// Checks that a new or changed system user exists, is nobody else's, and owns the home.
    fn check_system_user(&self, state: &State, record: &Record) -> Result<(), AccountError> {
        let system_user = record.system_user.as_deref();
        let found = self.system_users.find(&record.name, record.id, system_user)?;
        let Some(found) = found else {
            return match system_user {
                Some(_) if rustix::process::geteuid().is_root() => {
                    let user = record.name.clone();
                    Err(SystemUserError::Root { user }.into())
                }
                _ => Ok(()),
            };
        };
        let others = self.table_of(state);
        let shared = others.iter().find(|other| {
            folded(&other.name) != folded(&record.name)
                && other
                    .run_as
                    .as_ref()
                    .is_some_and(|run_as| run_as.uid == found.uid)
        });
        match shared {
            Some(other) => Err(AccountError::SystemUser(SystemUserError::Shared {
                first: other.name.clone(),
                second: record.name.clone(),
            })),
            None => Ok(self.homes.claim(&record.name, &found)?),
        }
    }

    /// Checks that the nodes can fulfil all guarantees. A change that raises none is allowed even if nodes were lost.
    fn check_guarantees(&self, state: &State, change: impl FnOnce(&mut State)) -> Result<(), AccountError> {
        let capacity = *self.capacity.read().unwrap_or_else(PoisonError::into_inner);
        let Some(there) = capacity else { return Ok(()) };
        let mut next = state.clone();
        change(&mut next);
        let (before, asked) = (self.guaranteed(state), self.guaranteed(&next));
        let broken = [
            (asked.cpu > there.cpu && asked.cpu > before.cpu)
                .then(|| (format!("{} cores", asked.cpu), format!("{} cores", there.cpu))),
            (asked.memory > there.memory && asked.memory > before.memory).then(|| {
                let words = |bytes: Bytes| format!("{bytes} of memory");
                (words(asked.memory), words(there.memory))
            }),
            (asked.gpu > there.gpu && asked.gpu > before.gpu)
                .then(|| (format!("{} GPUs", asked.gpu), format!("{} GPUs", there.gpu))),
        ];
        match broken.into_iter().flatten().next() {
            Some((asked, there)) => Err(AccountError::Guarantees { asked, there }),
            None => Ok(()),
        }
    }

    /// The sum of all users' guarantees, including disabled users: they may be enabled again.
    fn guaranteed(&self, state: &State) -> Guarantee {
        let guarantees = self.limits_of_all(state).map(|limits| limits.guarantee());
        guarantees.fold(Guarantee::default(), |sum, one| Guarantee {
            cpu: Cpu::millis(sum.cpu.as_millis().saturating_add(one.cpu.as_millis())),
            memory: Bytes::new(sum.memory.as_u64().saturating_add(one.memory.as_u64())),
            gpu: sum.gpu.saturating_add(one.gpu),
        })
    }

    fn limits_of_all(&self, state: &State) -> impl Iterator<Item = Limits> {
        let stored = state.records.values();
        let stored = stored.filter(|record| !self.is_configured(&record.name));
        let stored = stored.map(|record| self.limits(state, record));
        self.configured.iter().map(|account| account.limits).chain(stored)
    }

    /// The effective limits: the user's own, then those of their groups, then the server's defaults.
    fn limits(&self, state: &State, record: &Record) -> Limits {
        let groups = record.groups.iter().filter_map(|name| state.groups.get(name));
        let limits = groups.fold(record.limits, |limits, group| limits.or(&group.limits));
        limits.or(&self.defaults)
    }

    /// Refuses to remove the last administrator, which no one could undo.
    fn check_administrators(&self, state: &State, changed: &Record) -> Result<(), AccountError> {
        let rules = |record: &Record| record.admin && !record.disabled && !record.deleted;
        let others = state.records.values().filter(|record| record.id != changed.id);
        let configured = self
            .configured
            .iter()
            .any(|account| account.scopes == Scopes::all());
        let was = state
            .records
            .values()
            .any(|record| record.id == changed.id && rules(record));
        match !was || rules(changed) || configured || others.into_iter().any(rules) {
            true => Ok(()),
            false => Err(AccountError::LastAdministrator(changed.name.clone())),
        }
    }

    fn publish(&self, state: &State) {
        self.table.set(self.table_of(state));
    }

    fn table_of(&self, state: &State) -> Vec<Account> {
        let stored = state.records.values().filter(|record| {
            let shadowed = self.is_configured(&record.name);
            if shadowed {
                tracing::warn!(user = %record.name, "a user of the configuration hides the account of this name");
            }
            !shadowed
        });
        let stored = stored.map(|record| self.account(state, record));
        let all = self.configured.iter().cloned().chain(stored);
        let with_past = |account: Account| Account {
            reuses_name: state.left.contains(&folded(&account.name)),
            ..account
        };
        all.map(with_past).collect()
    }

    fn account(&self, state: &State, record: &Record) -> Account {
        let system_user = record.system_user.as_deref();
        let run_as = self.system_users.find(&record.name, record.id, system_user);
        let (run_as, usable) = match run_as {
            Ok(run_as) => (run_as, true),
            Err(error) => {
                tracing::error!(user = %record.name, %error, "the account is disabled because its system user cannot be used");
                (None, false)
            }
        };
        Account {
            id: record.id,
            origin: Origin::Database,
            service: record.service,
            groups: record.groups.clone(),
            credential: record.password_hash.clone().map(Credential::Hash),
            certificates: record.certificates.clone(),
            provider: record.provider.clone(),
            scopes: if record.admin {
                Scopes::all()
            } else {
                Scopes::user()
            },
            disabled: record.disabled || !usable,
            totals: totals(state, record),
            run_as,
            ..Account::new(record.name.clone())
        }
        .with_limits(self.limits(state, record))
    }
}

/// The totals of a user's groups.
fn totals(state: &State, record: &Record) -> Vec<GroupTotal> {
    let groups = record.groups.iter().filter_map(|name| state.groups.get(name));
    let limited = groups.filter(|group| group.total != Limits::default());
    let total = limited.map(|group| GroupTotal {
        group: group.name.as_str().into(),
        quota: group.total.quota(),
    });
    total.collect()
}

fn is_in(record: &Record, group: &str) -> bool {
    record.groups.iter().any(|name| name == group)
}
