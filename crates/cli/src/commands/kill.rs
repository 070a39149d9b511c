//! `kill [-rm] <job>`: stops a job; its workers end in the background.

use paddlecloud_api::jobs::{JobView, KillReply};

use super::{Context, done, job_ref};
use crate::error::CliError;

/// What the reply says of a job that was not over.
const ACCEPTED: &str = "OK";

/// Stop the job. -rm will remove the job from history.
///
/// Returns when the server has accepted it; workers end in the background and `get workers` shows them go. The name
/// can be used again at once.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name, an id, or `last`
    job: String,

    /// Also remove the job from the history
    #[arg(long)]
    rm: bool,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let session = context.session().await?;
    // A name may mean another run a moment later, should the request have to be sent again; an id does not.
    let view = session.client.job_get(&job).await?.job;
    let reply = session.client.job_kill(&view.id, args.rm).await?;
    context.world.err.line(said(&reply));
    if reply.removed {
        tell_removed(&reply, &view, context);
    }
    if reply.ending > 0 {
        context.world.err.hint(&format!(
            "`{} get workers {}` shows them go",
            context.program, reply.id
        ));
    }
    done()
}

/// What `-rm` takes away, and what it leaves.
fn tell_removed(reply: &KillReply, job: &JobView, context: &mut Context<'_>) {
    let when = if reply.ending > 0 {
        "leave the history when the last of them is gone"
    } else {
        "left the history"
    };
    let kept = match &job.output {
        Some(output) => format!("; its output stays at {output}"),
        None => String::new(),
    };
    context
        .world
        .err
        .line(format!("its record and its logs {when}{kept}"));
}

/// What has happened to the job, in one line.
fn said(reply: &KillReply) -> String {
    let job = format!("{} ({})", reply.name, reply.id);
    let was_over = reply.msg != ACCEPTED;
    match (reply.ending, reply.removed) {
        (0, true) if was_over => format!("removed {job}, which was over already"),
        (0, true) => format!("removed {job}"),
        (0, false) if was_over => format!("{job} was over already"),
        (0, false) => format!("stopped {job}"),
        (1, _) => format!("stopping {job}: 1 worker ends in the background"),
        (count, _) => format!("stopping {job}: {count} workers end in the background"),
    }
}
