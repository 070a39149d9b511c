//! The configuration file as written, and its conversion to a [`Config`].
//!
//! Every key is listed here or in `backend`, `kubernetes` and `oidc`; an unknown one is an error.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use paddlecloud_accounts::auth::TokenLimits;
use paddlecloud_accounts::key_source::KeySource;
use paddlecloud_accounts::rates::RateLimits;
use paddlecloud_accounts::tls::TlsFiles;
use paddlecloud_accounts::users::User;
use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::Policy;
use paddlecloud_files::Backend;
use paddlecloud_k8s::settings::GpuTypeSettings;
use paddlecloud_store::{DatabaseUrl, Limits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::backend::StorageEntry;
use super::gpu_types::check_gpu_types;
use super::kubernetes::KubernetesEntry;
use super::machine::{GpuLabels, InventoryEntry};
use super::oidc::OidcEntry;
use super::users::{check_system_users, check_users, parse_hash, read_password};
use super::values::{Address, LogSize, Reclaim, Span, SystemUids, parsed, parsed_option};
use super::workers_python::check_python;
use super::{AllowedImages, Config, ConfigError, EngineKind, Listen, LogConfig, ProxyHeader, TrustedProxies};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    listen: OneOrMany,
    tls: Option<TlsEntry>,
    #[serde(default)]
    plain_http: bool,
    #[serde(default)]
    trusted_proxies: Vec<String>,
    #[serde(default)]
    proxy_header: ProxyHeader,
    data: PathBuf,
    storage: Option<StorageEntry>,
    #[serde(deserialize_with = "parsed")]
    datacenter: DatacenterName,
    #[serde(default, deserialize_with = "parsed_option")]
    database: Option<Address>,
    users: Option<Vec<UserEntry>>,
    users_file: Option<PathBuf>,
    #[serde(default)]
    default_quota: QuotaEntry,
    #[serde(default, deserialize_with = "parsed_option")]
    reclaim: Option<Reclaim>,
    #[serde(default)]
    secrets: SecretsEntry,
    #[serde(default)]
    tokens: TokensEntry,
    #[serde(default)]
    limits: LimitsEntry,
    oidc: Option<OidcEntry>,
    #[serde(default, deserialize_with = "parsed_option")]
    system_uids: Option<SystemUids>,
    #[serde(default)]
    inventory: InventoryEntry,
    #[serde(default)]
    gpu_types: BTreeMap<GpuType, GpuTypeSettings>,
    default_image: Option<String>,
    allowed_images: Option<AllowedImages>,
    #[serde(default)]
    metrics_login: bool,
    python: Option<PathBuf>,
    #[serde(default)]
    logs: LogsEntry,
    #[serde(default)]
    engine: EngineEntry,
    kubernetes: Option<KubernetesEntry>,
}

/// `listen: 127.0.0.1:8080`, or a list of addresses.
#[derive(Debug, Default)]
struct OneOrMany(Vec<Listen>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsEntry {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Instead of files: the server's own authority issues a certificate for these names.
    #[serde(default)]
    names: Vec<String>,
    client_ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    #[serde(deserialize_with = "parsed")]
    name: UserName,
    password_hash: Option<String>,
    password_file: Option<PathBuf>,
    #[serde(default)]
    admin: bool,
    #[serde(default)]
    quota: QuotaEntry,
    system_user: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QuotaEntry {
    #[serde(deserialize_with = "parsed_option")]
    cpu: Option<Cpu>,
    #[serde(deserialize_with = "parsed_option")]
    memory: Option<Bytes>,
    gpu: Option<u32>,
    parallelism: Option<u32>,
    running_jobs: Option<u32>,
    queued_jobs: Option<u32>,
    #[serde(deserialize_with = "parsed_option")]
    storage: Option<Bytes>,
    files: Option<u64>,
    priority: Option<i32>,
    weight: Option<u32>,
    #[serde(deserialize_with = "parsed_option")]
    guaranteed_cpu: Option<Cpu>,
    #[serde(deserialize_with = "parsed_option")]
    guaranteed_memory: Option<Bytes>,
    guaranteed_gpu: Option<u32>,
}

impl QuotaEntry {
    fn limits(self) -> Limits {
        Limits {
            cpu: self.cpu,
            memory: self.memory,
            gpu: self.gpu,
            parallelism: self.parallelism,
            running_jobs: self.running_jobs,
            queued_jobs: self.queued_jobs,
            storage: self.storage,
            files: self.files,
            priority: self.priority,
            weight: self.weight.filter(|weight| *weight > 0),
            guaranteed_cpu: self.guaranteed_cpu,
            guaranteed_memory: self.guaranteed_memory,
            guaranteed_gpu: self.guaranteed_gpu,
        }
    }
}

/// The source of the secrets' key; at most one key may be set.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SecretsEntry {
    key_file: Option<PathBuf>,
    key_env: Option<String>,
    key_command: Option<String>,
}

impl SecretsEntry {
    fn check(self, data: &Path, path: &Path) -> Result<KeySource, ConfigError> {
        let base = path.parent().unwrap_or(Path::new("."));
        match (self.key_file, self.key_env, self.key_command) {
            (None, None, None) => Ok(KeySource::Own(data.join("secrets.key"))),
            (Some(file), None, None) => Ok(KeySource::File(base.join(file))),
            (None, Some(name), None) => Ok(KeySource::Variable(name)),
            (None, None, Some(command)) => Ok(KeySource::Command(command)),
            _ => Err(ConfigError::in_file(
                path,
                "`secrets`: `key_file`, `key_env` and `key_command` are mutually exclusive",
            )),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TokensEntry {
    #[serde(deserialize_with = "parsed_option")]
    lifetime: Option<Span>,
    #[serde(deserialize_with = "parsed_option")]
    max_age: Option<Span>,
    per_user: Option<NonZero<usize>>,
}

impl TokensEntry {
    fn check(self) -> TokenLimits {
        let default = TokenLimits::default();
        let max_age = self.max_age.map_or(default.max_age, |span| span.0);
        let lifetime = self.lifetime.map_or(default.lifetime, |span| span.0);
        TokenLimits {
            lifetime: lifetime.min(max_age),
            max_age,
            per_user: self.per_user.map_or(default.per_user, NonZero::get),
        }
    }
}

/// Requests per second; 0: no limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsEntry {
    requests_per_user: Option<u32>,
    requests_before_login: Option<u32>,
}

impl LimitsEntry {
    fn check(self) -> RateLimits {
        let default = RateLimits::default();
        let chosen = |own: Option<u32>, default| own.map_or(default, |rate| (rate > 0).then_some(rate));
        RateLimits {
            per_user: chosen(self.requests_per_user, default.per_user),
            before_login: chosen(self.requests_before_login, default.before_login),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogsEntry {
    #[serde(deserialize_with = "parsed_option")]
    segment: Option<LogSize>,
    #[serde(deserialize_with = "parsed_option")]
    keep: Option<LogSize>,
    copy: Option<bool>,
}

/// Lower bound: smaller files would consist of overhead.
const LEAST_SEGMENT: Bytes = Bytes::new(4 << 10);

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EngineEntry {
    #[default]
    Local,
    Kubernetes,
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Shape {
            One(String),
            Many(Vec<String>),
        }
        let words = match Shape::deserialize(deserializer)? {
            Shape::One(word) => vec![word],
            Shape::Many(words) => words,
        };
        let listen: Result<Vec<Listen>, _> = words.iter().map(|word| word.parse()).collect();
        listen.map(OneOrMany).map_err(D::Error::custom)
    }
}

impl File {
    pub(super) fn parse(text: &str, path: &Path) -> Result<File, ConfigError> {
        if text.trim().is_empty() {
            let empty = ConfigError::in_file(path, "the file is empty");
            return Err(empty.with_hint("it needs at least `data: <folder>` and `datacenter: <name>`"));
        }
        serde_saphyr::from_str(text).map_err(|error| ConfigError::yaml(path, &error))
    }

    pub(super) fn check(self, path: &Path) -> Result<Config, ConfigError> {
        let base = path.parent().unwrap_or(Path::new("."));
        let data = base.join(self.data);
        let listen = if self.listen.0.is_empty() {
            vec![Listen::default()]
        } else {
            self.listen.0
        };
        let tls = self.tls.map(|tls| tls.check(&data, path)).transpose()?;
        let (tls, names) = tls.map_or((None, Vec::new()), |(tls, names)| (Some(tls), names));
        let trusted_proxies = TrustedProxies::parse(&self.trusted_proxies, self.proxy_header)
            .map_err(|problem| ConfigError::in_file(path, problem))?;
        let (backend, storage) = StorageEntry::check(self.storage, &data, path)?;
        let default_database = || DatabaseUrl::sqlite_file(&data.join("server.db"));
        let database = self
            .database
            .map_or_else(default_database, |address| address.0.below(base));
        let users = check_entries(self.users, self.users_file, base, path)?;
        let on_one_machine = matches!(self.engine, EngineEntry::Local);
        let types: GpuLabels = check_gpu_types(&self.gpu_types, on_one_machine, path)?;
        let inventory = self.inventory.check(&types, path)?;
        let mut engine = check_engine(self.engine, self.kubernetes, &users, &backend, path)?;
        if let EngineKind::Kubernetes(cluster) = &mut engine {
            cluster.define_gpu_types(self.gpu_types, path)?;
        }
        Ok(Config {
            listen,
            tls,
            tls_names: names,
            plain_http: self.plain_http,
            trusted_proxies,
            backend,
            storage,
            datacenter: self.datacenter,
            database,
            users,
            default_limits: self.default_quota.limits(),
            tokens: self.tokens.check(),
            rates: self.limits.check(),
            oidc: self.oidc.map(|entry| entry.check(path)).transpose()?,
            secrets_key: self.secrets.check(&data, path)?,
            system_uids: self.system_uids.map(|uids| uids.0),
            socket_user: None,
            inventory,
            policy: Policy {
                oversubscribe_alone: false,
                fair_share: true,
                reclaim: self.reclaim.and_then(|reclaim| reclaim.0),
                recovery: engine.recovery_limit(),
            },
            default_image: self.default_image,
            allowed_images: check_images(self.allowed_images, &engine, path)?,
            metrics_login: self.metrics_login,
            python: check_python(self.python, &engine, base, path)?,
            logs: self.logs.check(path)?,
            engine,
            embedded: false,
            program: None,
            data,
        })
    }
}

/// The users of the configuration, from whichever of its two places has them.
fn check_entries(
    entries: Option<Vec<UserEntry>>,
    file: Option<PathBuf>,
    base: &Path,
    path: &Path,
) -> Result<Vec<User>, ConfigError> {
    let entries = match (entries, file) {
        (Some(_), Some(_)) => {
            let both = ConfigError::in_file(path, "`users` and `users_file` cannot be combined");
            return Err(both.with_hint("remove one of them"));
        }
        (Some(entries), None) => entries,
        (None, Some(file)) => read_users_file(&base.join(file))?,
        (None, None) => Vec::new(),
    };
    let users = entries.into_iter().map(|entry| entry.check(path));
    let users = users.collect::<Result<Vec<_>, _>>()?;
    check_users(&users, path)?;
    Ok(users)
}

/// The engine, if the users and the storage suit it.
fn check_engine(
    engine: EngineEntry,
    kubernetes: Option<KubernetesEntry>,
    users: &[User],
    backend: &Backend,
    path: &Path,
) -> Result<EngineKind, ConfigError> {
    match (engine, kubernetes) {
        (EngineEntry::Local, None) => {
            check_system_users(users, path)?;
            Ok(EngineKind::Local)
        }
        (EngineEntry::Local, Some(_)) => {
            let unused = ConfigError::in_file(path, "`kubernetes` is set, but the engine is `local`");
            Err(unused.with_hint("add `engine: kubernetes`"))
        }
        (EngineEntry::Kubernetes, None) => {
            let missing = ConfigError::in_file(path, "`engine: kubernetes` needs the section `kubernetes`");
            Err(missing.with_hint("it needs at least `link`, `launcher_image` and `volume`"))
        }
        (EngineEntry::Kubernetes, Some(entry)) => {
            check_suits_pods(users, backend, path)?;
            Ok(EngineKind::Kubernetes(Box::new(entry.check(users, path)?)))
        }
    }
}

/// Refuses a list of images where jobs run in none.
fn check_images(
    allowed: Option<AllowedImages>,
    engine: &EngineKind,
    path: &Path,
) -> Result<Option<AllowedImages>, ConfigError> {
    match allowed {
        Some(_) if engine.uses_own_machine() => {
            let problem = "`allowed_images` has no effect: workers run the programs of this machine";
            Err(ConfigError::in_file(path, problem).with_hint("remove it, or set `engine: kubernetes`"))
        }
        allowed => Ok(allowed),
    }
}

/// Refuses settings that work on one machine but not with pods.
fn check_suits_pods(users: &[User], backend: &Backend, path: &Path) -> Result<(), ConfigError> {
    if backend.is_remote() {
        let problem = format!("pods need a file system that they can mount, and {backend} is not one");
        return Err(
            ConfigError::in_file(path, problem).with_hint("set `storage` to a folder that pods mount too")
        );
    }
    match users.iter().find(|user| user.system_user.is_some()) {
        Some(user) => {
            let problem = format!("user `{}`: `system_user` has no meaning on Kubernetes", user.name);
            Err(ConfigError::in_file(path, problem)
                .with_hint("leave it out: pods run as the server's own user and see their user's home only"))
        }
        None => Ok(()),
    }
}

fn read_users_file(path: &Path) -> Result<Vec<UserEntry>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
    serde_saphyr::from_str(&text).map_err(|error| ConfigError::yaml(path, &error))
}

impl TlsEntry {
    /// The files, and the names for which the server issues them.
    fn check(self, data: &Path, path: &Path) -> Result<(TlsFiles, Vec<String>), ConfigError> {
        let base = path.parent().unwrap_or(Path::new("."));
        let (cert, key) = match (self.cert, self.key, self.names.is_empty()) {
            (Some(cert), Some(key), true) => (base.join(cert), base.join(key)),
            (None, None, false) => (data.join("tls.crt"), data.join("tls.key")),
            _ => {
                let problem = "`tls` needs `cert` and `key`, or `names` of the server";
                return Err(ConfigError::in_file(path, problem));
            }
        };
        let client_ca = self.client_ca.map(|file| base.join(file));
        Ok((TlsFiles { cert, key, client_ca }, self.names))
    }
}

impl UserEntry {
    fn check(self, path: &Path) -> Result<User, ConfigError> {
        let base = path.parent().unwrap_or(Path::new("."));
        let credential = match (self.password_hash, self.password_file) {
            (Some(_), Some(_)) => {
                let problem = format!(
                    "user `{}` has both `password_hash` and `password_file`",
                    self.name
                );
                return Err(ConfigError::in_file(path, problem));
            }
            (Some(hash), None) => Some(parse_hash(&hash).map_err(|problem| {
                ConfigError::in_file(path, format!("user `{}`: {problem}", self.name))
                    .with_hint("make one with `paddlecloud-server hash-password`")
            })?),
            (None, Some(file)) => Some(read_password(&base.join(file))?),
            (None, None) => None,
        };
        Ok(User {
            name: self.name,
            credential,
            admin: self.admin,
            limits: self.quota.limits(),
            system_user: self.system_user,
        })
    }
}

impl LogsEntry {
    fn check(self, path: &Path) -> Result<LogConfig, ConfigError> {
        let default = LogConfig::default();
        let keep = self.keep.map_or(default.keep, |size| size.0);
        let segment = self.segment.map_or(default.segment.min(keep), |size| size.0);
        if segment < LEAST_SEGMENT {
            let name = if keep < LEAST_SEGMENT { "keep" } else { "segment" };
            let problem = format!("`logs.{name}` ({segment}) is too small: the minimum is {LEAST_SEGMENT}");
            return Err(ConfigError::in_file(path, problem));
        }
        if segment > keep {
            let problem = format!("`logs.segment` ({segment}) must not be larger than `logs.keep` ({keep})");
            return Err(ConfigError::in_file(path, problem));
        }
        Ok(LogConfig {
            segment,
            keep,
            copy: self.copy.unwrap_or(default.copy),
        })
    }
}
