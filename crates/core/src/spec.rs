//! What a user requests. A checked `JobSpec` is valid: sizes are in range, names are parsed.
//!
//! Where, when and as which user it runs is decided elsewhere.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::command::plain_words;
use crate::gpu::GpuType;
use crate::names::JobName;
use crate::quantity::{Bytes, Cpu, counted};
use crate::resumed::ResumedRun;

/// The allowed range of each whole number of a job.
pub const PARALLELISM: RangeInclusive<i64> = 1..=10_000;
pub const PSERVERS: RangeInclusive<i64> = 0..=10_000;
pub const GPU: RangeInclusive<i64> = 0..=1024;
pub const PASSES: RangeInclusive<i64> = 1..=1_000_000;
pub const RETRIES: RangeInclusive<i64> = 0..=1000;
pub const PS_PORTS: RangeInclusive<i64> = 1..=64;
pub const PRIORITY: RangeInclusive<i64> = -1000..=1000;
/// Maximum bytes of a command, or of one environment variable: Linux starts no program with an argument longer than 128 KiB.
pub const MAX_WORD: usize = 64 << 10;
/// Maximum bytes of all environment variables of a job together.
pub const MAX_ENVS: usize = 512 << 10;
/// Maximum characters of a comment, which is one line.
const MAX_COMMENT: usize = 200;
/// Maximum labels that a job requires of nodes.
const MAX_LABELS: usize = 16;
/// Maximum characters of a label's value, and of its name without the domain.
const MAX_LABEL: usize = 63;
/// Less memory than this is not enough for a shell.
const LEAST_MEMORY: Bytes = Bytes::mib(1);
/// A pod that may write less has no room for its launcher.
pub const LEAST_DISK: Bytes = Bytes::mib(256);
/// The command of a trainer if none is given, as in the client design.
pub const DEFAULT_ENTRY: &str = "paddle train";
/// The command of a parameter server if none is given.
pub const DEFAULT_PS_ENTRY: &str = "paddle pserver";

/// What one worker of a role gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpu: u32,
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            cpu: Cpu::cores(1),
            memory: Bytes::mib(1024),
            gpu: 0,
        }
    }
}

/// A stored secret and the variable that contains it in workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    pub name: String,
    pub env: String,
}

/// Letters, digits, `-`, `_` and `.`, at most 63.
pub fn is_secret_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=63).contains(&text.len()) && text.chars().all(allowed)
}

impl SecretRef {
    /// Parses `NAME` or `NAME=VARIABLE`. The default variable is the name in capital letters.
    pub fn parse(text: &str) -> Result<SecretRef, SpecError> {
        let (name, env) = text.split_once('=').unwrap_or((text, ""));
        let wrong = |what: &str, word: &str| {
            let problem = format!("`{}` is not the name of a {what}", word.escape_debug());
            SpecError::remark("secrets", problem)
        };
        if !is_secret_name(name) {
            return Err(wrong("secret", name));
        }
        let capital = || name.to_ascii_uppercase().replace(['-', '.'], "_");
        let env = if env.is_empty() { capital() } else { env.to_owned() };
        let mut letters = env.chars();
        let begins = letters
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        match begins && letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            true => Ok(SecretRef {
                name: name.to_owned(),
                env,
            }),
            false => Err(wrong("variable", &env)),
        }
    }
}

/// A whole job as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: JobName,
    /// `/pfs/…`, the folder of the program; `None`: the program runs in the image's own folder.
    pub package: Option<String>,
    /// The stored upload this run was submitted with; `None`: the package is used in place.
    #[serde(default)]
    pub snapshot: Option<String>,
    pub parallelism: u32,
    pub trainer: Resources,
    pub pservers: u32,
    pub pserver: Resources,
    /// The type of the trainers' GPUs; the server's table says which nodes have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<GpuType>,
    /// Labels that the nodes of all workers have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// The most that each worker may write to the disk of its node; `None`: no limit. Kubernetes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    pub entry: String,
    pub ps_entry: String,
    /// How many consecutive ports a parameter server must listen on before trainers start.
    pub ps_ports: u16,
    /// A v1 configuration file; the trainer is then `paddle train --config=FILE`.
    pub topology: Option<String>,
    pub passes: u32,
    pub image: Option<String>,
    pub registry: Option<String>,
    pub envs: BTreeMap<String, String>,
    /// Stored secrets for variables of the workers; only their names are here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRef>,
    pub priority: i32,
    /// How often each worker may be restarted.
    pub retries: u32,
    pub max_runtime: Option<SignedDuration>,
    pub start_limit: SignedDuration,
    pub grace: SignedDuration,
    /// The user's comment on this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The run whose training it continues; set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumedRun>,
    /// Variables of the submitter's shell (`PATH`, virtual environment, locale); embedded server only.
    pub shell_env: BTreeMap<String, String>,
}

/// A value that breaks a rule.
///
/// It does not contain the name of its field: REST clients know `max_runtime`, users of the CLI `-max-runtime`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// The field as the REST interface calls it.
    pub field: &'static str,
    problem: Problem,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Problem {
    /// Continues a sentence that begins with the field: `must not be empty`.
    Predicate(String),
    /// A remark on the field: `memory: a worker cannot start with 1 byte`.
    Remark(String),
    /// Names its subject itself: ``cannot submit `my_job`: …``.
    Sentence(String),
}

impl SpecError {
    /// The field is the subject of the sentence.
    pub fn predicate(field: &'static str, problem: impl Into<String>) -> Self {
        SpecError::new(field, Problem::Predicate(problem.into()))
    }

    /// The field precedes the sentence.
    pub fn remark(field: &'static str, problem: impl Into<String>) -> Self {
        SpecError::new(field, Problem::Remark(problem.into()))
    }

    /// The sentence is complete without the field.
    pub fn sentence(field: &'static str, problem: impl Into<String>) -> Self {
        SpecError::new(field, Problem::Sentence(problem.into()))
    }

    fn new(field: &'static str, problem: Problem) -> Self {
        SpecError {
            field,
            problem,
            hint: None,
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The message for a reader who knows the field as `name`.
    pub fn message(&self, name: &str) -> String {
        match &self.problem {
            Problem::Predicate(problem) => format!("`{name}` {problem}"),
            Problem::Remark(problem) => format!("`{name}`: {problem}"),
            Problem::Sentence(problem) => problem.clone(),
        }
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message(self.field))
    }
}

impl std::error::Error for SpecError {}

/// A whole number within its field's range.
pub fn whole<T: TryFrom<i64>>(
    field: &'static str,
    value: i64,
    allowed: &RangeInclusive<i64>,
) -> Result<T, SpecError> {
    let kept = allowed.contains(&value).then(|| T::try_from(value).ok());
    kept.flatten().ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        SpecError::predicate(field, format!("must be between {least} and {most}, not {value}"))
    })
}

impl JobSpec {
    /// A job with all defaults of the documents: one trainer, one parameter server.
    pub fn new(name: JobName) -> JobSpec {
        JobSpec {
            name,
            package: None,
            snapshot: None,
            parallelism: 1,
            trainer: Resources::default(),
            pservers: 1,
            pserver: Resources::default(),
            gpu_type: None,
            node_labels: BTreeMap::new(),
            disk: None,
            entry: DEFAULT_ENTRY.to_owned(),
            ps_entry: DEFAULT_PS_ENTRY.to_owned(),
            ps_ports: 2,
            topology: None,
            passes: 1,
            image: None,
            registry: None,
            envs: BTreeMap::new(),
            secrets: Vec::new(),
            priority: 0,
            retries: 0,
            max_runtime: None,
            start_limit: SignedDuration::from_mins(10),
            grace: SignedDuration::from_secs(30),
            comment: None,
            resume: None,
            shell_env: BTreeMap::new(),
        }
    }

    /// Checks every field that has a range. Callers build a spec, then call this once.
    pub fn check(self) -> Result<JobSpec, SpecError> {
        for (field, value, allowed) in [
            ("parallelism", i64::from(self.parallelism), PARALLELISM),
            ("pservers", i64::from(self.pservers), PSERVERS),
            ("passes", i64::from(self.passes), PASSES),
            ("retries", i64::from(self.retries), RETRIES),
            ("gpu", i64::from(self.trainer.gpu), GPU),
            ("psports", i64::from(self.ps_ports), PS_PORTS),
            ("priority", i64::from(self.priority), PRIORITY),
        ] {
            whole::<i64>(field, value, &allowed)?;
        }
        enough_memory("memory", self.trainer.memory)?;
        enough_memory("psmemory", self.pserver.memory)?;
        if let Some(name) = self.gpu_type.as_ref().filter(|_| self.trainer.gpu == 0) {
            let problem = format!("names GPUs of type `{name}`, and the trainers have none");
            return Err(SpecError::predicate("gpu_type", problem).with_hint("ask for some with `-gpu`"));
        }
        check_labels(&self.node_labels).map_err(|problem| SpecError::remark("node_labels", problem))?;
        if let Some(disk) = self.disk.filter(|disk| *disk < LEAST_DISK) {
            let problem = format!(
                "must be at least {}, not {}",
                LEAST_DISK.readable(),
                disk.readable()
            );
            return Err(SpecError::predicate("disk", problem));
        }
        not_blank("entry", &self.entry)?;
        not_blank("psentry", &self.ps_entry)?;
        closed_quotes("entry", &self.entry)?;
        closed_quotes("psentry", &self.ps_entry)?;
        if let Some(topology) = &self.topology {
            not_blank("topology", topology)?;
        }
        positive("start_limit", self.start_limit)?;
        if self.grace.is_negative() {
            return Err(SpecError::predicate("grace", "must not be negative"));
        }
        if let Some(limit) = self.max_runtime {
            positive("max_runtime", limit)?;
        }
        if let Some(comment) = &self.comment {
            one_line("comment", comment)?;
        }
        check_envs("envs", &self.envs)?;
        check_envs("shell_env", &self.shell_env)?;
        if self.package.is_none() && self.image.is_none() {
            return Err(SpecError::sentence(
                "job_package",
                "a job needs a package or an image that contains one",
            )
            .with_hint("name the folder of your program, for example `paddlectl submit ./my_package`"));
        }
        Ok(self)
    }

    /// Trainers and parameter servers together.
    pub fn workers(&self) -> u32 {
        self.parallelism + self.pservers
    }

    /// The resources of all workers together.
    pub fn total(&self) -> Resources {
        let (trainers, servers) = (u64::from(self.parallelism), u64::from(self.pservers));
        Resources {
            cpu: Cpu::millis(
                self.trainer.cpu.as_millis() * trainers + self.pserver.cpu.as_millis() * servers,
            ),
            memory: Bytes::new(
                (self.trainer.memory.as_u64().saturating_mul(trainers))
                    .saturating_add(self.pserver.memory.as_u64().saturating_mul(servers)),
            ),
            gpu: self.trainer.gpu * self.parallelism + self.pserver.gpu * self.pservers,
        }
    }

    /// The command that starts a trainer: the topology if one is given, otherwise the entry.
    pub fn trainer_command(&self) -> String {
        match &self.topology {
            Some(config) => format!("paddle train --config={}", shell_quote(config)),
            None => self.entry.clone(),
        }
    }

    /// Whether its trainers run `paddle train`.
    pub fn runs_paddle_train(&self) -> bool {
        let command = self.trainer_command();
        command == DEFAULT_ENTRY || command.starts_with("paddle train ")
    }

    /// `v1` for a configuration, by `paddle train` or by Python, and `v2` for a program of the user's own.
    pub fn version(&self) -> &'static str {
        if self.runs_paddle_train() || runs_configuration(&self.entry) {
            "v1"
        } else {
            "v2"
        }
    }
}

/// Whether Python runs a file with the usual name of a v1 configuration: `trainer_config.py`, `trainer_config.lstm.py`.
fn runs_configuration(entry: &str) -> bool {
    let mut words = plain_words(entry).unwrap_or_default().into_iter();
    let is_python = words
        .next()
        .is_some_and(|word| file_name(word).starts_with("python"));
    let script = words.find(|word| !word.starts_with('-')).map(file_name);
    is_python && script.is_some_and(|name| name.starts_with("trainer_config") && name.ends_with(".py"))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Quotes a word for `sh` only if necessary.
pub fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn positive(field: &'static str, value: SignedDuration) -> Result<(), SpecError> {
    if value.is_positive() {
        return Ok(());
    }
    Err(SpecError::predicate(
        field,
        "must be greater than zero, for example `10m`",
    ))
}

/// Refuses a command with an open quote: the shell would reject it in every worker.
fn closed_quotes(field: &'static str, command: &str) -> Result<(), SpecError> {
    match open_quote(command) {
        None => Ok(()),
        Some(quote) => Err(SpecError::predicate(
            field,
            format!("has a {quote} that is never closed: `{}`", command.escape_debug()),
        )
        .with_hint("close it, or write `\\` before one that is meant literally")),
    }
}

/// The quote that is still open at the end, by the rules of `sh`. Nested commands, here documents and comments are not
/// analysed; such commands pass.
fn open_quote(command: &str) -> Option<char> {
    if ["$(", "`", "<<", "#", "${"]
        .iter()
        .any(|deep| command.contains(deep))
    {
        return None;
    }
    let mut open = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (letter, open) {
            ('\\', None | Some('"')) => drop(letters.next()),
            ('\'' | '"', None) => open = Some(letter),
            (letter, Some(quote)) if letter == quote => open = None,
            _ => {}
        }
    }
    open
}

fn not_blank(field: &'static str, text: &str) -> Result<(), SpecError> {
    if text.trim().is_empty() {
        return Err(SpecError::predicate(field, "must not be empty"));
    }
    word(text, |problem| SpecError::predicate(field, problem))
}

/// Checks a text that tables and terminals show.
fn one_line(field: &'static str, text: &str) -> Result<(), SpecError> {
    let problem = match text.chars().count() {
        _ if text.chars().any(char::is_control) => "must be one line without control characters".to_owned(),
        0..=MAX_COMMENT => return Ok(()),
        long => format!("has {long} characters; the limit is {MAX_COMMENT}"),
    };
    Err(SpecError::predicate(field, problem))
}

/// Checks a text that is passed to a program: it must not contain NUL, and its length is limited.
fn word(text: &str, refused: impl Fn(String) -> SpecError) -> Result<(), SpecError> {
    if text.contains('\0') {
        return Err(refused("must not contain a NUL byte".to_owned()));
    }
    match text.len() {
        0..=MAX_WORD => Ok(()),
        bytes => Err(too_long(refused(format!(
            "has {bytes} bytes; the limit is {MAX_WORD}"
        )))),
    }
}

fn too_long(error: SpecError) -> SpecError {
    error.with_hint("put long values into a file of the package")
}

/// Refuses too little memory: a number without a unit is a number of bytes, usually by mistake.
fn enough_memory(field: &'static str, memory: Bytes) -> Result<(), SpecError> {
    if memory >= LEAST_MEMORY {
        return Ok(());
    }
    let bytes = counted(u128::from(memory.as_u64()), "byte");
    let problem = format!(
        "a worker cannot start with {bytes}; the minimum is {}",
        LEAST_MEMORY.readable()
    );
    Err(SpecError::remark(field, problem)
        .with_hint("a number without a unit is bytes: write for example `512Mi` or `1Gi`"))
}

/// Checks labels by the rules of Kubernetes, which hold on one machine too. Returns the problem.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), String> {
    if labels.len() > MAX_LABELS {
        return Err(format!("{} labels are more than {MAX_LABELS}", labels.len()));
    }
    let wrong = |what: &str, word: &str| {
        let shown: String = word.chars().take(MAX_LABEL).collect();
        Err(format!(
            "`{}` cannot be the {what} of a node's label",
            shown.escape_debug()
        ))
    };
    for (key, value) in labels {
        if !is_label_key(key) {
            return wrong("name", key);
        }
        if !value.is_empty() && !is_label_word(value) {
            return wrong("value", value);
        }
    }
    Ok(())
}

/// `pool`, or `example.com/pool`.
pub fn is_label_key(key: &str) -> bool {
    let is_domain = |prefix: &str| {
        let parts = prefix.split('.').all(|part| !part.is_empty());
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        parts && prefix.len() <= 253 && prefix.chars().all(allowed)
    };
    match key.split_once('/') {
        None => is_label_word(key),
        Some((prefix, name)) => is_domain(prefix) && is_label_word(name),
    }
}

/// Letters, digits, `-`, `_` and `.`, at most 63, with a letter or digit at both ends.
fn is_label_word(word: &str) -> bool {
    let is_end = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    word.len() <= MAX_LABEL
        && word.chars().all(allowed)
        && is_end(word.chars().next())
        && is_end(word.chars().last())
}

fn check_envs(field: &'static str, envs: &BTreeMap<String, String>) -> Result<(), SpecError> {
    for (name, value) in envs {
        let head = name
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !head || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(SpecError::remark(
                field,
                format!(
                    "`{}` is not the name of an environment variable",
                    name.escape_debug()
                ),
            ));
        }
        word(value, |problem| {
            SpecError::remark(field, format!("`{name}` {problem}"))
        })?;
    }
    let all: usize = envs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if all > MAX_ENVS {
        let problem = format!("the environment variables have {all} bytes together; the limit is {MAX_ENVS}");
        return Err(too_long(SpecError::remark(field, problem)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
