//! `paddlecloud-server init`: creates the first administrator before the server's first start.

use paddlecloud_accounts::auth::{Authenticator, Secret, SecretError, hash_password, random_password};
use paddlecloud_accounts::authority::{Authority, AuthorityError};
use paddlecloud_accounts::users::{SystemUserMap, SystemUsers};
use paddlecloud_accounts::{AccountError, Accounts};
use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::UserName;
use paddlecloud_store::{AuditEntry, OpenError, Record, Store};

use crate::config::Config;
use crate::data_folder::{DataFolder, TakeError, jobs_below};

/// What `init` created.
pub struct Initialized {
    pub admin: UserName,
    /// A generated password, to be shown once.
    pub password: Option<String>,
    /// The fingerprint of the server's own certificate authority.
    pub fingerprint: String,
}

/// Why `init` failed.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error(transparent)]
    Data(#[from] TakeError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("there is an administrator already: `{0}`")]
    Done(UserName),
    #[error("the password cannot be hashed")]
    Hash,
    #[error("a password has at least 8 characters")]
    Short,
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
}

impl InitError {
    /// How to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            InitError::Data(TakeError::Locked { .. }) => {
                Some("the server runs: add accounts with `paddlectl admin user add`".to_owned())
            }
            InitError::Done(_) => Some("add others with `paddlectl admin user add NAME --admin`".to_owned()),
            InitError::Store(error) => error.hint(),
            InitError::Secret(error) => error.hint(),
            _ => None,
        }
    }
}

/// Creates the administrator, with a generated password if none is given.
pub fn init(config: &Config, admin: UserName, password: Option<String>) -> Result<Initialized, InitError> {
    if password
        .as_ref()
        .is_some_and(|password| password.chars().count() < 8)
    {
        return Err(InitError::Short);
    }
    let made_up = password.is_none().then(random_password);
    let password = password.or_else(|| made_up.clone()).unwrap_or_default();
    let hash = hash_password(&password).map_err(|_| InitError::Hash)?;
    let runtime = crate::start::runtime().map_err(InitError::Threads)?;
    let data = DataFolder::take(&config.data)?;
    let fingerprint = Authority::open(&config.data).and_then(|authority| authority.fingerprint())?;
    let done = runtime.block_on(add(config, admin, hash));
    data.release();
    Ok(Initialized {
        admin: done?,
        password: made_up,
        fingerprint,
    })
}

async fn add(config: &Config, admin: UserName, hash: String) -> Result<UserName, InitError> {
    let store = Store::open_knowing(&config.database, jobs_below(&config.data)).await?;
    let secret = Secret::open(&config.data)?;
    store.set_audit_key(Authenticator::audit_key(&secret));
    let added = first_administrator(config, &store, admin, hash).await;
    store.close().await;
    added
}

async fn first_administrator(
    config: &Config,
    store: &Store,
    admin: UserName,
    hash: String,
) -> Result<UserName, InitError> {
    let (named, map) = (SystemUsers::default(), SystemUserMap::none());
    let accounts = Accounts::open(store.clone(), config.account_settings(), &named, map)
        .await
        .map_err(AccountError::Store)?;
    let all = accounts.users().all();
    if let Some(first) = all.iter().find(|account| account.scopes == Scopes::all()) {
        return Err(InitError::Done(first.name.clone()));
    }
    let entry = AuditEntry {
        actor: String::new(),
        action: "user.add".to_owned(),
        subject: admin.to_string(),
        detail: "the first administrator, by `paddlecloud-server init`".to_owned(),
        request: String::new(),
    };
    let fill = |record: &mut Record| {
        record.admin = true;
        record.password_hash = Some(hash);
        Ok(())
    };
    Ok(accounts.add(admin, fill, entry).await?.name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_first_administrator_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let text = "data: data\ndatacenter: dc1\n";
        let config = Config::parse(text, &folder.path().join("server.yaml")).unwrap();
        let admin = || "root@example.com".parse().unwrap();
        let short = init(&config, admin(), Some("short".into())).err().unwrap();
        assert!(matches!(short, InitError::Short));
        let made = init(&config, admin(), None).unwrap();
        assert_eq!(made.admin.as_str(), "root@example.com");
        assert_eq!(made.password.unwrap().len(), 20);
        assert!(made.fingerprint.starts_with("SHA256:"), "{}", made.fingerprint);
        let again = init(&config, "second".parse().unwrap(), None).err().unwrap();
        assert_eq!(
            again.to_string(),
            "there is an administrator already: `root@example.com`"
        );
        assert!(Path::new(&config.data).join("server.db").exists());
    }
}
