//! Accounts, groups and the audit log, for administrators.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use paddlecloud_accounts::AccountError;
use paddlecloud_accounts::auth::{Caller, hash_password, request_id};
use paddlecloud_accounts::users::{Account, Origin};
use paddlecloud_api::admin::{
    AuditCheck, AuditView, Dispose, GroupRequest, GroupView, UserDeleted, UserRequest, UserView,
};
use paddlecloud_core::job::{AccountEnd, AfterKill, Job, Phase};
use paddlecloud_core::names::{JobRef, NameError, UserName};
use paddlecloud_core::ports::{JobStore, PageRequest};
use paddlecloud_store::{AuditEntry, AuditState, Group, Heir, LimitError, Limits, ProviderUser, Record};

use super::{App, AppError, What};

/// Limit on the rows of the audit log in one reply.
const MOST_AUDIT: u32 = 1000;
/// Jobs of the history to read at a time.
const PAGE: usize = 500;
/// Characters that a password must have.
const LEAST_PASSWORD: usize = 8;

/// Why an account cannot be created, changed or deleted as requested.
#[derive(Debug, thiserror::Error)]
pub enum UserRefusal {
    #[error("`name`: {0}")]
    Name(NameError),
    #[error("`name` and `service` cannot be changed")]
    FixedField,
    #[error("a password has at least {LEAST_PASSWORD} characters")]
    ShortPassword,
    #[error("this user logs in with the login provider; remove `oidc_subject` before you set a password")]
    HasProvider,
    #[error("a user logs in with a password or with the login provider, not with both")]
    PasswordAndProvider,
    #[error("a service account cannot log in with the login provider")]
    ServiceWithProvider,
    #[error("this server has no login provider: `oidc` is not configured")]
    NoProvider,
    #[error("you cannot delete your own account")]
    OwnAccount,
    /// The home would stay and belong to the next account of this name.
    #[error("accounts cannot be deleted on a server that stores files on HDFS or S3")]
    RemoteHome,
    #[error("`to` must name the user who gets jobs and home")]
    NoHeir,
    #[error("`to` must be another user")]
    HeirIsOwner,
}

/// What a request changes about the login provider's user of an account.
enum ProviderChange {
    None,
    Remove,
    Set(ProviderUser),
}

impl App {
    pub async fn user_list(&self) -> Vec<UserView> {
        let (records, _) = self.accounts.list().await;
        let mut accounts = self.auth.users().all();
        accounts.sort_by(|left, right| left.name.cmp(&right.name));
        let own = |account: &Account| records.iter().find(|record| record.id == account.id);
        accounts
            .iter()
            .map(|account| user_view(account, own(account).filter(|_| account.id != 0)))
            .collect()
    }

    pub async fn user_show(&self, name: &str) -> Result<UserView, AppError> {
        let name = user_name(name)?;
        let account = self.auth.users().find(&name).ok_or_else(|| no_user(&name))?;
        let record = self.accounts.find(&name).await;
        Ok(user_view(&account, record.as_ref().filter(|_| account.id != 0)))
    }

    pub async fn user_add(&self, caller: &Caller, request: UserRequest) -> Result<UserView, AppError> {
        let requested = request.name.as_deref().unwrap_or_default();
        let name: UserName = requested.parse().map_err(UserRefusal::Name)?;
        let provider = self.provider_of(None, &request)?;
        let hash = hashed(request.password.clone()).await?;
        let entry = audit(caller, "user.add", name.as_str(), &shown(&request));
        let fill = |record: &mut Record| {
            record.service = request.service == Some(true);
            apply(record, &request, hash, provider)
        };
        self.know_capacity().await;
        let record = self.accounts.add(name, fill, entry).await?;
        self.user_show(record.name.as_str()).await
    }

    /// The change of the provider's user in a request. An account has a password or a user of the provider, not both.
    fn provider_of(
        &self,
        record: Option<Record>,
        request: &UserRequest,
    ) -> Result<ProviderChange, UserRefusal> {
        let is_service =
            request.service == Some(true) || record.as_ref().is_some_and(|record| record.service);
        let has_provider = record.is_some_and(|record| record.provider.is_some());
        match request.oidc_subject.as_deref() {
            None if has_provider && request.password.is_some() => Err(UserRefusal::HasProvider),
            None => Ok(ProviderChange::None),
            Some("") => Ok(ProviderChange::Remove),
            Some(_) if request.password.is_some() => Err(UserRefusal::PasswordAndProvider),
            Some(_) if is_service => Err(UserRefusal::ServiceWithProvider),
            Some(subject) => match &self.config.oidc {
                Some(oidc) => Ok(ProviderChange::Set(ProviderUser::new(&oidc.issuer, subject))),
                None => Err(UserRefusal::NoProvider),
            },
        }
    }

    /// Changes an account. A disabled account loses access immediately and its queued jobs are killed, even if this
    /// ends the caller's own access.
    pub async fn user_set(
        self: &Arc<Self>,
        caller: &Caller,
        name: &str,
        request: UserRequest,
    ) -> Result<UserView, AppError> {
        let (app, caller, name) = (Arc::clone(self), caller.clone(), user_name(name)?);
        App::carry_out(async move { app.user_change(&caller, name, request).await }).await
    }

    async fn user_change(
        &self,
        caller: &Caller,
        name: UserName,
        request: UserRequest,
    ) -> Result<UserView, AppError> {
        if request.name.is_some() || request.service.is_some() {
            return Err(UserRefusal::FixedField.into());
        }
        let provider = self.provider_of(self.accounts.find(&name).await, &request)?;
        let hash = hashed(request.password.clone()).await?;
        let action = match request.disabled {
            Some(true) => "user.disable",
            Some(false) => "user.enable",
            None => "user.set",
        };
        let entry = audit(caller, action, name.as_str(), &shown(&request));
        let change = |record: &mut Record| apply(record, &request, hash, provider);
        self.know_capacity().await;
        let record = self.accounts.change(&name, change, entry).await?;
        let mut jobs = None;
        if request.disabled == Some(true) {
            self.submits_ended().await;
            let all = self.jobs_of(&record.name);
            let (queued, running): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|job| job.phase == Phase::Pending);
            for job in &queued {
                self.jobs.account_ended(&job.id, AccountEnd::Disabled).await?;
            }
            jobs = Some((queued.len(), running.len()));
        }
        let view = self.user_show(record.name.as_str()).await?;
        Ok(UserView {
            killed_jobs: jobs.map(|(killed, _)| killed),
            running_jobs: jobs.map(|(_, running)| running),
            ..view
        })
    }

    /// Updates the capacity against which guarantees are checked: nodes come and go.
    async fn know_capacity(&self) {
        if let Some(capacity) = self.jobs.capacity().await {
            self.accounts.set_capacity(capacity);
        }
    }

    /// Deletes an account, resuming an earlier attempt at the step where it stopped. Its jobs are stopped first.
    pub async fn user_delete(
        &self,
        caller: &Caller,
        name: &str,
        dispose: Dispose,
        heir: Option<&str>,
    ) -> Result<UserDeleted, AppError> {
        let name = user_name(name)?;
        let record = match self.accounts.find(&name).await {
            Some(record) => record,
            // Returns the same errors as any change: not found, or in the configuration.
            None => {
                self.accounts
                    .change(&name, |_| Ok(()), AuditEntry::default())
                    .await?
            }
        };
        if record.name == caller.user {
            return Err(UserRefusal::OwnAccount.into());
        }
        if self.files.is_remote() {
            return Err(UserRefusal::RemoteHome.into());
        }
        let heir = heir.map(|heir| self.heir(heir, &record.name)).transpose()?;
        let heir = match (dispose, heir) {
            (Dispose::GiveTo, None) => return Err(UserRefusal::NoHeir.into()),
            (Dispose::GiveTo, heir) => heir,
            (Dispose::Keep | Dispose::Purge, _) => None,
        };
        let entry = audit(caller, "user.disable", record.name.as_str(), "to be deleted");
        let disable = |record: &mut Record| {
            record.disabled = true;
            Ok(())
        };
        let record = self.accounts.change(&name, disable, entry).await?;
        self.submits_ended().await;
        let stopped = self.stop_jobs(&record.name).await?;
        self.revoke_links(&record.name).await?;
        let owner = match &heir {
            Some(heir) => heir.name.clone(),
            None => record.retired_name(),
        };
        if dispose == Dispose::Purge {
            self.purge_jobs(&record.name).await?;
        }
        let home = self.dispose_of_home(&record, dispose, heir.as_deref()).await?;
        let jobs = (dispose != Dispose::Purge).then(|| owner.to_string());
        let detail = format!("{dispose:?}, jobs of {}", jobs.as_deref().unwrap_or("nobody"));
        let entry = audit(caller, "user.delete", record.name.as_str(), &detail);
        let heir = jobs.is_some().then(|| Heir {
            from: record.name.clone(),
            to: owner,
        });
        self.accounts.retire(&record.name, heir, entry).await?;
        Ok(UserDeleted {
            name: record.name.to_string(),
            stopped,
            jobs,
            home,
        })
    }

    fn heir(&self, name: &str, from: &UserName) -> Result<Arc<Account>, AppError> {
        let name = user_name(name)?;
        let heir = self.auth.users().enabled(&name).ok_or_else(|| no_user(&name))?;
        match heir.name == *from {
            true => Err(UserRefusal::HeirIsOwner.into()),
            false => Ok(heir),
        }
    }

    fn jobs_of(&self, user: &UserName) -> Vec<Arc<Job>> {
        let mut jobs = self.jobs.active();
        jobs.retain(|job| job.user == *user);
        jobs
    }

    async fn stop_jobs(&self, user: &UserName) -> Result<usize, AppError> {
        let jobs = self.jobs_of(user);
        for job in &jobs {
            self.jobs.account_ended(&job.id, AccountEnd::Deleted).await?;
            self.jobs.skip_grace(&job.id).await?;
        }
        for job in &jobs {
            self.jobs.wait_final(&job.id).await;
        }
        Ok(jobs.len())
    }

    async fn revoke_links(&self, user: &UserName) -> Result<(), AppError> {
        let own = as_user(user);
        for share in self.share_list(&own).await? {
            self.share_revoke(&own, share.id).await?;
        }
        let uploads = match self.upload_list(&own).await {
            // Nothing can be uploaded there, and the home is moved or removed with what is in it.
            Err(error) if error.is_foreign_home() => Vec::new(),
            other => other?,
        };
        for upload in uploads {
            self.upload_discard(&own, &upload.id.to_string()).await?;
        }
        Ok(())
    }

    async fn purge_jobs(&self, user: &UserName) -> Result<(), AppError> {
        let request = PageRequest {
            user: Some(user.clone()),
            name: None,
            before: None,
            limit: PAGE,
        };
        loop {
            let page = self.store.page(&request).await?;
            for job in &page.jobs {
                self.jobs
                    .kill(&job.user, JobRef::Id(job.id.clone()), AfterKill::Remove)
                    .await?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    pub async fn group_list(&self) -> Vec<GroupView> {
        let (records, groups) = self.accounts.list().await;
        let view = |group: &Group| GroupView {
            name: group.name.clone(),
            limits: limit_map(&group.limits),
            total: limit_map(&group.total),
            members: records
                .iter()
                .filter(|record| record.groups.contains(&group.name))
                .map(|record| record.name.to_string())
                .collect(),
        };
        groups.iter().map(view).collect()
    }

    pub async fn group_set(
        &self,
        caller: &Caller,
        name: &str,
        request: GroupRequest,
    ) -> Result<GroupView, AppError> {
        let limits = request.limits.iter();
        let limits = limits.map(|(name, value)| format!("{name}={value}"));
        let total = request.total.iter();
        let total = total.map(|(name, value)| format!("total {name}={value}"));
        let detail: Vec<String> = limits.chain(total).collect();
        let entry = audit(caller, "group.set", name, &detail.join(" "));
        let set = |group: &mut Group| {
            set_limits(&mut group.limits, &request.limits)?;
            let mut total = request.total.iter();
            total.try_for_each(|(name, value)| group.total.set_total(name, value))
        };
        self.know_capacity().await;
        let group = self.accounts.group_set(name, set, entry).await?;
        let all = self.group_list().await;
        all.into_iter()
            .find(|view| view.name == group.name)
            .ok_or(AppError::Internal)
    }

    pub async fn group_delete(&self, caller: &Caller, name: &str) -> Result<(), AppError> {
        let entry = audit(caller, "group.delete", name, "");
        Ok(self.accounts.group_remove(name, entry).await?)
    }

    /// Rows of the audit log, latest first.
    pub async fn audit_list(
        &self,
        before: Option<i64>,
        limit: Option<u32>,
    ) -> Result<Vec<AuditView>, AppError> {
        let limit = limit.unwrap_or(100).clamp(1, MOST_AUDIT);
        let records = self.store.audit_list(before, limit).await?;
        let view = |record: paddlecloud_store::AuditRecord| AuditView {
            seq: record.seq,
            time: Timestamp::from_millisecond(record.at)
                .unwrap_or_default()
                .to_string(),
            actor: record.entry.actor,
            action: record.entry.action,
            subject: record.entry.subject,
            detail: record.entry.detail,
            request: record.entry.request,
        };
        Ok(records.into_iter().map(view).collect())
    }

    pub async fn audit_verify(&self) -> Result<AuditCheck, AppError> {
        let state = self.store.audit_verify().await?;
        Ok(match state {
            AuditState::Sound { rows, digest } => AuditCheck {
                sound: true,
                rows,
                digest: Some(digest),
                problem: None,
            },
            AuditState::Broken { seq, problem } => AuditCheck {
                sound: false,
                rows: seq,
                digest: None,
                problem: Some(problem),
            },
        })
    }
}

/// An audit entry for this request.
pub(super) fn audit(caller: &Caller, action: &str, subject: &str, detail: &str) -> AuditEntry {
    AuditEntry {
        actor: caller.user.to_string(),
        action: action.to_owned(),
        subject: subject.to_owned(),
        detail: detail.to_owned(),
        request: request_id::current(),
    }
}

/// The request without the password, for the audit log.
fn shown(request: &UserRequest) -> String {
    let shown = UserRequest {
        password: None,
        name: None,
        ..request.clone()
    };
    let mut words = vec![serde_json::to_string(&shown).unwrap_or_default()];
    if request.password.is_some() {
        words.push("with a new password".to_owned());
    }
    words.join(" ")
}

/// Hashes a password on a blocking thread, because it takes a while.
pub(super) async fn hashed(password: Option<String>) -> Result<Option<String>, AppError> {
    let Some(password) = password else {
        return Ok(None);
    };
    if password.chars().count() < LEAST_PASSWORD {
        return Err(UserRefusal::ShortPassword.into());
    }
    let hash = tokio::task::spawn_blocking(move || hash_password(&password)).await;
    match hash {
        Ok(Ok(hash)) => Ok(Some(hash)),
        _ => Err(AppError::Internal),
    }
}

fn apply(
    record: &mut Record,
    request: &UserRequest,
    hash: Option<String>,
    provider: ProviderChange,
) -> Result<(), LimitError> {
    match provider {
        ProviderChange::None => {}
        ProviderChange::Remove => record.provider = None,
        ProviderChange::Set(user) => {
            record.provider = Some(user);
            record.password_hash = None;
        }
    }
    record.admin = request.admin.unwrap_or(record.admin);
    record.disabled = request.disabled.unwrap_or(record.disabled);
    if hash.is_some() {
        record.password_hash = hash;
    }
    if let Some(groups) = &request.groups {
        record.groups.clone_from(groups);
        record.groups.sort_unstable();
        record.groups.dedup();
    }
    if let Some(system_user) = &request.system_user {
        record.system_user = Some(system_user.clone()).filter(|name| !name.is_empty());
    }
    set_limits(&mut record.limits, &request.limits)
}

fn set_limits(limits: &mut Limits, changes: &BTreeMap<String, String>) -> Result<(), LimitError> {
    changes
        .iter()
        .try_for_each(|(name, value)| limits.set(name, value))
}

fn limit_map(limits: &Limits) -> BTreeMap<String, String> {
    let rows = limits.rows().into_iter();
    rows.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn user_view(account: &Account, record: Option<&Record>) -> UserView {
    UserView {
        name: account.name.to_string(),
        id: account.id,
        admin: account.scopes.contains(paddlecloud_core::access::Scope::Admin),
        service: account.service,
        disabled: account.disabled,
        configured: account.origin == Origin::Configuration,
        groups: account.groups.clone(),
        system_user: record
            .and_then(|record| record.system_user.clone())
            .or_else(|| Some(account.run_as.as_ref()?.uid.to_string())),
        oidc_issuer: account.provider.as_ref().map(|user| user.issuer.clone()),
        oidc_subject: account.provider.as_ref().map(|user| user.subject.clone()),
        limits: record.map(|record| limit_map(&record.limits)).unwrap_or_default(),
        effective: limit_map(&account.limits),
        killed_jobs: None,
        running_jobs: None,
    }
}

/// A caller for work on behalf of this user.
pub(super) fn as_user(user: &UserName) -> Caller {
    Caller {
        user: user.clone(),
        scopes: paddlecloud_core::access::Scopes::user(),
    }
}

/// Parses a user name. Text that is not a valid name means that the user does not exist.
pub(super) fn user_name(text: &str) -> Result<UserName, AppError> {
    text.parse().map_err(|_| AppError::NoSuch {
        what: What::User,
        name: text.to_owned(),
    })
}

fn no_user(name: &UserName) -> AppError {
    AccountError::NotFound(name.clone()).into()
}
