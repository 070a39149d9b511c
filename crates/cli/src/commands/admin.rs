//! `admin user|group|cert|usage|audit`: what administrators do with accounts.

mod cert;
mod user;

use std::collections::BTreeMap;

use paddlecloud_api::admin::{AuditView, GroupRequest};
use paddlecloud_core::quantity::{Bytes, Cpu, counted};

use super::{Context, done};
use crate::error::{CliError, FAILED};
use crate::printer::{Format, Table};
use crate::session::Session;

/// Manage accounts, groups and the audit log (administrators)
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    area: Area,
}

#[derive(Debug, clap::Subcommand)]
enum Area {
    /// Add, list, change, disable and delete users
    User {
        #[command(subcommand)]
        action: user::Action,
    },
    /// List, set and delete groups: limits of each member, and of all members together
    Group {
        #[command(subcommand)]
        action: GroupAction,
    },
    /// Sign, list and revoke users' certificates
    Cert {
        #[command(subcommand)]
        action: cert::Action,
    },
    /// Show core-, GiB- and GPU-hours of all users
    Usage {
        /// Only use after this time: `2026-11-01T00:00:00Z`
        #[arg(long, value_name = "TIME")]
        since: Option<String>,

        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
    /// Reload the key of users' secrets and encrypt all secrets with it
    RotateSecrets,
    /// Show who changed what, latest first
    Audit {
        /// Check that no row is missing or altered
        #[arg(long)]
        verify: bool,

        /// At most this many rows
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,

        /// Only rows with smaller numbers
        #[arg(long, value_name = "NUMBER", conflicts_with = "verify")]
        before: Option<i64>,

        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
}

#[derive(Debug, clap::Subcommand)]
enum GroupAction {
    /// List groups, their limits and members
    List {
        /// Output format
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
        output: Option<Format>,
    },
    /// Create a group, or change its limits
    Set {
        /// The name of the group
        name: String,

        /// Limits of each member who has none of their own: `cpu=16,memory=64Gi`; `none` removes one
        #[arg(long, value_name = "LIMITS", value_parser = limit, value_delimiter = ',')]
        quota: Vec<(String, String)>,

        /// Limits of all members together: cpu, memory, gpu, parallelism, running_jobs
        #[arg(long, value_name = "LIMITS", value_parser = limit, value_delimiter = ',')]
        total: Vec<(String, String)>,
    },
    /// Delete a group; its members remain users
    Delete {
        /// The name of the group
        name: String,
    },
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    match &args.area {
        Area::User { action } => user::run(action, &session, context).await,
        Area::Cert { action } => cert::run(action, &session, context).await,
        Area::Group { action } => group(action, &session, context).await,
        Area::Usage { since, output } => {
            let rows = session.client.usage_list(since.as_deref()).await?;
            if !context.world.out.structured(*output, &rows)? {
                let mut table = Table::new(&["USER", "JOBS", "CORE-HOURS", "GIB-HOURS", "GPU-HOURS"]);
                for row in rows {
                    table.push(vec![
                        row.user,
                        row.jobs.to_string(),
                        format!("{:.3}", row.core_hours),
                        format!("{:.3}", row.gib_hours),
                        format!("{:.3}", row.card_hours),
                    ]);
                }
                context.world.out.table(&table)?;
            }
            done()
        }
        Area::RotateSecrets => {
            let count = session.client.secrets_rotate().await?;
            context.world.err.line(format!(
                "{} encrypted with the new key",
                counted(count as u128, "secret")
            ));
            done()
        }
        Area::Audit {
            verify: true, output, ..
        } => verify(*output, &session, context).await,
        Area::Audit {
            limit,
            before,
            output,
            ..
        } => {
            let rows = session.client.audit_list(*before, *limit).await?;
            show_audit(&rows, *output, context)?;
            done()
        }
    }
}

/// `cpu=16`.
fn limit(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            check_limit(&name, &value).map(|()| (name, value))
        }
        _ => Err(format!(
            "`{text}` is not a limit: write `cpu=16`, or `cpu=none` to remove the limit"
        )),
    }
}

/// Limits that are quantities.
const MEASURED: [&str; 5] = ["cpu", "memory", "storage", "guaranteed_cpu", "guaranteed_memory"];
/// Limits that are whole numbers.
const COUNTED: [&str; 8] = [
    "gpu",
    "parallelism",
    "running_jobs",
    "queued_jobs",
    "files",
    "priority",
    "weight",
    "guaranteed_gpu",
];

/// Finds a mistake before a password is asked for. The server checks the limit again.
fn check_limit(name: &str, value: &str) -> Result<(), String> {
    if value == "none" {
        return Ok(());
    }
    let problem = match name {
        "cpu" | "guaranteed_cpu" => value.parse::<Cpu>().err().map(|error| error.to_string()),
        "memory" | "storage" | "guaranteed_memory" => {
            value.parse::<Bytes>().err().map(|error| error.to_string())
        }
        name if COUNTED.contains(&name) => value.parse::<i64>().err().map(|error| error.to_string()),
        name => {
            let known = [&MEASURED[..], &COUNTED].concat().join(", ");
            return Err(format!("`{name}` is not a limit: use {known}"));
        }
    };
    match problem {
        Some(problem) => Err(format!("`{name}`: `{value}` is not a value: {problem}")),
        None => Ok(()),
    }
}

fn limits(list: &[(String, String)]) -> BTreeMap<String, String> {
    list.iter().cloned().collect()
}

fn limit_text(limits: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = limits
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.join(",")
}

async fn group(action: &GroupAction, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    match action {
        GroupAction::List { output } => {
            let groups = session.client.group_list().await?;
            let out = &mut context.world.out;
            if *output == Some(Format::Name) {
                groups.iter().try_for_each(|group| out.line(&group.name))?;
            } else if !out.structured(*output, &groups)? {
                let mut table = Table::new(&["NAME", "EACH MEMBER", "TOTAL", "MEMBERS"]);
                for group in groups {
                    table.push(vec![
                        group.name,
                        limit_text(&group.limits),
                        limit_text(&group.total),
                        group.members.join(","),
                    ]);
                }
                out.table(&table)?;
            }
        }
        GroupAction::Set { name, quota, total } => {
            let request = GroupRequest {
                limits: limits(quota),
                total: limits(total),
            };
            let group = session.client.group_set(name, &request).await?;
            let some = |limits: &BTreeMap<_, _>| match limits.is_empty() {
                true => "no limits".to_owned(),
                false => limit_text(limits),
            };
            let line = format!(
                "group `{}`: each member {}; all together {}",
                group.name,
                some(&group.limits),
                some(&group.total)
            );
            context.world.err.line(line);
        }
        GroupAction::Delete { name } => {
            session.client.group_delete(name).await?;
            context.world.err.line(format!("group `{name}` has been deleted"));
        }
    }
    done()
}

async fn verify(
    format: Option<Format>,
    session: &Session,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let check = session.client.audit_verify().await?;
    if !context.world.out.structured(format, &check)? {
        let line = match (&check.problem, &check.digest) {
            (Some(problem), _) => format!("broken at row {}: {problem}", check.rows),
            (None, digest) => format!("intact: {} rows, {}", check.rows, digest.as_deref().unwrap_or("")),
        };
        context.world.out.line(line.trim_end_matches([',', ' ']))?;
    }
    match check.sound {
        true => done(),
        false => Ok(FAILED),
    }
}

fn show_audit(rows: &[AuditView], format: Option<Format>, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.structured(format, &rows)? {
        return Ok(());
    }
    let mut table = Table::new(&["SEQ", "TIME", "ACTOR", "ACTION", "SUBJECT", "REQUEST", "DETAIL"]);
    for row in rows {
        table.push(vec![
            row.seq.to_string(),
            row.time.clone(),
            row.actor.clone(),
            row.action.clone(),
            row.subject.clone(),
            row.request.clone(),
            row.detail.clone(),
        ]);
    }
    out.table(&table)
}
