//! `rerun <job>`: the same job once more, from the files it was submitted with.

use paddlecloud_api::client::new_idempotency_key;

use super::submit::announce;
use super::{Context, done, job_ref};
use crate::error::CliError;
use crate::printer::Format;

/// Submit a job again as it was
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    job: String,

    /// How to print the new job
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let session = context.session().await?;
    let reply = session.client.job_rerun(&job, &new_idempotency_key()).await?;
    announce(&reply, args.output, context)?;
    done()
}
