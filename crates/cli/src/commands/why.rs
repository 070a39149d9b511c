//! `why <job>`: why it waits, or why it failed.

use paddlecloud_api::jobs::WhyView;
use paddlecloud_core::quantity::counted;

use super::{Context, done, job_ref};
use crate::error::CliError;
use crate::printer::{Format, Printer};
use crate::time_text::{age, between, rfc3339};

/// Explain why a job waits or why it failed
///
/// For a waiting job: the reason, the jobs ahead of it, an estimate of its start if possible, and the smallest change
/// that would start it now. For a failed job: the first worker that failed, how it exited, and its last lines.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    #[arg(default_value = "last")]
    job: String,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let session = context.session().await?;
    let why = session.client.job_why(&job).await?;
    if !context.world.out.structured(args.output, &why)? {
        let now = (context.world.now)();
        show(&why, now, &mut context.world.out)?;
    }
    done()
}

fn show(why: &WhyView, now: jiff::Timestamp, out: &mut Printer) -> Result<(), CliError> {
    out.line(format!(
        "{} ({}) is {}: {}",
        why.job.name, why.job.id, why.job.status, why.reason
    ))?;
    if why.ahead_total > 0 {
        let unnamed = why.ahead_total.saturating_sub(why.ahead.len());
        let named = why.ahead.join(", ");
        let jobs = match (why.ahead.is_empty(), unnamed) {
            (true, _) => counted(unnamed as u128, "other job"),
            (false, 0) => named,
            (false, _) => format!("{named} and {unnamed} more"),
        };
        out.line(format!("ahead of it: {jobs}"))?;
    }
    if let Some(time) = why.estimate {
        out.line(format!(
            "expected to start: {} (in {})",
            rfc3339(time),
            age(between(now, time))
        ))?;
    }
    if let Some(change) = &why.change {
        out.line(format!("it {change}"))?;
    }
    if let Some(failure) = &why.first_failure {
        out.line(format!(
            "first to fail: {} ({})",
            failure.worker.name, failure.exit
        ))?;
        if failure.others > 0 {
            out.line(format!("stopped because of it: {}", failure.others))?;
        }
        if !failure.last_lines.is_empty() {
            out.line("its last lines:")?;
        }
        for line in &failure.last_lines {
            out.line(format!("    {line}"))?;
        }
    }
    Ok(())
}
