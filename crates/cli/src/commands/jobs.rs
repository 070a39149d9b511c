//! `jobs`: the short list of S4.

use paddlecloud_api::client::JobFilter;

use super::{Context, done};
use crate::error::CliError;
use crate::job_table;
use crate::printer::Format;

/// List the jobs that run
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also those that have ended
    #[arg(long, short)]
    all: bool,

    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,

    /// At most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    limit: u32,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let filter = JobFilter {
        all: args.all,
        limit: Some(args.limit),
        ..JobFilter::default()
    };
    let page = session.client.jobs_list(&filter).await?;
    let now = (context.world.now)();
    let out = &mut context.world.out;
    if args.output == Some(Format::Name) {
        page.msg.iter().try_for_each(|job| out.line(&job.name))?;
    } else if !out.structured(args.output, &page.msg)? {
        out.table(&job_table::short_jobs(
            &page.msg,
            now,
            args.output == Some(Format::Wide),
        ))?;
    }
    if page.next.is_some() {
        context.world.err.note(&format!(
            "there are more; `{} get jobs -a` shows all",
            context.program
        ));
    }
    done()
}
