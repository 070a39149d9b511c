//! `get jobs|workers|quota|registry`: lists.

use clap::ValueEnum;
use paddlecloud_api::client::JobFilter;
use paddlecloud_api::jobs::{JobView, QuotaRow};
use paddlecloud_core::quantity::Bytes;

use super::{Context, done, job_ref};
use crate::error::CliError;
use crate::job_table::{self, Columns, Glance};
use crate::printer::{Format, Table};
use crate::session::Session;

/// How many jobs one request returns.
const PAGE: u32 = 1000;

/// Print resources
///
/// `get jobs` lists pending and running jobs, `get jobs -a` the whole history, `get workers JOB` a job's workers,
/// `get quota` your limits and use. Administrators can list those of all users with `--all-users`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to list
    resource: Resource,

    /// The job whose workers to list; default: all running workers
    job: Option<String>,

    /// Include ended jobs
    #[arg(long, short)]
    all: bool,

    /// List those of all users (administrators only); recorded in the audit log
    #[arg(long)]
    all_users: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,

    /// Only workers of this role
    #[arg(long, value_name = "ROLE")]
    role: Option<WorkerRole>,

    /// At most this many jobs
    #[arg(long, value_name = "NUMBER", value_parser = job_count)]
    limit: Option<u32>,
}

fn job_count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("the number of jobs must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("`{text}` is not a number of jobs")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resource {
    #[value(alias = "job")]
    Jobs,
    #[value(alias = "worker")]
    Workers,
    #[value(alias = "quotas")]
    Quota,
    /// Image registries, without their passwords
    #[value(alias = "registries")]
    Registry,
}

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerRole {
    #[value(alias = "trainers")]
    Trainer,
    #[value(alias = "pservers")]
    Pserver,
}

impl WorkerRole {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerRole::Trainer => "trainer",
            WorkerRole::Pserver => "pserver",
        }
    }
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = args.job.as_deref().map(job_ref).transpose()?;
    if let (Some(job), false) = (&job, args.resource == Resource::Workers) {
        return Err(no_job_here(args.resource, job));
    }
    if (args.resource, args.output) == (Resource::Quota, Some(Format::Wide)) {
        return Err(CliError::usage("`get quota` has no wide format"));
    }
    if args.all_users && (args.resource == Resource::Registry || job.is_some()) {
        return Err(CliError::usage(
            "`--all-users` is for `get jobs`, `get workers` without a job, and `get quota`",
        )
        .with_hint("name another user's job as `USER/JOB` or by its id"));
    }
    let session = context.session().await?;
    match args.resource {
        Resource::Jobs => jobs(args, &session, context).await,
        Resource::Workers => workers(args, job.as_deref(), &session, context).await,
        Resource::Quota => quota(args, &session, context).await,
        Resource::Registry => registries(args, &session, context).await,
    }
}

/// Only workers are selected by job.
fn no_job_here(resource: Resource, job: &str) -> CliError {
    let what = match resource {
        Resource::Jobs => "jobs",
        Resource::Workers => "workers",
        Resource::Quota => "quota",
        Resource::Registry => "registry",
    };
    let error = CliError::usage(format!("`get {what}` takes no name, but got `{job}`"));
    match resource {
        Resource::Jobs => error.with_hint(format!("`describe {job}` shows one job")),
        _ => error,
    }
}

async fn jobs(args: &Args, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    let layout = Layout::of(args, context);
    let is_structured = matches!(args.output, Some(Format::Json | Format::Yaml));
    let mut filter = JobFilter {
        all: args.all,
        all_users: args.all_users,
        // Other layouts have no column for them.
        reasons: is_structured || matches!(layout, Layout::Columns(Columns::Wide)),
        ..JobFilter::default()
    };
    let mut left = args.limit.filter(|limit| *limit > 0).unwrap_or(u32::MAX);
    let mut number = 0;
    let mut gathered = Vec::new();
    let mut widths: Option<Vec<usize>> = None;
    while left > 0 {
        filter.limit = Some(left.min(PAGE));
        let page = session.client.jobs_list(&filter).await?;
        left -= u32::try_from(page.msg.len()).unwrap_or(left).min(left);
        filter.after = page.next;
        if is_structured {
            gathered.extend(page.msg);
        } else if args.output == Some(Format::Name) {
            page.msg
                .iter()
                .try_for_each(|job| context.world.out.line(&job.name))?;
        } else {
            let mut table = layout.table(&page.msg, number);
            // The wide table has this column already.
            if args.all_users && args.output != Some(Format::Wide) {
                table = table.with_first("USER", page.msg.iter().map(|job| job.user.clone()));
            }
            number += page.msg.len();
            // A history may be long: each page is printed as it arrives, with the column widths of the first.
            match &widths {
                None => {
                    widths = Some(context.world.out.widths(&table));
                    show(&table, &nothing_to_list(args, context.program), context)?;
                }
                Some(widths) => context.world.out.rows(&table, widths)?,
            }
        }
        if filter.after.is_none() {
            break;
        }
    }
    context.world.out.structured(args.output, &gathered)?;
    done()
}

/// How jobs are listed.
enum Layout {
    /// The columns of the documents and more, for programs.
    Columns(Columns),
    Terminal(Glance),
}

impl Layout {
    fn of(args: &Args, context: &Context<'_>) -> Layout {
        let wide = args.output == Some(Format::Wide);
        match context.world.out.terminal_columns() {
            Some(columns) => Layout::Terminal(Glance {
                all: args.all,
                wide,
                notes: wide || columns > job_table::USUAL_COLUMNS,
                now: (context.world.now)(),
            }),
            None if wide => Layout::Columns(Columns::Wide),
            None if args.all => Layout::Columns(Columns::History),
            None => Layout::Columns(Columns::Plain),
        }
    }

    /// The jobs under their header; `first` is the number of the first one.
    fn table(&self, jobs: &[JobView], first: usize) -> Table {
        let mut table = match self {
            Layout::Columns(columns) => Table::new(&job_table::jobs_head(*columns)),
            Layout::Terminal(glance) => glance.table(),
        };
        for (at, job) in jobs.iter().enumerate() {
            table.push(match self {
                Layout::Columns(columns) => job_table::job_row(first + at, job, *columns),
                Layout::Terminal(glance) => glance.row(job),
            });
        }
        table
    }
}

fn nothing_to_list(args: &Args, program: &str) -> String {
    match args.all {
        true => "there are no jobs yet".to_owned(),
        false => format!("no job is pending or running; `{program} get jobs -a` shows ended ones too"),
    }
}

/// Prints a table; for an empty one people get a note on stderr, and programs still get its header.
pub fn show(table: &Table, if_empty: &str, context: &mut Context<'_>) -> Result<(), CliError> {
    if table.is_empty() {
        context.world.err.note(if_empty);
    }
    if table.is_empty() && context.world.out.is_terminal {
        return Ok(());
    }
    context.world.out.table(table)
}

async fn workers(
    args: &Args,
    job: Option<&str>,
    session: &Session,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let mut workers = session.client.workers_list(job, args.all_users).await?;
    if let Some(role) = args.role {
        workers.retain(|worker| worker.role == role.as_str());
    }
    let out = &mut context.world.out;
    if !out.listed(args.output, &workers, |worker| worker.name.clone())? {
        let is_wide = args.output == Some(Format::Wide);
        let now = (context.world.now)();
        let mut table = match (out.is_terminal, is_wide) {
            (false, _) => job_table::workers(&workers, is_wide),
            (true, false) => job_table::workers_at_a_glance(&workers, now),
            (true, true) => job_table::workers_in_full(&workers, now),
        };
        if args.all_users {
            let users = workers
                .iter()
                .map(|worker| worker.user.clone().unwrap_or_default());
            table = table.with_first("USER", users);
        }
        show(&table, &no_workers(args.role, job), context)?;
    }
    done()
}

fn no_workers(role: Option<WorkerRole>, job: Option<&str>) -> String {
    let what = role.map_or("worker", WorkerRole::as_str);
    match job {
        Some(job) => format!("{job} has no {what}"),
        None => format!("no {what} is running"),
    }
}

async fn registries(args: &Args, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    let registries = session.client.registry_list().await?;
    let out = &mut context.world.out;
    if !out.listed(args.output, &registries, |registry| registry.name.clone())? {
        let mut table = Table::new(&["NAME", "SERVER", "USERNAME"]);
        for registry in registries {
            table.push(vec![registry.name, registry.server, registry.username]);
        }
        show(&table, "no registry is stored", context)?;
    }
    done()
}

async fn quota(args: &Args, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    let rows = session.client.quota_get(args.all_users).await?;
    let name = |row: &QuotaRow| match &row.group {
        Some(group) => format!("{} (group {group})", row.resource),
        None => row.resource.clone(),
    };
    if !context.world.out.listed(args.output, &rows, name)? {
        let is_terminal = context.world.out.is_terminal;
        let mut table = Table::new(&["RESOURCE", "LIMIT", "USED", "RESERVED", "GUARANTEE"]);
        let user = |row: &QuotaRow| row.user.clone().unwrap_or_else(|| "-".to_owned());
        let users: Vec<String> = rows.iter().map(user).collect();
        for row in rows {
            let resource = name(&row);
            let shown = |amount: String| match is_terminal {
                true => readable(&row.resource, amount),
                false => amount,
            };
            let limit = row.limit.map_or_else(|| "unlimited".to_owned(), shown);
            let guarantee = row.guarantee.map_or_else(|| "-".to_owned(), shown);
            let reserved = row.reserved.map_or_else(|| "-".to_owned(), shown);
            let used = shown(row.used);
            table.push(vec![resource, limit, used, reserved, guarantee]);
        }
        if args.all_users {
            table = table.with_first("USER", users);
        }
        context.world.out.table(&table)?;
    }
    done()
}

/// `1.5 GiB` for an amount of bytes, which programs get as `1536Mi`; other amounts are readable as they are.
fn readable(resource: &str, amount: String) -> String {
    let is_bytes = matches!(resource, "memory" | "storage" | "unfinished uploads" | "logs");
    match amount.parse::<Bytes>() {
        Ok(bytes) if is_bytes => bytes.readable(),
        _ => amount,
    }
}
