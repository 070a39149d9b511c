//! `prune`: removes ended jobs with their logs and working copies; their outputs stay.

use std::time::Duration;

use paddlecloud_api::jobs::{PruneReply, PrunedJob};

use super::{Context, done};
use crate::error::CliError;
use crate::printer::Format;
use crate::time_text::{parse_span, size};

/// Remove ended jobs from history
///
/// Say which: those that ended some time ago, or all. Their records, logs, working copies and packages that nothing else uses go. What they wrote to `output` stays, below
/// `.paddlecloud/runs` of your home, and so does the latest run of each package.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["older_than", "all"])))]
pub struct Args {
    /// Those that ended longer ago than this: `12h`, `7d`
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    older_than: Option<Duration>,

    /// All that have ended
    #[arg(long)]
    all: bool,

    /// Say what would be removed, remove nothing
    #[arg(long)]
    dry_run: bool,

    /// How to print it
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let reply = session.client.jobs_prune(args.older_than, args.dry_run).await?;
    let out = &mut context.world.out;
    if !out.structured(args.output, &reply)? {
        reply
            .removed
            .iter()
            .try_for_each(|id| out.line(line(id, &reply)))?;
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let count = reply.removed.len();
    let jobs = if count == 1 { "job" } else { "jobs" };
    let messages = &mut context.world.err;
    messages.line(format!("{verb} {count} {jobs}, {}", size(reply.bytes)));
    if count > 0 {
        let home = session.client.whoami_get().await?.home;
        messages.line(format!("outputs stay, each in {home}/.paddlecloud/runs/<id>"));
    }
    done()
}

/// The id, and what people know of the job; an older server tells the id only.
fn line(id: &str, reply: &PruneReply) -> String {
    match reply.jobs.iter().find(|job| job.id == id) {
        Some(PrunedJob { name, ended, .. }) => match ended {
            Some(ended) => format!("{id}\t{name}\t{ended:.0}"),
            None => format!("{id}\t{name}"),
        },
        None => id.to_owned(),
    }
}
