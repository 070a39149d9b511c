//! Turns the flags of `submit` into a request, which is checked before anything is sent.
//!
//! Defaults and rules are those of `JobRequest::to_spec`, as on the server; only the names of the flags are decided
//! here.

use std::collections::BTreeMap;

use paddlecloud_api::jobs::{JobRequest, parse_job_name};
use paddlecloud_core::names::JobName;
use paddlecloud_core::spec::{JobSpec, SpecError, shell_quote};

use crate::commands::submit::Args;
use crate::error::CliError;

/// Where the program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageSource {
    /// A local folder, which is uploaded.
    Local(std::path::PathBuf),
    /// `/pfs/…`, used in place.
    Cluster(String),
    /// The image's own folder.
    Image,
}

/// A valid submit: the source and the request without its package.
pub struct Submission {
    pub source: PackageSource,
    pub request: JobRequest,
    /// The same as the server will see it, for the plan that is shown.
    pub spec: JobSpec,
}

/// Turns the flags into a submission.
pub fn of_args(args: &Args) -> Result<Submission, CliError> {
    not_empty("topology", "a file of the package", args.topology.as_deref())?;
    not_empty("image", "an image", args.image.as_deref())?;
    not_empty("resume", "a run", args.resume.as_deref())?;
    not_empty("registry", "a registry", args.registry.as_deref())?;
    let source = source(args);
    let request = args.request(&source)?;
    let package = match &source {
        PackageSource::Cluster(path) => Some(path.clone()),
        PackageSource::Local(_) => Some(folder_name(&source)),
        PackageSource::Image => None,
    };
    let spec = request.to_spec(package).map_err(|error| refused(&error))?;
    Ok(Submission {
        source,
        request,
        spec,
    })
}

/// A flag with an empty value is more often a mistake of a script than intended.
fn not_empty(flag: &str, what: &str, value: Option<&str>) -> Result<(), CliError> {
    match value {
        Some(value) if value.trim().is_empty() => Err(CliError::usage(format!(
            "`-{flag}` must name {what}, or be left out"
        ))),
        _ => Ok(()),
    }
}

fn source(args: &Args) -> PackageSource {
    match &args.package {
        Some(path) if path.to_str().is_some_and(is_cluster_path) => {
            PackageSource::Cluster(path.display().to_string())
        }
        Some(path) => PackageSource::Local(path.clone()),
        None if args.command.is_empty() || args.image.is_some() => PackageSource::Image,
        // `submit -- python train.py` means the program in the current folder.
        None => PackageSource::Local(".".into()),
    }
}

/// `/pfs/…` is on the cluster, unless this machine has such a folder mounted and it is written with `./`.
fn is_cluster_path(path: &str) -> bool {
    path.starts_with("/pfs/")
}

/// A job's name as typed.
pub fn job_name(text: &str) -> Result<JobName, CliError> {
    parse_job_name(text).map_err(|error| refused(&error))
}

/// The words after `--` are the entry; otherwise `-entry` unchanged.
pub fn entry(args: &Args) -> Option<String> {
    if args.command.is_empty() {
        return args.entry.clone();
    }
    let words: Vec<String> = args.command.iter().map(|word| shell_quote(word)).collect();
    Some(words.join(" "))
}

pub fn envs(given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    pairs(given, "for example `-env LEARNING_RATE=0.1`")
}

pub fn node_labels(given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let example = "for example `-node-label pool=train`";
    let labels = pairs(given, example)?;
    match labels.len() < given.len() {
        true => {
            Err(CliError::usage("`-node-label` names one label twice")
                .with_hint("a node has one value of each"))
        }
        false => Ok(labels),
    }
}

/// Texts of the form `NAME=VALUE`.
fn pairs(given: &[String], example: &str) -> Result<BTreeMap<String, String>, CliError> {
    let mut pairs = BTreeMap::new();
    for pair in given {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            CliError::usage(format!("`{}` is not of the form NAME=VALUE", pair.escape_debug()))
                .with_hint(example)
        })?;
        if name.is_empty() {
            let problem = format!("`{}` has no name before the `=`", pair.escape_debug());
            return Err(CliError::usage(problem).with_hint(example));
        }
        pairs.insert(name.to_owned(), value.to_owned());
    }
    Ok(pairs)
}

fn folder_name(source: &PackageSource) -> String {
    let path = match source {
        PackageSource::Local(path) => path.canonicalize().unwrap_or_else(|_| path.clone()),
        PackageSource::Cluster(path) => path.trim_end_matches('/').into(),
        PackageSource::Image => "job".into(),
    };
    path.file_name()
        .map_or_else(|| "job".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The folder's name, if no part of it can be in a job's name.
pub fn unspeakable_folder(source: &PackageSource) -> Option<String> {
    let name = folder_name(source);
    let has_own_letters = name.chars().any(|letter| letter.is_ascii_alphanumeric());
    (*source != PackageSource::Image && !has_own_letters).then_some(name)
}

/// Parses a whole number; its range is checked later, with the flag's name.
pub fn whole_number(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|error: std::num::ParseIntError| match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                format!("`{text}` is too large")
            }
            _ => format!("`{text}` is not a whole number"),
        })
}

/// The flag of a request's field; `None` if there is no flag for it.
fn flag_of(field: &str) -> Option<String> {
    match field {
        "name" => Some("-jobname".to_owned()),
        "envs" => Some("-env".to_owned()),
        "node_labels" => Some("-node-label".to_owned()),
        "secrets" => Some("-secret".to_owned()),
        "job_package" | "package_id" | "package_name" | "package_list" | "shell_env" | "datacenter" => None,
        field => Some(format!("-{}", field.replace('_', "-"))),
    }
}

fn refused(error: &SpecError) -> CliError {
    let flag = flag_of(error.field);
    let usage = CliError::usage(error.message(flag.as_deref().unwrap_or(error.field)));
    match &error.hint {
        Some(hint) => usage.with_hint(hint.clone()),
        None => usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::definition;

    /// The committed OpenAPI document, so that a new field without a flag is noticed here.
    fn fields_of_the_interface() -> Vec<String> {
        let document = include_str!("../../api/openapi.json");
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        let fields = &document["components"]["schemas"]["JobRequest"]["properties"];
        fields.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn every_field_of_a_request_is_known_by_its_flag() {
        let root = definition("paddlectl");
        let submit = root.find_subcommand("submit").unwrap();
        let fields = fields_of_the_interface();
        assert!(fields.len() > 20, "{fields:?}");
        for flag in fields.iter().filter_map(|field| flag_of(field)) {
            let long = flag.trim_start_matches('-');
            let found = submit.get_arguments().any(|arg| arg.get_long() == Some(long));
            assert!(found, "`submit` has no `{flag}`");
        }
    }
}
