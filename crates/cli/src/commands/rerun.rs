//! `rerun <job>`: submits the same job again, with the files it was submitted with.

use paddlecloud_api::client::new_idempotency_key;
use paddlecloud_core::names::JobName;

use super::submit::{announce, follow};
use super::{Context, done, job_ref};
use crate::error::CliError;
use crate::printer::Format;
use crate::submission::job_name;

/// Submit a job again unchanged
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    job: String,

    /// Another name for the new run, if the old one is still in use
    #[arg(long, visible_alias = "name", value_name = "NAME")]
    jobname: Option<String>,

    /// Follow the log until the job ends; Ctrl-C leaves the job running
    #[arg(long, short = 'f')]
    follow: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let name = args.jobname.as_deref().map(job_name).transpose()?;
    let session = context.session().await?;
    let (name, key) = (name.as_ref().map(JobName::as_str), new_idempotency_key());
    let mut reply = session.client.job_rerun(&job, name, &key).await?;
    announce(&session, &mut reply, args.output, context).await?;
    if args.follow {
        return follow(&session, &reply, context).await;
    }
    done()
}
