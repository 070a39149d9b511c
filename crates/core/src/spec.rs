//! What a user asks for. A `JobSpec` that exists is valid: sizes are in range, names parsed.
//!
//! Where it runs, as whom and when is decided elsewhere.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::names::JobName;
use crate::quantity::{Bytes, Cpu};

/// Most trainers, or most parameter servers, of one job.
pub const MAX_WORKERS: u32 = 10_000;
/// Most passes over the data.
pub const MAX_PASSES: u32 = 1_000_000;
/// Priorities lie between minus and plus this.
pub const MAX_PRIORITY: i32 = 1000;
/// Most bytes of a command, or of one environment variable: the system starts no program with a longer word
/// than 128 KiB.
pub const MAX_WORD: usize = 64 << 10;
/// Most bytes of all environment variables of a job together.
pub const MAX_ENVS: usize = 512 << 10;
/// Less than this does not even hold a shell.
const LEAST_MEMORY: Bytes = Bytes::mib(1);
/// The command of a trainer when none is given (S4).
pub const DEFAULT_ENTRY: &str = "paddle train";
/// The command of a parameter server when none is given.
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

/// A whole job as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: JobName,
    /// `/pfs/…` where the program lies; `None` runs in the image's own folder.
    pub package: Option<String>,
    /// The stored upload this run was submitted with; `None`: the package is used in place.
    #[serde(default)]
    pub snapshot: Option<String>,
    pub parallelism: u32,
    pub trainer: Resources,
    pub pservers: u32,
    pub pserver: Resources,
    pub entry: String,
    pub ps_entry: String,
    /// How many ports from the first on a parameter server must listen on before trainers start.
    pub ps_ports: u16,
    /// A v1 configuration file; then the trainer is `paddle train --config=FILE`.
    pub topology: Option<String>,
    pub passes: u32,
    pub image: Option<String>,
    pub registry: Option<String>,
    pub envs: BTreeMap<String, String>,
    pub priority: i32,
    /// Restarts each worker may have.
    pub retries: u32,
    pub max_runtime: Option<SignedDuration>,
    pub start_limit: SignedDuration,
    pub grace: SignedDuration,
    /// What the submitter's shell had that programs rely on (`PATH`, virtual environment, locale); one machine only.
    pub shell_env: BTreeMap<String, String>,
}

/// One thing that is wrong with what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct SpecError {
    /// The field as the REST interface calls it; command lines name the flag the same.
    pub field: &'static str,
    pub problem: String,
    pub hint: Option<String>,
}

impl SpecError {
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        SpecError {
            field,
            problem: problem.into(),
            hint: None,
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl JobSpec {
    /// A job with every default of the documents: one trainer, one parameter server.
    pub fn new(name: JobName) -> JobSpec {
        JobSpec {
            name,
            package: None,
            snapshot: None,
            parallelism: 1,
            trainer: Resources::default(),
            pservers: 1,
            pserver: Resources::default(),
            entry: DEFAULT_ENTRY.to_owned(),
            ps_entry: DEFAULT_PS_ENTRY.to_owned(),
            ps_ports: 2,
            topology: None,
            passes: 1,
            image: None,
            registry: None,
            envs: BTreeMap::new(),
            priority: 0,
            retries: 0,
            max_runtime: None,
            start_limit: SignedDuration::from_mins(10),
            grace: SignedDuration::from_secs(30),
            shell_env: BTreeMap::new(),
        }
    }

    /// Checks every field that has a range. Callers build a spec, then call this once.
    pub fn check(self) -> Result<JobSpec, SpecError> {
        range("parallelism", self.parallelism, 1, MAX_WORKERS)?;
        range("pservers", self.pservers, 0, MAX_WORKERS)?;
        range("passes", self.passes, 1, MAX_PASSES)?;
        range("retries", self.retries, 0, 1000)?;
        range("gpu", self.trainer.gpu, 0, 1024)?;
        range("ps_ports", u32::from(self.ps_ports), 1, 64)?;
        if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&self.priority) {
            return Err(SpecError::new(
                "priority",
                format!(
                    "priority lies between -{MAX_PRIORITY} and {MAX_PRIORITY}, not {}",
                    self.priority
                ),
            ));
        }
        enough_memory("memory", self.trainer.memory)?;
        enough_memory("psmemory", self.pserver.memory)?;
        not_blank("entry", &self.entry)?;
        not_blank("psentry", &self.ps_entry)?;
        closed_quotes("entry", &self.entry)?;
        closed_quotes("psentry", &self.ps_entry)?;
        if let Some(topology) = &self.topology {
            not_blank("topology", topology)?;
        }
        positive("start_limit", self.start_limit)?;
        if self.grace.is_negative() {
            return Err(SpecError::new("grace", "the grace period must not be negative"));
        }
        if let Some(limit) = self.max_runtime {
            positive("max_runtime", limit)?;
        }
        check_envs("envs", &self.envs)?;
        check_envs("shell_env", &self.shell_env)?;
        if self.package.is_none() && self.image.is_none() {
            return Err(SpecError::new(
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

    /// What all workers together take.
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

    /// What starts a trainer: the topology when one is given (S4), else the entry.
    pub fn trainer_command(&self) -> String {
        match &self.topology {
            Some(config) => format!("paddle train --config={}", shell_quote(config)),
            None => self.entry.clone(),
        }
    }

    /// Whether its trainers are `paddle train`.
    pub fn runs_paddle_train(&self) -> bool {
        let command = self.trainer_command();
        command == DEFAULT_ENTRY || command.starts_with("paddle train ")
    }

    /// `v1` for a configuration file or the bare `paddle train`, `v2` for a program of the user's own.
    pub fn version(&self) -> &'static str {
        if self.runs_paddle_train() { "v1" } else { "v2" }
    }
}

/// Quotes a word for `sh` only where it needs it.
pub fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn range(field: &'static str, value: u32, least: u32, most: u32) -> Result<(), SpecError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(
        field,
        format!("`{field}` must be between {least} and {most}, not {value}"),
    ))
}

fn positive(field: &'static str, value: SignedDuration) -> Result<(), SpecError> {
    if value.is_positive() {
        return Ok(());
    }
    Err(SpecError::new(
        field,
        format!("`{field}` must be longer than nothing, for example `10m`"),
    ))
}

/// A shell would refuse the command, in every worker; that is better said before any of them starts.
fn closed_quotes(field: &'static str, command: &str) -> Result<(), SpecError> {
    match open_quote(command) {
        None => Ok(()),
        Some(quote) => Err(SpecError::new(
            field,
            format!(
                "`{field}` has a {quote} that is never closed: `{}`",
                command.escape_debug()
            ),
        )
        .with_hint("put another one where the text ends, or `\\` before one that is meant as it stands")),
    }
}

/// The quote that is still open at the end, by the rules of `sh`. Where these go deeper (commands inside commands, texts
/// of several lines, remarks) nothing is claimed.
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
        return Err(SpecError::new(field, format!("`{field}` must not be empty")));
    }
    word(field, field, text)
}

/// Something that is handed to a program: the system takes no NUL in it, and no more than so much.
fn word(field: &'static str, name: &str, text: &str) -> Result<(), SpecError> {
    if text.contains('\0') {
        return Err(SpecError::new(
            field,
            format!("`{name}` must not contain a NUL byte"),
        ));
    }
    if text.len() > MAX_WORD {
        return Err(SpecError::new(
            field,
            format!("`{name}` has {} bytes; {MAX_WORD} are the most", text.len()),
        )
        .with_hint("put what is long into a file of the package"));
    }
    Ok(())
}

/// A number whose unit was forgotten would be bytes.
fn enough_memory(field: &'static str, memory: Bytes) -> Result<(), SpecError> {
    if memory >= LEAST_MEMORY {
        return Ok(());
    }
    let bytes = match memory.as_u64() {
        1 => "1 byte".to_owned(),
        count => format!("{count} bytes"),
    };
    let problem = format!("`{field}`: no worker can start in {bytes}; {LEAST_MEMORY} are the least");
    Err(SpecError::new(field, problem)
        .with_hint("a number without a unit is bytes: write for example `512Mi` or `1Gi`"))
}

fn check_envs(field: &'static str, envs: &BTreeMap<String, String>) -> Result<(), SpecError> {
    for (name, value) in envs {
        let head = name
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !head || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(SpecError::new(
                field,
                format!(
                    "`{}` is not the name of an environment variable",
                    name.escape_default()
                ),
            ));
        }
        word(field, name, value)?;
    }
    let all: usize = envs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if all > MAX_ENVS {
        return Err(SpecError::new(
            field,
            format!("the environment variables have {all} bytes together; {MAX_ENVS} are the most"),
        )
        .with_hint("put what is long into a file of the package"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JobSpec {
        let mut spec = JobSpec::new("job".parse().unwrap());
        spec.package = Some("/pfs/local/home/me/p".into());
        spec
    }

    #[test]
    fn the_defaults_pass_the_check() {
        assert!(spec().check().is_ok());
    }

    #[test]
    fn a_command_with_an_open_quote_is_refused_and_nothing_that_a_shell_takes() {
        for open in ["sh -c 'x", "python \"a b", "echo \\\\'", "echo \"it's"] {
            let mut spec = spec();
            spec.entry = open.into();
            assert_eq!(spec.check().unwrap_err().field, "entry", "{open}");
        }
        for closed in [
            "sh -c 'x'",
            "echo it\\'s",
            "echo \"it's\"",
            "echo '\"'",
            "echo \"\\\"\"",
            "echo \"$(echo '\"')\"",
            "true # don't",
        ] {
            let mut spec = spec();
            spec.entry = closed.into();
            assert!(spec.check().is_ok(), "{closed}");
        }
    }

    #[test]
    fn memory_without_its_unit_is_noticed() {
        let mut small = spec();
        small.trainer.memory = Bytes::new(1);
        let error = small.check().unwrap_err();
        assert_eq!(
            (error.field, error.problem.as_str()),
            (
                "memory",
                "`memory`: no worker can start in 1 byte; 1Mi are the least"
            )
        );
        assert!(error.hint.unwrap().contains("`1Gi`"));
    }

    #[test]
    fn every_number_out_of_range_is_named() {
        let field = |change: fn(&mut JobSpec)| {
            let mut spec = spec();
            change(&mut spec);
            spec.check().expect_err("must be refused").field
        };
        assert_eq!(field(|s| s.parallelism = 0), "parallelism");
        assert_eq!(field(|s| s.parallelism = 1_000_000), "parallelism");
        assert_eq!(field(|s| s.pservers = MAX_WORKERS + 1), "pservers");
        assert_eq!(field(|s| s.passes = 0), "passes");
        assert_eq!(field(|s| s.priority = 1001), "priority");
        assert_eq!(field(|s| s.priority = i32::MIN), "priority");
        assert_eq!(field(|s| s.entry = "  ".into()), "entry");
        assert_eq!(field(|s| s.start_limit = SignedDuration::ZERO), "start_limit");
        assert_eq!(field(|s| s.grace = SignedDuration::from_secs(-1)), "grace");
        assert_eq!(
            field(|s| drop(s.envs.insert("A B".into(), String::new()))),
            "envs"
        );
        assert_eq!(field(|s| s.package = None), "job_package");
    }

    #[test]
    fn what_no_program_can_be_started_with_is_refused() {
        let refused = |change: fn(&mut JobSpec)| {
            let mut spec = spec();
            change(&mut spec);
            let error = spec.check().expect_err("must be refused");
            (error.field, error.to_string())
        };
        let (field, told) = refused(|s| s.entry = "x".repeat(MAX_WORD + 1));
        assert!(field == "entry" && told.contains("65537 bytes"), "{told}");
        let (field, told) = refused(|s| s.topology = Some("a\0b".into()));
        assert!(field == "topology" && told.contains("NUL"), "{told}");
        let (field, told) = refused(|s| drop(s.envs.insert("A".into(), "x".repeat(MAX_WORD + 1))));
        assert!(field == "envs" && told.contains("`A` has"), "{told}");
        let (field, told) = refused(|s| {
            for number in 0..9 {
                s.envs.insert(format!("A{number}"), "x".repeat(MAX_WORD));
            }
        });
        assert!(field == "envs" && told.contains("together"), "{told}");
    }

    #[test]
    fn a_topology_beats_the_entry() {
        let mut spec = spec();
        spec.topology = Some("modules/my topo.py".into());
        assert_eq!(
            spec.trainer_command(),
            "paddle train --config='modules/my topo.py'"
        );
        assert_eq!(spec.version(), "v1");
    }
}
