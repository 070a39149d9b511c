//! `prune`: removes ended jobs with their logs and working copies; their outputs only on request.

use std::time::Duration;

use paddlecloud_api::jobs::{PruneOptions, PruneReply, PrunedJob};

use super::{Context, done};
use crate::error::CliError;
use crate::printer::Format;
use crate::time_text::{parse_span, size};

/// Remove ended jobs from history
///
/// Removes the records, logs and working copies of ended jobs, and packages that nothing else uses. What jobs wrote to
/// `output` stays below `.paddlecloud/runs` of your home, unless `--outputs` is
/// given. The working copy of each package's latest run stays.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["older_than", "all"])))]
pub struct Args {
    /// Jobs that ended longer ago than this: `12h`, `7d`
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    older_than: Option<Duration>,

    /// All ended jobs
    #[arg(long)]
    all: bool,

    /// Also remove what they wrote to `output`; with `--all` also the outputs of jobs pruned earlier
    #[arg(long)]
    outputs: bool,

    /// Print what would be removed, remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let options = PruneOptions {
        dry_run: args.dry_run,
        outputs: args.outputs,
    };
    let reply = session.client.jobs_prune(args.older_than, options).await?;
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
    if let Some(note) = &reply.note {
        messages.note(note);
    }
    if count > 0 {
        let runs = format!("{}/.paddlecloud/runs", session.client.whoami_get().await?.home);
        if !args.outputs {
            messages.line(format!("outputs are kept, each in {runs}/<id>"));
            messages.hint("`--outputs` removes them too");
        }
        let program = context.program;
        messages.line("the working copy of each package's latest run is kept");
        messages.hint(&format!(
            "`{program} du {runs}` shows sizes; `{program} rm -r {runs}/<id>` removes one"
        ));
    }
    done()
}

/// The id and a description of the job; an older server sends only the id.
fn line(id: &str, reply: &PruneReply) -> String {
    match reply.jobs.iter().find(|job| job.id == id) {
        Some(PrunedJob { name, ended, .. }) => match ended {
            Some(ended) => format!("{id}\t{name}\t{ended:.0}"),
            None => format!("{id}\t{name}"),
        },
        None => id.to_owned(),
    }
}
