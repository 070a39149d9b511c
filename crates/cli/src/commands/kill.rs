//! `kill [-rm] <job>...`: stops jobs; their workers terminate in the background.

use paddlecloud_api::client::JobFilter;
use paddlecloud_api::jobs::{JobView, KillOptions, KillReply};

use super::{Context, done, job_ref};
use crate::error::{CliError, DONE, report};
use crate::session::Session;

/// The reply's message for a job that had not ended.
const ACCEPTED: &str = "OK";

/// Stop the job. -rm will remove the job from history.
///
/// Returns when the server has accepted the request. Workers terminate in the background; `get workers` shows them
/// until they are gone. The name can be reused immediately.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["jobs", "all"])))]
pub struct Args {
    /// Names, ids, or `last`
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,

    /// All your pending and running jobs
    #[arg(long)]
    all: bool,

    /// Also remove the job from the history
    #[arg(long)]
    rm: bool,

    /// Kill workers immediately, without a grace period
    #[arg(long)]
    now: bool,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let jobs = args.jobs.iter().map(|job| job_ref(job));
    let mut jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    let session = context.session().await?;
    if args.all {
        jobs = active(&session).await?;
        if jobs.is_empty() {
            context.world.err.note("no job is pending or running");
        }
    }
    if let [only] = jobs.as_slice() {
        kill(&session, only, args, context).await?;
        return done();
    }
    let mut code = DONE;
    for job in &jobs {
        // A job that cannot be killed must not keep the others from being killed.
        if let Err(error) = kill(&session, job, args, context).await {
            code = code.max(report(context.program, &error, context.world));
        }
    }
    Ok(code)
}

/// The ids of the caller's unfinished jobs.
async fn active(session: &Session) -> Result<Vec<String>, CliError> {
    let mut filter = JobFilter::default();
    let mut ids = Vec::new();
    loop {
        let page = session.client.jobs_list(&filter).await?;
        ids.extend(page.msg.into_iter().map(|job| job.id));
        filter.after = page.next;
        if filter.after.is_none() {
            return Ok(ids);
        }
    }
}

async fn kill(session: &Session, job: &str, args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let options = KillOptions {
        remove: args.rm,
        now: args.now,
    };
    // If the request has to be repeated, the name may refer to another run; an id does not.
    let view = session.client.job_get(job).await?.job;
    let reply = session.client.job_kill(&view.id, options).await?;
    context.world.err.line(said(&reply));
    if let Some(note) = &reply.note {
        context.world.err.note(note);
    }
    if reply.removed {
        tell_removed(&reply, &view, context);
    }
    if reply.ending > 0 {
        context.world.err.hint(&format!(
            "`{} get workers {}` shows the remaining ones",
            context.program, reply.id
        ));
    }
    Ok(())
}

/// Reports what `-rm` removes and what it keeps.
fn tell_removed(reply: &KillReply, job: &JobView, context: &mut Context<'_>) {
    let when = if reply.ending > 0 {
        "are removed when the last worker has exited"
    } else {
        "were removed"
    };
    // A job that never started has no output folder.
    let has_output = job.started.is_some() || reply.ending > 0;
    let kept = match job.output.as_ref().filter(|_| has_output) {
        Some(output) => format!("; its output is kept at {output}"),
        None => String::new(),
    };
    context
        .world
        .err
        .line(format!("its record and logs {when}{kept}"));
}

/// What happened to the job, in one line.
fn said(reply: &KillReply) -> String {
    let job = format!("{} ({})", reply.name, reply.id);
    let was_over = reply.msg != ACCEPTED;
    match (reply.ending, reply.removed) {
        (0, true) if was_over => format!("removed {job}, which had already ended"),
        (0, true) => format!("removed {job}"),
        (0, false) if was_over => format!("{job} had already ended"),
        (0, false) => format!("stopped {job}"),
        (1, _) => format!("stopping {job}: 1 worker is terminating in the background"),
        (count, _) => format!("stopping {job}: {count} workers are terminating in the background"),
    }
}
