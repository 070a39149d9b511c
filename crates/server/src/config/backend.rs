//! Where users' files are stored: `storage: <folder>`, or a mapping that names another kind of store.
//!
//! Only parses and checks; the file service connects.

use std::fmt;
use std::path::{Path, PathBuf};

use paddlecloud_backends::{HdfsSettings, S3Settings, SecretText};
use paddlecloud_files::Backend;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::ConfigError;

/// `storage` as written: a folder, or the settings of a store.
#[derive(Debug)]
pub(super) enum StorageEntry {
    Folder(PathBuf),
    Store(Box<StoreEntry>),
}

impl<'de> Deserialize<'de> for StorageEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = StorageEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a folder, or a mapping with `kind`")
            }

            fn visit_str<E>(self, folder: &str) -> Result<StorageEntry, E> {
                Ok(StorageEntry::Folder(folder.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StorageEntry, A::Error> {
                let store = StoreEntry::deserialize(MapAccessDeserializer::new(map))?;
                Ok(StorageEntry::Store(Box::new(store)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreEntry {
    kind: Option<String>,
    path: Option<PathBuf>,
    url: Option<String>,
    user: Option<String>,
    config: Option<PathBuf>,
    replication: Option<u32>,
    endpoint: Option<String>,
    region: Option<String>,
    longest_key: Option<usize>,
    access_key: Option<String>,
    secret_key_file: Option<PathBuf>,
}

/// The kinds of stores and their settings.
const KINDS: [(&str, &[&str]); 4] = [
    ("folder", &["path"]),
    ("cephfs", &["path"]),
    ("hdfs", &["url", "user", "config", "replication"]),
    (
        "s3",
        &[
            "url",
            "endpoint",
            "region",
            "longest_key",
            "access_key",
            "secret_key_file",
        ],
    ),
];

impl StorageEntry {
    /// The store, and its folder on this machine: the users' files or, for a remote store, the spool.
    pub(super) fn check(
        entry: Option<StorageEntry>,
        data: &Path,
        file: &Path,
    ) -> Result<(Backend, PathBuf), ConfigError> {
        let base = file.parent().unwrap_or(Path::new("."));
        match entry {
            None => Ok((Backend::Folder, data.join("storage"))),
            Some(StorageEntry::Folder(folder)) => Ok((Backend::Folder, base.join(folder))),
            Some(StorageEntry::Store(store)) => store.check(data, file),
        }
    }
}

impl StoreEntry {
    fn check(self, data: &Path, file: &Path) -> Result<(Backend, PathBuf), ConfigError> {
        let base = file.parent().unwrap_or(Path::new("."));
        let kind = self.kind.clone().unwrap_or_else(|| "folder".to_owned());
        self.check_names(&kind, file)?;
        let missing = |name: &str| {
            let problem = format!("`storage` of kind `{kind}` needs `{name}`");
            ConfigError::in_file(file, problem)
        };
        let wrong =
            |problem: &dyn fmt::Display| ConfigError::in_file(file, format!("`storage.url`: {problem}"));
        match kind.as_str() {
            "hdfs" => {
                let url = self.url.as_deref().ok_or_else(|| missing("url"))?;
                let settings = HdfsSettings {
                    url: url.parse().map_err(|error| wrong(&error))?,
                    user: self.user,
                    config: self.config.map(|folder| base.join(folder)),
                    replication: self.replication,
                };
                Ok((Backend::Hdfs(settings), data.join("spool")))
            }
            "s3" => {
                let url = self.url.as_deref().ok_or_else(|| missing("url"))?;
                let settings = S3Settings::from_url(url).map_err(|error| wrong(&error))?;
                let settings = self.s3(settings, base, file)?;
                Ok((Backend::S3(settings), data.join("spool")))
            }
            kind => {
                let path = base.join(self.path.ok_or_else(|| missing("path"))?);
                let backend = match kind {
                    "cephfs" => Backend::CephFs,
                    _ => Backend::Folder,
                };
                Ok((backend, path))
            }
        }
    }

    fn s3(self, settings: S3Settings, base: &Path, file: &Path) -> Result<S3Settings, ConfigError> {
        let secret_key = match &self.secret_key_file {
            Some(secret) => {
                let path = base.join(secret);
                let text =
                    std::fs::read_to_string(&path).map_err(|error| ConfigError::unreadable(&path, &error))?;
                Some(SecretText::new(&text))
            }
            None => None,
        };
        if self.access_key.is_some() != secret_key.is_some() {
            let alone = ConfigError::in_file(file, "`access_key` and `secret_key_file` belong together");
            return Err(alone.with_hint(
                "leave both out to take `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` from the environment",
            ));
        }
        Ok(S3Settings {
            endpoint: self.endpoint,
            region: self.region.unwrap_or(settings.region),
            longest_key: self.longest_key.unwrap_or(settings.longest_key),
            access_key: self.access_key,
            secret_key,
            ..settings
        })
    }

    /// Refuses an unknown kind, and settings that belong to another kind.
    fn check_names(&self, kind: &str, file: &Path) -> Result<(), ConfigError> {
        let Some((_, known)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            let kinds = KINDS.map(|(name, _)| name);
            let refused = ConfigError::in_file(file, format!("there is no `storage` of kind `{kind}`"));
            return Err(
                refused.with_hint(match crate::nearest::nearest(kind, kinds.into_iter()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the kinds are {}", kinds.join(", ")),
                }),
            );
        };
        let given = [
            ("path", self.path.is_some()),
            ("url", self.url.is_some()),
            ("user", self.user.is_some()),
            ("config", self.config.is_some()),
            ("replication", self.replication.is_some()),
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("longest_key", self.longest_key.is_some()),
            ("access_key", self.access_key.is_some()),
            ("secret_key_file", self.secret_key_file.is_some()),
        ];
        match given.iter().find(|(name, given)| *given && !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let problem = format!("`storage` of kind `{kind}` has no setting `{name}`");
                Err(ConfigError::in_file(file, problem).with_hint(format!("it has {}", known.join(", "))))
            }
        }
    }
}
