//! The configuration file as it is written, and how it becomes a [`Config`].
//!
//! Every key is listed here; an unknown one is an error.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Inventory, Policy, Quota};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::backend::StorageEntry;
use super::users::{check_users, read_password};
use super::{
    Config, ConfigError, Credential, DatabaseUrl, EngineKind, Listen, LogLimits, TlsFiles, User, machine,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    listen: OneOrMany,
    tls: Option<Tls>,
    data: PathBuf,
    storage: Option<StorageEntry>,
    #[serde(deserialize_with = "parsed")]
    datacenter: DatacenterName,
    #[serde(default, deserialize_with = "parsed_option")]
    database: Option<Address>,
    users: Option<Vec<UserEntry>>,
    users_file: Option<PathBuf>,
    #[serde(default)]
    inventory: InventoryEntry,
    default_image: Option<String>,
    #[serde(default)]
    logs: LogsEntry,
    #[serde(default)]
    engine: EngineEntry,
}

/// `listen: 127.0.0.1:8080` or a list of such.
#[derive(Debug, Default)]
struct OneOrMany(Vec<Listen>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert: PathBuf,
    key: PathBuf,
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
    #[serde(deserialize_with = "parsed_option")]
    storage: Option<Bytes>,
    files: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct InventoryEntry {
    #[serde(alias = "cores", deserialize_with = "parsed_option")]
    cpu: Option<Cpu>,
    #[serde(deserialize_with = "parsed_option")]
    memory: Option<Bytes>,
    gpus: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogsEntry {
    #[serde(deserialize_with = "parsed_option")]
    segment: Option<LogSize>,
    #[serde(deserialize_with = "parsed_option")]
    keep: Option<LogSize>,
}

/// Smaller files would be all names and no lines.
const LEAST_SEGMENT: Bytes = Bytes::new(4 << 10);

/// An amount like those of memory, spoken of as what it is here.
#[derive(Debug)]
struct LogSize(Bytes);

impl FromStr for LogSize {
    type Err = String;

    fn from_str(text: &str) -> Result<LogSize, String> {
        let parsed = text.parse().map(LogSize);
        parsed.map_err(|_| {
            let text = text.escape_debug();
            format!("`logs`: `{text}` is no size of a log: write a whole number and one of Ki Mi Gi Ti, for example `16Mi`")
        })
    }
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EngineEntry {
    #[default]
    Local,
}

#[derive(Debug)]
struct Address(DatabaseUrl);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DatabaseUrl::parse(text).map(Address)
    }
}

/// A text or a number: YAML reads `cpu: 2` as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Number(u64),
    Decimal(f64),
    Text(String),
}

impl Word {
    fn parse<T: FromStr<Err: Display>, E: serde::de::Error>(self) -> Result<T, E> {
        let text = match self {
            Word::Number(number) => number.to_string(),
            Word::Decimal(number) => number.to_string(),
            Word::Text(text) => text,
        };
        text.parse().map_err(E::custom)
    }
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    Word::deserialize(deserializer)?.parse()
}

fn parsed_option<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let word = Option::<Word>::deserialize(deserializer)?;
    word.map(Word::parse).transpose()
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
        let (backend, storage) = StorageEntry::check(self.storage, &data, path)?;
        let default_database = || DatabaseUrl::sqlite_file(&data.join("server.db"));
        let database = self
            .database
            .map_or_else(default_database, |address| address.0.below(base));
        let entries = match (self.users, self.users_file) {
            (Some(_), Some(_)) => {
                let both = ConfigError::in_file(path, "`users` and `users_file` exclude each other");
                return Err(both.with_hint("keep the one you maintain"));
            }
            (Some(entries), None) => entries,
            (None, Some(file)) => read_users_file(&base.join(file))?,
            (None, None) => Vec::new(),
        };
        let users = entries
            .into_iter()
            .map(|entry| entry.check(path))
            .collect::<Result<Vec<_>, _>>()?;
        check_users(&users, path)?;
        Ok(Config {
            listen,
            tls: self.tls.map(|tls| tls.below(base)),
            backend,
            storage,
            datacenter: self.datacenter,
            database,
            users,
            socket_user: None,
            inventory: self.inventory.check(),
            policy: Policy {
                oversubscribe_alone: false,
            },
            default_image: self.default_image,
            logs: self.logs.check(path)?,
            engine: match self.engine {
                EngineEntry::Local => EngineKind::Local,
            },
            embedded: false,
            program: None,
            data,
        })
    }
}

fn read_users_file(path: &Path) -> Result<Vec<UserEntry>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
    serde_saphyr::from_str(&text).map_err(|error| ConfigError::yaml(path, &error))
}

impl Tls {
    fn below(self, base: &Path) -> TlsFiles {
        TlsFiles {
            cert: base.join(self.cert),
            key: base.join(self.key),
            client_ca: self.client_ca.map(|file| base.join(file)),
        }
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
            (Some(hash), None) => Some(Credential::from_hash(&hash).map_err(|problem| {
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
            quota: Quota {
                cpu: self.quota.cpu,
                memory: self.quota.memory,
                gpu: self.quota.gpu,
                parallelism: self.quota.parallelism,
            },
            storage: self.quota.storage,
            files: self.quota.files,
            system_user: self.system_user,
        })
    }
}

impl InventoryEntry {
    fn check(self) -> Inventory {
        let found = machine::inventory();
        let nodes = found.nodes.into_iter().map(|mut node| {
            node.cpu = self.cpu.unwrap_or(node.cpu);
            node.memory = self.memory.unwrap_or(node.memory);
            node.gpus = self.gpus.unwrap_or(node.gpus);
            node
        });
        Inventory {
            nodes: nodes.collect(),
        }
    }
}

impl LogsEntry {
    fn check(self, path: &Path) -> Result<LogLimits, ConfigError> {
        let default = LogLimits::default();
        let keep = self.keep.map_or(default.keep, |size| size.0);
        let segment = self.segment.map_or(default.segment.min(keep), |size| size.0);
        if segment < LEAST_SEGMENT {
            let name = if keep < LEAST_SEGMENT { "keep" } else { "segment" };
            let problem = format!("`logs.{name}` ({segment}) is too small: {LEAST_SEGMENT} are the least");
            return Err(ConfigError::in_file(path, problem));
        }
        if segment > keep {
            let problem = format!("`logs.segment` ({segment}) must not be larger than `logs.keep` ({keep})");
            return Err(ConfigError::in_file(path, problem));
        }
        Ok(LogLimits { segment, keep })
    }
}
