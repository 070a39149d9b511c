//! `get jobs|workers|quota|registry`: lists.

use clap::ValueEnum;
use paddlecloud_api::client::JobFilter;

use super::{Context, done, job_ref, not_there_yet};
use crate::error::CliError;
use crate::job_table::{self, Columns};
use crate::printer::{Format, Table};
use crate::session::Session;

/// How many jobs one request brings.
const PAGE: u32 = 1000;

/// Print resources
///
/// `get jobs` lists what is pending or running, `get jobs -a` the whole history, `get workers JOB` the workers of a
/// job, `get quota` what you may use and what you use now.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to list
    resource: Resource,

    /// The job whose workers are wanted; all that run when left out
    job: Option<String>,

    /// Also what has ended
    #[arg(long, short)]
    all: bool,

    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,

    /// Only workers of this role
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,

    /// At most this many jobs
    #[arg(long, value_name = "NUMBER", value_parser = job_count)]
    limit: Option<u32>,
}

fn job_count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 job must be asked for".to_owned()),
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
    /// Registries of images (later version)
    #[value(alias = "registries")]
    Registry,
}

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    #[value(alias = "trainers")]
    Trainer,
    #[value(alias = "pservers")]
    Pserver,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Trainer => "trainer",
            Role::Pserver => "pserver",
        }
    }
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    if args.resource == Resource::Registry {
        return not_there_yet("get registry");
    }
    let job = args.job.as_deref().map(job_ref).transpose()?;
    if let (Some(job), false) = (&job, args.resource == Resource::Workers) {
        return Err(no_job_here(args.resource, job));
    }
    if (args.resource, args.output) == (Resource::Quota, Some(Format::Wide)) {
        return Err(CliError::usage(
            "`get quota` has no more columns than it shows without `-o wide`",
        ));
    }
    let session = context.session().await?;
    match args.resource {
        Resource::Jobs => jobs(args, &session, context).await,
        Resource::Workers => workers(args, job.as_deref(), &session, context).await,
        Resource::Quota | Resource::Registry => quota(args, &session, context).await,
    }
}

/// Only workers are asked for by their job.
fn no_job_here(resource: Resource, job: &str) -> CliError {
    let what = match resource {
        Resource::Jobs => "jobs",
        Resource::Workers => "workers",
        Resource::Quota => "quota",
        Resource::Registry => "registry",
    };
    let error = CliError::usage(format!("`get {what}` takes no name, but `{job}` follows it"));
    match resource {
        Resource::Jobs => error.with_hint(format!("`describe {job}` shows one job")),
        _ => error,
    }
}

async fn jobs(args: &Args, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    let columns = match args.output {
        Some(Format::Wide) => Columns::Wide,
        _ if args.all => Columns::History,
        _ => Columns::Plain,
    };
    let mut filter = JobFilter {
        all: args.all,
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
        if matches!(args.output, Some(Format::Json | Format::Yaml)) {
            gathered.extend(page.msg);
        } else if args.output == Some(Format::Name) {
            page.msg
                .iter()
                .try_for_each(|job| context.world.out.line(&job.name))?;
        } else {
            let mut table = Table::new(&job_table::jobs_head(columns));
            for job in &page.msg {
                table.push(job_table::job_row(number, job, columns));
                number += 1;
            }
            // A history may be long: each page is shown as it comes, in the first one's columns.
            match &widths {
                None => {
                    context.world.out.table(&table)?;
                    widths = Some(table.widths());
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

async fn workers(
    args: &Args,
    job: Option<&str>,
    session: &Session,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let mut workers = session.client.workers_list(job).await?;
    if let Some(role) = args.role {
        workers.retain(|worker| worker.role == role.as_str());
    }
    let out = &mut context.world.out;
    if args.output == Some(Format::Name) {
        workers.iter().try_for_each(|worker| out.line(&worker.name))?;
    } else if !out.structured(args.output, &workers)? {
        out.table(&job_table::workers(&workers, args.output == Some(Format::Wide)))?;
    }
    done()
}

async fn quota(args: &Args, session: &Session, context: &mut Context<'_>) -> Result<u8, CliError> {
    let rows = session.client.quota_get().await?;
    if args.output == Some(Format::Name) {
        let out = &mut context.world.out;
        rows.iter().try_for_each(|row| out.line(&row.resource))?;
    } else if !context.world.out.structured(args.output, &rows)? {
        let mut table = Table::new(&["RESOURCE", "LIMIT", "USED"]);
        for row in rows {
            let limit = row.limit.unwrap_or_else(|| "unlimited".to_owned());
            table.push(vec![row.resource, limit, row.used]);
        }
        context.world.out.table(&table)?;
    }
    done()
}
