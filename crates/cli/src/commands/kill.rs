//! `kill [-rm] <job>`: stops a job; its workers end in the background.

use paddlecloud_api::jobs::KillReply;
use paddlecloud_core::names::JobRef;

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
    let target = match job.parse() {
        // It may be another job a moment later, should the request have to be sent again.
        Ok(JobRef::Latest) => session.client.job_get(&job).await?.job.id,
        _ => job,
    };
    let reply = session.client.job_kill(&target, args.rm).await?;
    context.world.err.line(said(&reply));
    if reply.ending > 0 {
        context.world.err.hint(&format!(
            "`{} get workers {target}` shows them go",
            context.program
        ));
    }
    done()
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
