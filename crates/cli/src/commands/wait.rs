//! `wait <job>`: returns when the job has ended; the exit code says how.

use std::time::Duration;

use paddlecloud_api::jobs::{JobStatus, JobView};

use super::{Context, done, job_ref, removed};
use crate::error::{CliError, DONE, FAILED};
use crate::printer::Format;
use crate::time_text::parse_span;

/// Wait until a job has ended
///
/// Ends with 0 when the job succeeded and with 1 when it failed, was killed or lost, or when the time is up. Ctrl-C
/// stops the waiting, not the job.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    #[arg(default_value = "last")]
    job: String,

    /// Wait no longer than this: `90s`, `10m`, `1h30m`
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    timeout: Option<Duration>,

    /// How to print the job at its end
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let session = context.session().await?;
    // A name may mean another run tomorrow; the wait is for this one.
    let view = session.client.job_get(&job).await?.job;
    tell_begin(&view, context);
    let JobView { id, name, .. } = view;
    let waited = tokio::select! {
        waited = session.client.job_wait(&id, args.timeout) => waited.map_err(|error| removed(&name, error))?,
        _ = tokio::signal::ctrl_c() => {
            context.world.err.line(format!("\nno longer waiting; {name} goes on"));
            return done();
        }
    };
    let view = waited.job;
    context.world.out.structured(args.output, &view)?;
    if !view.status.is_final() {
        return Err(CliError::refused(format!(
            "{} is still {} and the time is up",
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

/// Whoever waits should see for what.
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
