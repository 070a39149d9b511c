//! Secrets of users: sealed before they reach the database, opened only for the workers of their owner.
//!
//! The key is read from a file, a variable or a command; it is neither in the database nor in a backup. Several keys may be
//! given, one per line: the first one seals, and all of them open.

mod registry;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use paddlecloud_core::job::Job;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::{
    ImageAccess, PrepareError, RegistryLogin, SecretEnv, SecretSource, StoreError,
};
use paddlecloud_pfs::durable;
use paddlecloud_store::{AuditEntry, SecretRow, Store};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::json;

use crate::key_source::KeySource;
use registry::usual_host;
pub use registry::{image_host, is_registry};

/// What a secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// An environment variable of workers.
    Secret,
    /// The credentials of an image registry.
    Registry,
    /// The refresh token of the account's latest login with the provider.
    RefreshToken,
}

impl SecretKind {
    fn as_str(self) -> &'static str {
        match self {
            SecretKind::Secret => "secret",
            SecretKind::Registry => "registry",
            SecretKind::RefreshToken => "refresh-token",
        }
    }
}

/// Why a secret cannot be stored or opened. Never contains the secret's value.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error("the key of the secrets cannot be read from {place}: {problem}")]
    Key { place: String, problem: String },
    #[error("the secret `{0}` was sealed with a key that the server does not have")]
    Sealed(String),
    #[error("secrets cannot be stored now")]
    Store(#[from] StoreError),
}

/// The secrets of all users.
#[derive(Clone)]
pub struct Secrets(Arc<Inner>);

struct Inner {
    store: Store,
    source: KeySource,
    /// The first key seals; all of them open.
    keys: RwLock<Vec<Key>>,
    /// Held while a secret is sealed and stored, so that nothing is sealed with a key that is being replaced.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Key {
    id: String,
    key: LessSafeKey,
}

impl Secrets {
    /// Reads the keys. If the source is the server's own file, creates the file first.
    pub fn open(store: Store, source: KeySource) -> Result<Secrets, SecretsError> {
        let keys = read_keys(&source)?;
        Ok(Secrets(Arc::new(Inner {
            store,
            source,
            keys: RwLock::new(keys),
            changing: tokio::sync::Mutex::default(),
        })))
    }

    /// Stores a user's secret and overwrites one of the same name.
    pub async fn set(
        &self,
        owner: &UserName,
        kind: SecretKind,
        name: &str,
        value: &str,
        entry: AuditEntry,
    ) -> Result<(), SecretsError> {
        let _changing = self.0.changing.lock().await;
        let row = SecretRow {
            sealed: seal(&self.keys()[0], owner.as_str(), kind.as_str(), name, value),
            owner: owner.to_string(),
            kind: kind.as_str().to_owned(),
            name: name.to_owned(),
            created: Timestamp::now().as_second(),
        };
        Ok(self.0.store.secret_save(vec![row], entry).await?)
    }

    /// A user's secrets of one kind, still sealed.
    pub async fn list(&self, owner: &UserName, kind: SecretKind) -> Result<Vec<SecretRow>, SecretsError> {
        Ok(self.0.store.secrets_of(owner, kind.as_str()).await?)
    }

    /// Removes a secret. Returns `false` if it does not exist.
    pub async fn remove(
        &self,
        owner: &UserName,
        kind: SecretKind,
        name: &str,
        entry: AuditEntry,
    ) -> Result<bool, SecretsError> {
        match self.0.store.secret_find(owner, kind.as_str(), name).await? {
            Some(row) => Ok(self.0.store.secret_remove(row, entry).await.map(|()| true)?),
            None => Ok(false),
        }
    }

    /// Opens a secret. Returns `None` if it does not exist.
    pub async fn reveal(
        &self,
        owner: &UserName,
        kind: SecretKind,
        name: &str,
    ) -> Result<Option<String>, SecretsError> {
        let find = || self.0.store.secret_find(owner, kind.as_str(), name);
        let Some(row) = find().await? else {
            return Ok(None);
        };
        match self.unseal(&row) {
            // A concurrent rotation may have resealed it after it was read.
            Err(_) => Ok(find().await?.map(|row| self.unseal(&row)).transpose()?),
            opened => opened.map(Some),
        }
    }

    pub async fn has(&self, owner: &UserName, kind: SecretKind, name: &str) -> Result<bool, SecretsError> {
        Ok(self
            .0
            .store
            .secret_find(owner, kind.as_str(), name)
            .await?
            .is_some())
    }

    /// Stores the credentials of a registry and overwrites those of the same name.
    pub async fn set_login(
        &self,
        owner: &UserName,
        name: &str,
        login: &RegistryLogin,
        entry: AuditEntry,
    ) -> Result<(), SecretsError> {
        let RegistryLogin {
            server,
            username,
            password,
        } = login;
        let text = json!({"server": server, "username": username, "password": password}).to_string();
        self.set(owner, SecretKind::Registry, name, &text, entry).await
    }

    /// Opens the credentials of a listed row.
    pub fn open_login(&self, row: &SecretRow) -> Result<RegistryLogin, SecretsError> {
        let lost = || SecretsError::Sealed(row.name.clone());
        let value: serde_json::Value = serde_json::from_str(&self.unseal(row)?).map_err(|_| lost())?;
        let field = |name: &str| value[name].as_str().map(str::to_owned).ok_or_else(lost);
        Ok(RegistryLogin {
            server: field("server")?,
            username: field("username")?,
            password: field("password")?,
        })
    }

    /// How a job's image is pulled. Once a user stores credentials for a registry, its images count as private: a node that has
    /// cached one must ask the registry before another user gets it.
    async fn image_access(&self, job: &Job) -> Result<ImageAccess, SecretsError> {
        let Some(image) = &job.spec.image else {
            return Ok(ImageAccess::default());
        };
        let mut access = ImageAccess::default();
        for row in self.0.store.registries_all().await? {
            let is_named = row.owner == job.user.as_str() && job.spec.registry.as_ref() == Some(&row.name);
            // Credentials that cannot be opened grant nothing.
            let Ok(login) = self.open_login(&row) else {
                continue;
            };
            access.is_private |= registry_host(&login.server) == image_host(image);
            if is_named {
                access.login = Some(login);
            }
        }
        Ok(access)
    }

    /// Reads the keys again and reseals every secret with the first one. Returns the number of secrets. If one cannot be opened,
    /// nothing changes.
    pub async fn rotate(&self, entry: AuditEntry) -> Result<usize, SecretsError> {
        // In its own task, so that a cancelled request cannot stop it between the database and the keys in memory.
        let secrets = self.clone();
        let rotated = tokio::spawn(async move { secrets.reseal_all(entry).await });
        rotated.await.map_err(|panic| StoreError::Write(panic.into()))?
    }

    async fn reseal_all(&self, entry: AuditEntry) -> Result<usize, SecretsError> {
        let _changing = self.0.changing.lock().await;
        let source = self.0.source.clone();
        let read = tokio::task::spawn_blocking(move || read_keys(&source)).await;
        let keys = read.map_err(|panic| StoreError::Read(panic.into()))??;
        let mut rows = self.0.store.secrets_all().await?;
        for row in &mut rows {
            let value = unseal(&keys, row)?;
            row.sealed = seal(&keys[0], &row.owner, &row.kind, &row.name, &value);
        }
        let count = rows.len();
        // Readers may see rows sealed with old or new keys until everything is stored, or after a write with an unknown result.
        let old = self.keys();
        self.set_keys(old.iter().chain(&keys).cloned().collect());
        self.0.store.secret_save(rows, entry).await?;
        self.set_keys(keys);
        Ok(count)
    }

    fn keys(&self) -> Vec<Key> {
        let keys = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.clone()
    }

    fn set_keys(&self, keys: Vec<Key>) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn unseal(&self, row: &SecretRow) -> Result<String, SecretsError> {
        unseal(&self.keys(), row)
    }
}

/// Seals a value. Owner, kind and name are authenticated too, so a row that was moved cannot be opened.
fn seal(key: &Key, owner: &str, kind: &str, name: &str, value: &str) -> String {
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&crate::auth::random_bytes()[..NONCE_LEN]);
    let mut bytes = value.as_bytes().to_vec();
    let aad = Aad::from(place(owner, kind, name));
    key.key
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
        .expect("a secret is far smaller than what a key can seal");
    let sealed = [nonce.as_slice(), &bytes].concat();
    format!("{}:{}", key.id, STANDARD.encode(sealed))
}

fn unseal(keys: &[Key], row: &SecretRow) -> Result<String, SecretsError> {
    let lost = || SecretsError::Sealed(row.name.clone());
    let (id, text) = row.sealed.split_once(':').ok_or_else(lost)?;
    let mut bytes = STANDARD.decode(text).map_err(|_| lost())?;
    let key = keys.iter().find(|key| key.id == id).ok_or_else(lost)?;
    let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(lost)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| lost())?;
    let aad = Aad::from(place(&row.owner, &row.kind, &row.name));
    let value = key.key.open_in_place(nonce, aad, sealed).map_err(|_| lost())?;
    String::from_utf8(value.to_vec()).map_err(|_| lost())
}

/// A job waits for a database that does not answer, and fails if a secret cannot be opened.
fn not_opened(error: SecretsError) -> PrepareError {
    match error {
        SecretsError::Store(_) => PrepareError::Shortage("its secrets cannot be read now".to_owned()),
        lost => PrepareError::Failed(lost.to_string()),
    }
}

impl SecretSource for Secrets {
    fn secrets<'a>(
        &'a self,
        job: &'a Job,
    ) -> Pin<Box<dyn Future<Output = Result<SecretEnv, PrepareError>> + Send + 'a>> {
        Box::pin(async move {
            let mut found = BTreeMap::new();
            for requested in &job.spec.secrets {
                let value = self.reveal(&job.user, SecretKind::Secret, &requested.name).await;
                let value = value.map_err(not_opened)?;
                let gone =
                    || PrepareError::Failed(format!("the secret `{}` has been deleted", requested.name));
                let value = value.ok_or_else(gone)?;
                found.insert(requested.env.clone(), value);
            }
            let image = self.image_access(job).await.map_err(not_opened)?;
            Ok(SecretEnv::new(found, image))
        })
    }
}

/// The host of a registry as users write it: with or without a scheme and a path.
fn registry_host(server: &str) -> &str {
    let (_, rest) = server.split_once("://").unwrap_or(("", server));
    usual_host(rest.split('/').next().unwrap_or(rest))
}

fn place(owner: &str, kind: &str, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [owner, kind, name] {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

fn read_keys(source: &KeySource) -> Result<Vec<Key>, SecretsError> {
    let failed = |problem: String| SecretsError::Key {
        place: source.to_string(),
        problem,
    };
    if let KeySource::Own(path) = source {
        own_key(path).map_err(|error| failed(error.to_string()))?;
    }
    let lines = source.lines().map_err(failed)?;
    Ok(lines.iter().map(|line| key_of(line)).collect())
}

fn key_of(text: &str) -> Key {
    let bytes = blake3::derive_key("paddlecloud secrets", text.as_bytes());
    let id = blake3::derive_key("paddlecloud name of a key", text.as_bytes());
    let id = id[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has 32 bytes");
    Key {
        id,
        key: LessSafeKey::new(key),
    }
}

/// Creates the server's own key unless it exists.
fn own_key(path: &PathBuf) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    if path.try_exists()? {
        return Ok(());
    }
    let bytes = crate::auth::random_bytes();
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let fresh = path.with_extension("key.new");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    durable::sync_entry(path)
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::spec::SecretRef;
    use paddlecloud_core::testing::samples;
    use paddlecloud_store::DatabaseUrl;

    use super::*;

    async fn secrets(folder: &std::path::Path, key: &str) -> Secrets {
        let path = folder.join("key");
        std::fs::write(&path, key).unwrap();
        let store = Store::open(&DatabaseUrl::sqlite_file(&folder.join("a.db"))).await;
        Secrets::open(store.unwrap(), KeySource::File(path)).unwrap()
    }

    #[tokio::test]
    async fn a_secret_is_sealed_to_its_owner_and_survives_a_new_key() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = secrets(folder.path(), "first").await;
        let (ann, bob): (UserName, UserName) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let set = secrets.set(&ann, SecretKind::Secret, "api", "canary", AuditEntry::default());
        set.await.unwrap();
        let reveal = async |user: &UserName| secrets.reveal(user, SecretKind::Secret, "api").await.unwrap();
        assert_eq!(reveal(&ann).await.as_deref(), Some("canary"));
        assert_eq!(reveal(&bob).await, None);
        let row = secrets.list(&ann, SecretKind::Secret).await.unwrap().remove(0);
        assert!(!row.sealed.contains("canary"));
        let moved = SecretRow {
            owner: "bob".into(),
            ..row.clone()
        };
        assert!(secrets.unseal(&moved).is_err(), "a moved row stays closed");
        std::fs::write(folder.path().join("key"), "second\nfirst\n").unwrap();
        assert_eq!(secrets.rotate(AuditEntry::default()).await.unwrap(), 1);
        std::fs::write(folder.path().join("key"), "second\n").unwrap();
        secrets.rotate(AuditEntry::default()).await.unwrap();
        assert_eq!(reveal(&ann).await.as_deref(), Some("canary"));
        assert!(secrets.unseal(&row).is_err(), "the old key is gone");
        assert!(
            secrets
                .remove(&ann, SecretKind::Secret, "api", AuditEntry::default())
                .await
                .unwrap()
        );
        assert!(
            !secrets
                .remove(&ann, SecretKind::Secret, "api", AuditEntry::default())
                .await
                .unwrap()
        );
    }

    #[tokio::test]
    async fn a_key_that_does_not_open_everything_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = secrets(folder.path(), "first").await;
        let ann: UserName = "ann".parse().unwrap();
        let set = async |name: &str| {
            let set = secrets.set(&ann, SecretKind::Secret, name, "canary", AuditEntry::default());
            set.await.unwrap();
        };
        set("old").await;
        std::fs::write(folder.path().join("key"), "second\n").unwrap();
        let refused = secrets.rotate(AuditEntry::default()).await.unwrap_err();
        assert!(matches!(refused, SecretsError::Sealed(name) if name == "old"));
        set("new").await;
        for name in ["old", "new"] {
            let found = secrets.reveal(&ann, SecretKind::Secret, name).await.unwrap();
            assert_eq!(found.as_deref(), Some("canary"), "{name}");
        }
    }

    #[tokio::test]
    async fn secrets_that_are_stored_during_a_rotation_can_be_opened_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = secrets(folder.path(), "first").await;
        let ann: UserName = "ann".parse().unwrap();
        std::fs::write(folder.path().join("key"), "second\nfirst\n").unwrap();
        let set = async |number: u32| {
            let name = format!("s{number}");
            let set = secrets.set(&ann, SecretKind::Secret, &name, "canary", AuditEntry::default());
            set.await.unwrap();
        };
        let sets = futures_util::future::join_all((0..50).map(set));
        let (_, rotated) = tokio::join!(sets, secrets.rotate(AuditEntry::default()));
        rotated.unwrap();
        std::fs::write(folder.path().join("key"), "second\n").unwrap();
        secrets.rotate(AuditEntry::default()).await.unwrap();
        assert_eq!(secrets.list(&ann, SecretKind::Secret).await.unwrap().len(), 50);
    }

    #[tokio::test]
    async fn a_database_that_does_not_answer_is_a_reason_to_wait() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = secrets(folder.path(), "first").await;
        let mut spec = samples::spec("a", 0, 1);
        spec.secrets = vec![SecretRef::parse("api").unwrap()];
        let job = samples::pending(1, spec);
        let failed = SecretSource::secrets(&secrets, &job).await.unwrap_err();
        assert!(
            matches!(failed, PrepareError::Failed(_)),
            "a secret that is gone stays gone"
        );
        secrets.0.store.close().await;
        let failed = SecretSource::secrets(&secrets, &job).await.unwrap_err();
        assert!(matches!(failed, PrepareError::Shortage(_)), "{failed}");
    }

    #[test]
    fn the_registry_of_an_image_is_found_however_it_is_written() {
        for (image, server) in [
            ("python:3.12", "https://index.docker.io/v1/"),
            ("paddle/cloud", "docker.io"),
            ("registry.example.org/a/b:1", "registry.example.org"),
            ("10.250.0.1:5000/a", "http://10.250.0.1:5000"),
            ("localhost/a", "localhost/"),
        ] {
            assert_eq!(image_host(image), registry_host(server), "{image} {server}");
        }
        assert_ne!(
            image_host("registry.example.org/a"),
            registry_host("registry.example.org:5000")
        );
    }

    #[test]
    fn the_servers_own_key_is_made_once_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.key");
        own_key(&path).unwrap();
        let first = std::fs::read(&path).unwrap();
        own_key(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
