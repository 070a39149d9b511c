//! `jobs`: the short list of the client design.

use paddlecloud_api::client::JobFilter;

use super::get::show;
use super::{Context, done};
use crate::error::CliError;
use crate::job_table;
use crate::printer::Format;

/// List running jobs
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Include ended jobs
    #[arg(long, short)]
    all: bool,

    /// Output format
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
        reasons: matches!(args.output, Some(Format::Wide | Format::Json | Format::Yaml)),
        ..JobFilter::default()
    };
    let page = session.client.jobs_list(&filter).await?;
    let now = (context.world.now)();
    let out = &mut context.world.out;
    if !out.listed(args.output, &page.msg, |job| job.name.clone())? {
        let table = job_table::short_jobs(&page.msg, now, args.output == Some(Format::Wide));
        let if_empty = match args.all {
            true => "there are no jobs yet",
            false => "no job is pending or running; `-a` shows ended ones too",
        };
        show(&table, if_empty, context)?;
    }
    if page.next.is_some() {
        context.world.err.note(&format!(
            "there are more; `{} get jobs -a` shows all",
            context.program
        ));
    }
    done()
}
