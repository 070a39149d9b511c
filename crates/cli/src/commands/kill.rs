//! `kill [-rm] <job>`: stops a job; its workers end in the background.

use paddlecloud_core::names::LATEST;

use super::{Context, done, job_ref};
use crate::error::CliError;

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
    let reply = session.client.job_kill(&job, args.rm).await?;
    let said = match (reply.ending, reply.removed) {
        (0, true) => format!("removed {job} ({})", reply.id),
        (0, false) => format!("stopped {job} ({})", reply.id),
        (1, _) => format!("stopping {job} ({}): 1 worker ends in the background", reply.id),
        (count, _) => format!(
            "stopping {job} ({}): {count} workers end in the background",
            reply.id
        ),
    };
    context.world.err.line(said);
    if reply.ending > 0 {
        // `last` may be another job by the time the hint is followed.
        let target = if job == LATEST { reply.id } else { job };
        context.world.err.hint(&format!(
            "`{} get workers {target}` shows them go",
            context.program
        ));
    }
    done()
}
