//! Names of jobs, runs, users, datacenters and nodes.
//!
//! A parsed name is never checked again. This module does not know where names are used.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest job name. It is also the limit of Kubernetes labels, so a name works on every engine.
pub const MAX_JOB_NAME: usize = 63;

/// Stands for the latest job on every command line, and is therefore not a valid name.
pub const LATEST: &str = "last";

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NameError {
    problem: String,
    suggestion: Option<String>,
}

impl NameError {
    fn new(problem: impl Into<String>, suggestion: Option<String>) -> Self {
        Self {
            problem: problem.into(),
            suggestion,
        }
    }

    /// A similar name that would be accepted.
    pub fn suggestion(&self) -> Option<&str> {
        self.suggestion.as_deref()
    }
}

/// The name a user gives to a job. Free again as soon as its job is final or being killed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

impl JobName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The nearest valid name to any text, for example a folder's name. Never fails.
    pub fn nearest(text: &str) -> JobName {
        JobName(nearest_name(text).unwrap_or_else(|| "job".to_owned()))
    }

    /// This name with `-<suffix>` appended, shortened so that it stays valid.
    pub fn with_suffix(&self, suffix: &str) -> JobName {
        let room = MAX_JOB_NAME.saturating_sub(suffix.len() + 1);
        let stem = self.0[..self.0.len().min(room)].trim_end_matches(['-', '.']);
        JobName(format!("{stem}-{suffix}"))
    }
}

impl FromStr for JobName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |problem: String| Err(NameError::new(problem, nearest_name(text)));
        if text.is_empty() {
            return refuse("a job name must not be empty".into());
        }
        if text == LATEST {
            return refuse(format!(
                "`{LATEST}` stands for the latest job and cannot be a job name"
            ));
        }
        if let Some(bad) = text.chars().find(|c| !is_name_char(*c)) {
            return refuse(format!("`{}` is not allowed in a job name", bad.escape_debug()));
        }
        if text.len() > MAX_JOB_NAME {
            return refuse(format!(
                "a job name has at most {MAX_JOB_NAME} characters, this one has {}",
                text.len()
            ));
        }
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return refuse("a job name must begin with a letter or a digit".into());
        }
        if text.contains("..") {
            return refuse("a job name must not have two dots in a row".into());
        }
        if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
            return refuse("a job name must end with a letter or a digit".into());
        }
        Ok(JobName(text.to_owned()))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '.'
}

fn nearest_name(text: &str) -> Option<String> {
    let mapped: String = text
        .chars()
        .map(|c| if is_name_char(c) { c } else { '-' })
        .take(MAX_JOB_NAME)
        .collect();
    let mut trimmed = mapped.trim_matches(['-', '.']).to_owned();
    while trimmed.contains("..") {
        trimmed = trimmed.replace("..", ".");
    }
    match trimmed.as_str() {
        "" => None,
        LATEST => Some(format!("{LATEST}-1")),
        _ => Some(trimmed),
    }
}

/// Identifies one run permanently. The `_` distinguishes it from job names.
///
/// Later ids sort later: the first part is the time in milliseconds. Stored inline, because ids are copied often and a
/// copy must not allocate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId([u8; ID_LENGTH]);

const ID_PREFIX: &str = "j_";
const ID_DIGITS: usize = 14;
const ID_LENGTH: usize = ID_PREFIX.len() + ID_DIGITS;
const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl JobId {
    /// Creates an id from the time and 25 random bits; the store refuses the rare duplicate.
    pub fn new(unix_millis: u64, random: u32) -> JobId {
        JobId::from_value((u128::from(unix_millis) << 25) | u128::from(random & 0x1ff_ffff))
    }

    /// The next id, for when the clock stands still or was set back.
    pub fn successor(&self) -> JobId {
        let digit = |byte: &u8| BASE32.iter().position(|known| known == byte).unwrap_or(0) as u128;
        JobId::from_value(
            self.0[ID_PREFIX.len()..]
                .iter()
                .fold(0, |value, byte| (value << 5) | digit(byte))
                + 1,
        )
    }

    fn from_value(mut value: u128) -> JobId {
        let mut text = [b'0'; ID_LENGTH];
        text[..ID_PREFIX.len()].copy_from_slice(ID_PREFIX.as_bytes());
        for digit in text[ID_PREFIX.len()..].iter_mut().rev() {
            *digit = BASE32[(value & 31) as usize];
            value >>= 5;
        }
        JobId(text)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of ASCII")
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({})", self.as_str())
    }
}

impl FromStr for JobId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let digits = text.strip_prefix(ID_PREFIX).unwrap_or("");
        if let Ok(bytes) = text.as_bytes().try_into()
            && digits.len() == ID_DIGITS
            && digits.bytes().all(|b| BASE32.contains(&b))
        {
            return Ok(JobId(bytes));
        }
        Err(NameError::new(
            format!("`{}` is not a job id", text.escape_debug()),
            None,
        ))
    }
}

/// How people refer to a job: by id (one run), by name (its latest run), as `user/name`, or `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobRef {
    Id(JobId),
    Name(JobName),
    /// The latest run of a user's job, for administrators.
    Of(UserName, JobName),
    Latest,
}

impl FromStr for JobRef {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == LATEST || text == "-" {
            return Ok(JobRef::Latest);
        }
        if text.starts_with(ID_PREFIX) {
            return text.parse().map(JobRef::Id);
        }
        match text.split_once('/') {
            Some((user, name)) if !name.contains('/') => Ok(JobRef::Of(user.parse()?, name.parse()?)),
            _ => text.parse().map(JobRef::Name),
        }
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobRef::Id(id) => id.fmt(f),
            JobRef::Name(name) => name.fmt(f),
            JobRef::Of(user, name) => write!(f, "{user}/{name}"),
            JobRef::Latest => f.write_str(LATEST),
        }
    }
}

/// A user: usually an e-mail address or the system's user name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserName(Arc<str>);

/// A datacenter, as in `/pfs/<datacenter>/…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatacenterName(String);

/// A node by its engine's name: a host name, or a node of a cluster. A copy does not allocate.
///
/// Records of earlier versions contain a number here, which names no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "StoredNode", into = "String")]
pub struct NodeName(Arc<str>);

#[derive(Deserialize)]
#[serde(untagged)]
enum StoredNode {
    Name(String),
    Index(u32),
}

impl From<StoredNode> for NodeName {
    fn from(stored: StoredNode) -> NodeName {
        match stored {
            StoredNode::Name(name) => NodeName(name.into()),
            StoredNode::Index(index) => NodeName(format!("#{index}").into()),
        }
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> NodeName {
        NodeName(name.into())
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.as_str().to_owned()
    }
}

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A word that can be one component of a path: no separator, not `.` or `..`, nothing invisible.
fn check_path_word(kind: &str, text: &str, max: usize) -> Result<(), NameError> {
    let problem = if text.is_empty() {
        format!("a {kind} must not be empty")
    } else if text.len() > max {
        format!("a {kind} has at most {max} characters")
    } else if text == "." || text == ".." || text == "public" {
        format!("`{text}` cannot be a {kind}")
    } else if let Some(bad) = text
        .chars()
        .find(|c| *c == '/' || c.is_control() || c.is_whitespace())
    {
        format!("`{}` is not allowed in a {kind}", bad.escape_debug())
    } else {
        return Ok(());
    };
    Err(NameError::new(problem, None))
}

impl FromStr for UserName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_path_word("user name", text, 128)?;
        Ok(UserName(text.into()))
    }
}

impl FromStr for DatacenterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_path_word("datacenter name", text, 63)?;
        Ok(DatacenterName(text.to_owned()))
    }
}

impl UserName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace of this user: `user1@gmail.com` → `user1-gmail-com`.
    ///
    /// Names that would collide get a mark derived from the whole name, so no two users share a namespace.
    pub fn namespace(&self) -> String {
        let mut plain: String = self
            .0
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .collect();
        plain = plain
            .trim_matches('-')
            .chars()
            .take(54)
            .collect::<String>()
            .trim_end_matches('-')
            .to_owned();
        let canonical = self
            .0
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '@' || c == '.')
            && self.0.matches('@').count() <= 1
            && !plain.is_empty()
            && plain.len() < 54
            && !plain.contains("--");
        // An address and the same text with other separators must not collide: only the form `user@host.tld` gets no
        // mark.
        let is_plain_word = !self.0.contains(['@', '.']);
        let is_address =
            self.0.contains('@') && self.0.split('@').next().is_some_and(|user| !user.contains('.'));
        if canonical && (is_plain_word || is_address) {
            return plain;
        }
        let mark = fnv1a(self.0.as_bytes());
        if plain.is_empty() {
            format!("u-{mark:08x}")
        } else {
            format!("{plain}-{mark:08x}")
        }
    }
}

impl DatacenterName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

macro_rules! text_newtype {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
    )*};
}
text_newtype!(JobName, JobId, UserName, DatacenterName);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (String, Option<String>) {
        let error = text.parse::<JobName>().expect_err(text);
        (error.to_string(), error.suggestion().map(str::to_owned))
    }

    #[test]
    fn names_of_the_documents_are_taken() {
        for name in ["my-paddlecloud-job", "paddle-cluster-job", "a", "1.2", "Job-7"] {
            assert_eq!(name.parse::<JobName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_refused_name_says_why_and_offers_another() {
        assert_eq!(
            refused("my_job"),
            ("`_` is not allowed in a job name".into(), Some("my-job".into()))
        );
        assert_eq!(refused("caf\u{e9}").0, "`\u{e9}` is not allowed in a job name");
        assert_eq!(refused("a\u{1b}").0, "`\\u{1b}` is not allowed in a job name");
        assert_eq!(
            refused("ends-"),
            (
                "a job name must end with a letter or a digit".into(),
                Some("ends".into())
            )
        );
        assert_eq!(refused("last").1, Some("last-1".into()));
        assert!(
            refused(&"x".repeat(300))
                .0
                .contains("at most 63 characters, this one has 300")
        );
        assert_eq!(refused("a...b").1, Some("a.b".into()));
        assert_eq!(refused("___").1, None);
    }

    #[test]
    fn a_path_is_refused_as_the_name_of_a_job() {
        assert_eq!("ann/train".parse::<JobRef>().unwrap().to_string(), "ann/train");
        for path in ["../../x", "/pfs/dc/home"] {
            let problem = path.parse::<JobRef>().unwrap_err().to_string();
            assert!(problem.contains("job name"), "{path}: {problem}");
        }
    }

    #[test]
    fn ids_never_parse_as_names_and_sort_by_time() {
        let early = JobId::new(1_700_000_000_000, 0xffff_ffff);
        let late = JobId::new(1_700_000_000_001, 0);
        assert!(early < late);
        assert!(early.as_str().parse::<JobName>().is_err());
        assert!(early.successor() > early && early.successor() <= late);
        assert_eq!(early.as_str().parse::<JobId>().unwrap(), early);
    }

    #[test]
    fn a_suffix_never_makes_a_name_too_long() {
        let name: JobName = "x".repeat(63).parse().unwrap();
        assert!(name.with_suffix("2").as_str().parse::<JobName>().is_ok());
    }

    #[test]
    fn namespaces_follow_the_documents_and_never_meet() {
        let namespace = |user: &str| user.parse::<UserName>().unwrap().namespace();
        assert_eq!(namespace("user1@gmail.com"), "user1-gmail-com");
        let near = [
            "user1@gmail.com",
            "user1.gmail.com",
            "user1-gmail-com",
            "user1@gmail-com",
            "USER1@gmail.com",
            "user1_gmail_com",
        ];
        let all: std::collections::BTreeSet<String> = near.iter().map(|user| namespace(user)).collect();
        assert_eq!(all.len(), near.len(), "{all:?}");
    }

    #[test]
    fn a_user_name_is_one_path_component() {
        for bad in ["", "..", ".", "a/b", "a\0b", "a b", "public"] {
            assert!(bad.parse::<UserName>().is_err(), "{bad:?}");
        }
    }
}
