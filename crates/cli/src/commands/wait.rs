//! `wait <job>`: returns when the job has ended; the exit code says how.

use std::time::Duration;

use paddlecloud_api::jobs::{JobStatus, JobView};

use super::{Context, job_ref, removed};
use crate::error::{CliError, DONE, FAILED, INTERRUPTED};
use crate::printer::Format;
use crate::time_text::parse_span;

/// Wait until a job has ended
///
/// Exits with 0 if the job succeeded, and with 1 if it failed, was killed or lost, or if the time is up. Ctrl-C stops
/// waiting, not the job, and exits with 130.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    #[arg(default_value = "last")]
    job: String,

    /// Wait no longer than this: `90s`, `10m`, `1h30m`
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    timeout: Option<Duration>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let session = context.session().await?;
    // A name may refer to another run later; the wait is for this one.
    let view = session.client.job_get(&job).await?.job;
    let (id, name) = (&view.id, &view.name);
    let waiting = async {
        tell_begin(&view, context);
        session.client.job_wait(id, args.timeout).await
    };
    let waited = tokio::select! {
        // Ctrl-C first: it must work as soon as the user reads that we wait.
        biased;
        _ = tokio::signal::ctrl_c() => {
            context.world.err.line(format!("\nstopped waiting; {name} continues"));
            return Ok(INTERRUPTED);
        }
        waited = waiting => waited.map_err(|error| removed(name, error))?,
    };
    let view = waited.job;
    context.world.out.structured(args.output, &view)?;
    if !view.status.is_final() {
        return Err(CliError::refused(format!(
            "timed out: {} is still {}",
            view.name, view.status
        )));
    }
    let message = view
        .message
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    context
        .world
        .err
        .line(format!("{} {}{message}", view.name, view.status));
    Ok(if view.status == JobStatus::Succeeded {
        DONE
    } else {
        FAILED
    })
}

/// Shows what the user is waiting for.
fn tell_begin(job: &JobView, context: &mut Context<'_>) {
    if job.status.is_final() {
        return;
    }
    let reason = job.message.as_ref().filter(|_| job.status == JobStatus::Pending);
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    context.world.err.line(format!(
        "waiting for {} ({}), {}{reason}",
        job.name, job.id, job.status
    ));
}
