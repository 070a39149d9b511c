//! The configuration file: parses the three shapes into one list of entries with their line numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use super::error::nearest;
use super::{ConfigError, Datacenter, SETTABLE};

/// The shape of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `datacenters:` with `current-datacenter:` (the submit guide) or `active:` (the Chinese submit guide).
    List,
    /// A mapping from names to entries (the client design).
    Mapping,
}

/// A configuration file with line numbers.
#[derive(Debug)]
pub struct ConfigFile {
    pub path: PathBuf,
    pub text: String,
    pub shape: Shape,
    pub entries: Vec<EntryLines>,
    pub current: Option<Spanned<String>>,
}

/// One entry as written.
#[derive(Debug)]
pub struct EntryLines {
    pub name: String,
    /// The line of its name; the first line of a mapping's entry.
    pub line: u64,
    pub fields: Fields,
}

#[derive(Debug, Deserialize)]
pub struct Fields {
    name: Option<Spanned<String>>,
    pub active: Option<Spanned<bool>>,
    pub username: Option<String>,
    password: Option<String>,
    token: Option<String>,
    usercert: Option<PathBuf>,
    userkey: Option<PathBuf>,
    cacert: Option<PathBuf>,
    endpoint: Option<Spanned<String>>,
}

#[derive(Deserialize)]
struct ListFile {
    datacenters: Option<Vec<Spanned<Fields>>>,
    #[serde(rename = "current-datacenter", alias = "current_datacenter")]
    current: Option<Spanned<String>>,
}

/// The keys of an entry.
const ENTRY_KEYS: [&str; SETTABLE.len() + 2] = {
    let mut keys = ["name"; SETTABLE.len() + 2];
    keys[1] = "active";
    let mut at = 0;
    while at < SETTABLE.len() {
        keys[at + 2] = SETTABLE[at];
        at += 1;
    }
    keys
};

fn keys_beside(fields: Option<&serde_json::Value>, known: &[&str]) -> Vec<String> {
    let keys = fields.and_then(serde_json::Value::as_object).into_iter();
    keys.flat_map(|fields| fields.keys())
        .filter(|key| !known.contains(&key.as_str()))
        .cloned()
        .collect()
}

/// ``an unknown key `cacrt`: did you mean `cacert`?``
fn unknown_key(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(near) => format!("an unknown key `{key}`: did you mean `{near}`?"),
        None => format!("an unknown key `{key}`, which has no effect"),
    }
}

impl ConfigFile {
    pub fn parse(path: &Path, text: String) -> Result<ConfigFile, ConfigError> {
        let mut file = ConfigFile {
            path: path.to_owned(),
            shape: Shape::List,
            entries: Vec::new(),
            current: None,
            text,
        };
        if file.is_blank() {
            return Err(ConfigError::Empty(file.path));
        }
        let keys: BTreeMap<String, IgnoredAny> = file.yaml()?;
        if keys.contains_key("datacenters") {
            file.read_list()?;
        } else {
            file.shape = Shape::Mapping;
            file.read_mapping(keys.contains_key("current-datacenter"))?;
        }
        file.check()?;
        Ok(file)
    }

    /// Only comments and white space.
    fn is_blank(&self) -> bool {
        let empty = |line: &str| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        };
        self.text.lines().all(empty)
    }

    fn read_list(&mut self) -> Result<(), ConfigError> {
        let list: ListFile = self.yaml()?;
        self.current = list.current;
        for (index, entry) in list.datacenters.unwrap_or_default().into_iter().enumerate() {
            let line = entry.referenced.line();
            let Some(name) = &entry.value.name else {
                return Err(ConfigError::Unnamed {
                    path: self.path.clone(),
                    line,
                    number: index + 1,
                });
            };
            self.entries.push(EntryLines {
                name: name.value.clone(),
                line: name.referenced.line(),
                fields: entry.value,
            });
        }
        Ok(())
    }

    fn read_mapping(&mut self, has_current: bool) -> Result<(), ConfigError> {
        #[derive(Deserialize)]
        struct Current {
            #[serde(rename = "current-datacenter")]
            current: Spanned<String>,
        }
        if has_current {
            self.current = Some(self.yaml::<Current>()?.current);
        }
        let MappingFile(entries) = self.yaml()?;
        for (name, value) in entries {
            if let MappingValue(Some(fields)) = value {
                self.entries.push(EntryLines {
                    line: name.referenced.line(),
                    name: name.value,
                    fields,
                });
            }
        }
        Ok(())
    }

    fn yaml<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ConfigError> {
        serde_saphyr::from_str(&self.text).map_err(|error| {
            let line = error
                .location()
                .map(|location| location.line())
                .filter(|line| *line > 0);
            if let Some((line, text)) = line.and_then(|line| self.placeholder_near(line)) {
                return ConfigError::Placeholder {
                    path: self.path.clone(),
                    line,
                    text,
                };
            }
            ConfigError::Unreadable {
                path: self.path.clone(),
                line,
                problem: plain_problem(&error.to_string()),
            }
        })
    }

    /// The documents write `username: [your user name]`, which YAML parses as a list.
    fn placeholder_near(&self, line: u64) -> Option<(u64, String)> {
        let text = self
            .text
            .lines()
            .nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
        let (key, value) = text.split_once(':')?;
        let value = value.trim();
        // A list that does not end here, or a list of datacenters, is not a placeholder but a broken list.
        let is_bracketed = |open, close| value.starts_with(open) && value.contains(close);
        let is_placeholder = is_bracketed('[', ']') || is_bracketed('{', '}');
        (is_placeholder && key.trim() != "datacenters").then(|| (line, value.to_owned()))
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.entries.is_empty() {
            return Err(ConfigError::Empty(self.path.clone()));
        }
        let mut names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::SameName {
                path: self.path.clone(),
                name: pair[0].to_owned(),
            });
        }
        Ok(())
    }

    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }

    pub fn names(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.name.clone()).collect()
    }

    /// The selected entry: the wanted one, the current one, the active one, or the only one.
    pub fn chosen(&self, wanted: Option<&str>) -> Result<&EntryLines, ConfigError> {
        let named = wanted.or(self.current.as_ref().map(|current| current.value.as_str()));
        if let Some(name) = named {
            let found = self.entries.iter().find(|entry| entry.name == name);
            return found.ok_or_else(|| ConfigError::Unknown {
                path: self.path.clone(),
                wanted: name.to_owned(),
                names: self.names(),
            });
        }
        let mut active = self.entries.iter().filter(|entry| entry.is_active());
        match (active.next(), active.next()) {
            (Some(only), None) => Ok(only),
            (Some(first), Some(second)) => Err(ConfigError::TwoActive {
                path: self.path.clone(),
                first: first.name.clone(),
                first_line: first.line,
                second: second.name.clone(),
                second_line: second.line,
            }),
            (None, _) => match self.entries.as_slice() {
                [only] if only.fields.active.is_none() => Ok(only),
                _ => Err(ConfigError::NoneChosen {
                    path: self.path.clone(),
                    names: self.names(),
                }),
            },
        }
    }

    pub fn datacenter(&self, wanted: Option<&str>) -> Result<Datacenter, ConfigError> {
        self.checked(self.chosen(wanted)?)
    }

    /// Keys of the entry that mean nothing.
    fn unknown_keys(&self, entry: &EntryLines) -> Vec<String> {
        let file: serde_json::Value = self.yaml().unwrap_or_default();
        let fields = match self.shape {
            Shape::List => file["datacenters"].as_array().and_then(|entries| {
                let is_own = |fields: &&serde_json::Value| fields["name"] == entry.name.as_str();
                entries.iter().find(is_own)
            }),
            Shape::Mapping => file.get(&entry.name),
        };
        keys_beside(fields, &ENTRY_KEYS)
    }

    fn top_keys(&self) -> &'static [&'static str] {
        match self.shape {
            Shape::List => &["datacenters", "current-datacenter", "current_datacenter"],
            Shape::Mapping => &["current-datacenter"],
        }
    }

    /// Keys beside the entries that mean nothing. A mapping's entries have free names, so there only plain values count.
    fn unknown_top_keys(&self) -> Vec<String> {
        let file: serde_json::Value = self.yaml().unwrap_or_default();
        let mut keys = keys_beside(Some(&file), self.top_keys());
        if self.shape == Shape::Mapping {
            keys.retain(|key| !file[key].is_object());
        }
        keys
    }

    /// Sentences about keys that have no effect, in the entry and beside the entries.
    fn remarks(&self, entry: &EntryLines) -> Vec<String> {
        let file = self.path.display();
        let top = self
            .unknown_top_keys()
            .into_iter()
            .map(|key| format!("`{file}` has {}", unknown_key(&key, self.top_keys())));
        let own = self.unknown_keys(entry).into_iter().map(|key| {
            let key = unknown_key(&key, &ENTRY_KEYS);
            format!("datacenter `{}` of `{file}` has {key}", entry.name)
        });
        top.chain(own).collect()
    }

    /// An entry whose fields are consistent.
    pub fn checked(&self, entry: &EntryLines) -> Result<Datacenter, ConfigError> {
        let wrong = |line: u64, problem: String| ConfigError::Entry {
            path: self.path.clone(),
            line,
            name: entry.name.clone(),
            problem,
        };
        let fields = &entry.fields;
        let endpoint = fields.endpoint.as_ref().ok_or_else(|| {
            let unknown = self.unknown_keys(entry);
            let problem = match unknown.first() {
                Some(key) => format!("has no `endpoint`, but {}", unknown_key(key, &ENTRY_KEYS)),
                None => "has no `endpoint`: write the server's address there".to_owned(),
            };
            wrong(entry.line, problem)
        })?;
        let address = endpoint.value.parse().map_err(|error| {
            wrong(
                endpoint.referenced.line(),
                format!("has a wrong `endpoint`: {error}"),
            )
        })?;
        if fields.usercert.is_some() != fields.userkey.is_some() {
            let problem = "needs both `usercert` and `userkey`, or neither".to_owned();
            return Err(wrong(entry.line, problem));
        }
        if fields.password.is_some() && fields.username.is_none() {
            return Err(wrong(entry.line, "has a `password` but no `username`".to_owned()));
        }
        Ok(Datacenter {
            name: entry.name.clone(),
            endpoint: address,
            username: fields.username.clone(),
            password: fields.password.clone(),
            token: fields.token.clone(),
            usercert: fields.usercert.clone(),
            userkey: fields.userkey.clone(),
            cacert: fields.cacert.clone(),
            remarks: self.remarks(entry),
        })
    }
}

impl EntryLines {
    /// A field that can be set, as it is written.
    pub(super) fn field(&self, key: &str) -> Option<String> {
        let fields = &self.fields;
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        match key {
            "username" => fields.username.clone(),
            "password" => fields.password.clone(),
            "token" => fields.token.clone(),
            "usercert" => path(&fields.usercert),
            "userkey" => path(&fields.userkey),
            "cacert" => path(&fields.cacert),
            _ => fields.endpoint.as_ref().map(|endpoint| endpoint.value.clone()),
        }
    }

    pub fn is_active(&self) -> bool {
        self.fields.active.as_ref().is_some_and(|active| active.value)
    }
}

/// A whole mapping in the order of its lines.
struct MappingFile(Vec<(Spanned<String>, MappingValue)>);

impl<'de> Deserialize<'de> for MappingFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = MappingFile;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("datacenters by name")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<MappingFile, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(MappingFile(pairs))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// An entry of a mapping; `None` for a plain value such as `current-datacenter: x`.
struct MappingValue(Option<Fields>);

impl<'de> Deserialize<'de> for MappingValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = MappingValue;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("username, endpoint and so on, indented below the datacenter's name")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<MappingValue, A::Error> {
                let fields = serde::de::value::MapAccessDeserializer::new(map);
                Fields::deserialize(fields).map(|fields| MappingValue(Some(fields)))
            }

            fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<MappingValue, E> {
                Ok(MappingValue(None))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The parser's message without the position, which is shown separately, and without the excerpt below it.
fn plain_problem(message: &str) -> String {
    let line = message.lines().next().unwrap_or(message).trim();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let without_place = match line.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") && place.contains("column ") => rest,
        _ => line,
    };
    without_place.trim_end_matches('.').to_owned()
}
