//! From the flags of `submit` to the request: every value is checked here first, before anything is sent.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use paddlecloud_api::jobs::{Amount, JobRequest};
use paddlecloud_core::duration;
use paddlecloud_core::names::JobName;
use paddlecloud_core::spec::{JobSpec, SpecError, shell_quote};

use crate::commands::submit::Args;
use crate::error::CliError;

/// Where the program lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder here, which is uploaded.
    Local(std::path::PathBuf),
    /// `/pfs/…`, used in place.
    Cluster(String),
    /// The image's own folder.
    Image,
}

/// A submit that makes sense: the source and the request without its package.
pub struct Submission {
    pub source: Source,
    pub request: JobRequest,
    /// The same as the server will see it, for the plan that is shown.
    pub spec: JobSpec,
}

/// Reads the flags into a submission.
pub fn of_args(args: &Args) -> Result<Submission, CliError> {
    not_empty("topology", "a file of the package", args.topology.as_deref())?;
    not_empty("image", "an image", args.image.as_deref())?;
    not_empty("registry", "a registry", args.registry.as_deref())?;
    let source = source(args);
    let name = args.jobname.as_deref().map(job_name).transpose()?;
    let request = JobRequest {
        name: name.as_ref().map(ToString::to_string),
        job_package: match &source {
            Source::Cluster(path) => Some(path.clone()),
            Source::Local(_) | Source::Image => None,
        },
        parallelism: args.parallelism,
        cpu: args.cpu.map(|cpu| Amount::Text(cpu.to_string())),
        gpu: args.gpu,
        memory: args.memory.map(|memory| Amount::Text(memory.to_string())),
        pservers: args.pservers,
        pscpu: args.pscpu.map(|cpu| Amount::Text(cpu.to_string())),
        psmemory: args.psmemory.map(|memory| Amount::Text(memory.to_string())),
        topology: args.topology.clone(),
        entry: entry(args),
        psentry: args.psentry.clone(),
        psports: args.psports,
        passes: args.passes,
        image: args.image.clone(),
        registry: args.registry.clone(),
        envs: envs(&args.env)?,
        priority: args.priority,
        retries: args.retries,
        max_runtime: args.max_runtime.clone().map(Amount::Text),
        start_limit: args.start_limit.clone().map(Amount::Text),
        grace: args.grace.clone().map(Amount::Text),
        dry_run: args.dry_run,
        ..JobRequest::default()
    };
    let spec = spec(args, name, &source, &request)?;
    Ok(Submission {
        source,
        request,
        spec,
    })
}

/// A flag without a value is more often a script's mistake than a wish.
fn not_empty(flag: &str, what: &str, value: Option<&str>) -> Result<(), CliError> {
    match value {
        Some(value) if value.trim().is_empty() => Err(CliError::usage(format!(
            "`-{flag}` must name {what}, or be left out"
        ))),
        _ => Ok(()),
    }
}

fn source(args: &Args) -> Source {
    match &args.package {
        Some(path) if path.to_str().is_some_and(is_cluster_path) => {
            Source::Cluster(path.display().to_string())
        }
        Some(path) => Source::Local(path.clone()),
        None if args.command.is_empty() || args.image.is_some() => Source::Image,
        // `submit -- python train.py` means the program right here.
        None => Source::Local(".".into()),
    }
}

/// `/pfs/…` is the cluster's, unless this machine really has such a folder mounted and it is meant with `./`.
fn is_cluster_path(path: &str) -> bool {
    path.starts_with("/pfs/")
}

/// A name as it was typed, or what is wrong with it.
pub fn job_name(text: &str) -> Result<JobName, CliError> {
    text.parse::<JobName>().map_err(|error| {
        let shown: String = text.chars().take(80).collect();
        let shown = if shown.len() < text.len() {
            format!("{shown}…")
        } else {
            shown
        };
        let refused = CliError::usage(format!("cannot submit `{}`: {error}", shown.escape_debug()));
        match error.suggestion() {
            Some(near) => refused.with_hint(format!("try `{near}`")),
            None => refused,
        }
    })
}

/// What follows `--` is the entry, word by word; else `-entry` as it stands.
fn entry(args: &Args) -> Option<String> {
    if args.command.is_empty() {
        return args.entry.clone();
    }
    let words: Vec<String> = args.command.iter().map(|word| shell_quote(word)).collect();
    Some(words.join(" "))
}

fn envs(pairs: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut envs = BTreeMap::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            CliError::usage(format!("`{}` is not of the form NAME=VALUE", pair.escape_debug()))
                .with_hint("for example `-env LEARNING_RATE=0.1`")
        })?;
        if name.is_empty() {
            let problem = format!("`{}` has no name before the `=`", pair.escape_debug());
            return Err(CliError::usage(problem).with_hint("for example `-env LEARNING_RATE=0.1`"));
        }
        envs.insert(name.to_owned(), value.to_owned());
    }
    Ok(envs)
}

/// The whole job with its defaults, checked by the rules the server uses.
fn spec(
    args: &Args,
    name: Option<JobName>,
    source: &Source,
    request: &JobRequest,
) -> Result<JobSpec, CliError> {
    let named = name.unwrap_or_else(|| JobName::nearest(&folder_name(source)));
    let mut spec = JobSpec::new(named);
    spec.package = match source {
        Source::Local(path) => Some(path.display().to_string()),
        Source::Cluster(path) => Some(path.clone()),
        Source::Image => None,
    };
    spec.image = args.image.clone();
    spec.parallelism = whole("parallelism", args.parallelism, spec.parallelism)?;
    spec.pservers = whole("pservers", args.pservers, spec.parallelism)?;
    spec.passes = whole("passes", args.passes, spec.passes)?;
    spec.retries = whole("retries", args.retries, spec.retries)?;
    spec.trainer.gpu = whole("gpu", args.gpu, 0)?;
    spec.ps_ports = whole("psports", args.psports, 1)?;
    spec.trainer.cpu = args.cpu.unwrap_or(spec.trainer.cpu);
    spec.trainer.memory = args.memory.unwrap_or(spec.trainer.memory);
    spec.pserver.cpu = args.pscpu.unwrap_or(spec.pserver.cpu);
    spec.pserver.memory = args.psmemory.unwrap_or(spec.pserver.memory);
    spec.topology = args.topology.clone();
    spec.entry = request.entry.clone().unwrap_or(spec.entry);
    spec.ps_entry = request.psentry.clone().unwrap_or(spec.ps_entry);
    spec.envs = request.envs.clone();
    spec.priority = args
        .priority
        .map_or(Ok(0), |priority| fitting("priority", priority))?;
    spec.max_runtime = args
        .max_runtime
        .as_deref()
        .map(|text| span("max-runtime", text))
        .transpose()?;
    spec.start_limit = args
        .start_limit
        .as_deref()
        .map_or(Ok(spec.start_limit), |text| span("start-limit", text))?;
    spec.grace = args
        .grace
        .as_deref()
        .map_or(Ok(spec.grace), |text| span("grace", text))?;
    spec.check().map_err(spec_error)
}

fn folder_name(source: &Source) -> String {
    let path = match source {
        Source::Local(path) => path.canonicalize().unwrap_or_else(|_| path.clone()),
        Source::Cluster(path) => path.trim_end_matches('/').into(),
        Source::Image => "job".into(),
    };
    path.file_name()
        .map_or_else(|| "job".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The folder's name, when nothing of it can stand in a job's name.
pub fn unspeakable_folder(source: &Source) -> Option<String> {
    let name = folder_name(source);
    let has_own_letters = name.chars().any(|letter| letter.is_ascii_alphanumeric());
    (*source != Source::Image && !has_own_letters).then_some(name)
}

/// Reads a whole number; whether it makes sense is decided later, with the flag's name at hand.
pub fn whole_number(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|error: std::num::ParseIntError| match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                format!("`{text}` is too large")
            }
            _ => format!("`{text}` is not a whole number"),
        })
}

fn whole<T: TryFrom<i64>>(flag: &str, value: Option<i64>, default: T) -> Result<T, CliError> {
    let Some(value) = value else {
        return Ok(default);
    };
    if value < 0 {
        return Err(CliError::usage(format!(
            "`-{flag}` must not be negative, but it is {value}"
        )));
    }
    fitting(flag, value)
}

/// A number that is not even kept is told as it was typed; the rest is the rules' business.
fn fitting<T: TryFrom<i64>>(flag: &str, value: i64) -> Result<T, CliError> {
    let size = if value < 0 { "small" } else { "large" };
    T::try_from(value).map_err(|_| CliError::usage(format!("`-{flag}`: {value} is far too {size}")))
}

fn span(flag: &str, text: &str) -> Result<SignedDuration, CliError> {
    duration::parse(text).map_err(|problem| CliError::usage(format!("`-{flag}`: {problem}")))
}

/// The rules speak of the fields of a request; people typed flags.
fn spec_error(error: SpecError) -> CliError {
    let flag = match error.field {
        "ps_ports" => "`-psports`".to_owned(),
        "envs" => "`-env`".to_owned(),
        field => format!("`-{}`", field.replace('_', "-")),
    };
    let problem = error.problem.replace(&format!("`{}`", error.field), &flag);
    let usage = CliError::usage(problem);
    match error.hint {
        Some(hint) => usage.with_hint(hint),
        None => usage,
    }
}
