//! `server start|stop|status`: the embedded server of this machine.

use super::Context;
use crate::error::CliError;
use crate::printer::Format;

/// Start, stop or look at the embedded server
///
/// Other commands start it by themselves when no server is configured. Stopping it does not stop jobs: workers go on
/// and the next server takes them over.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Start it, if it does not run
    Start,
    /// Stop it; jobs go on running
    Stop,
    /// Show where it is, its storage and its log; exit code 1 when it does not run
    Status {
        /// How to print it
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
}

#[cfg(not(target_os = "linux"))]
pub async fn run(_: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    Err(crate::session::no_embedded(&context.world.env).into())
}

#[cfg(target_os = "linux")]
pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    match args.action {
        Action::Start => linux::start(context).await,
        Action::Stop => linux::stop(context).await,
        Action::Status { output } => linux::status(output, context).await,
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use paddlecloud_api::client::ClientError;
    use paddlecloud_api::server::ServerInfo;
    use paddlecloud_connect::Program;

    use super::super::{Context, done};
    use crate::embedded::{self, Place};
    use crate::error::{CliError, FAILED};
    use crate::printer::{Format, Printer};
    use crate::time_text::rfc3339;

    pub async fn start(context: &mut Context<'_>) -> Result<u8, CliError> {
        let place = Place::of(&context.world.env)?;
        let fresh = embedded::start(&place, &context.world.env, &Program::this_one()?).await?;
        let info = place.client().server_get().await?;
        let verb = if fresh { "started" } else { "it runs already" };
        context
            .world
            .err
            .line(format!("{verb}: process {}, {}", info.pid, info.listen));
        done()
    }

    pub async fn stop(context: &mut Context<'_>) -> Result<u8, CliError> {
        let client = Place::of(&context.world.env)?.client();
        match client.server_get().await {
            Ok(info) => {
                embedded::stop(&client).await?;
                tell_stopped(info.jobs_running, context);
            }
            Err(ClientError::Unreachable { .. }) => context.world.err.line("it does not run"),
            Err(error) => return Err(error.into()),
        }
        done()
    }

    /// Who still follows a job starts the server again, which should surprise nobody.
    fn tell_stopped(running: u64, context: &mut Context<'_>) {
        let messages = &mut context.world.err;
        let go_on = match running {
            0 => return messages.line("stopped"),
            1 => "1 running job goes on and is",
            _ => &format!("{running} running jobs go on and are"),
        };
        messages.line(format!("stopped; {go_on} taken over at the next start"));
        messages.hint("any command that needs it starts it again; one that follows a job does so at once");
    }

    pub async fn status(format: Option<Format>, context: &mut Context<'_>) -> Result<u8, CliError> {
        let place = Place::of(&context.world.env)?;
        match place.client().server_get().await {
            Ok(info) => {
                if !context.world.out.structured(format, &info)? {
                    show(&info, &mut context.world.out)?;
                }
                done()
            }
            Err(ClientError::Unreachable { .. }) => {
                let data = place.data.display();
                context
                    .world
                    .err
                    .line(format!("the embedded server does not run (its data: {data})"));
                Ok(FAILED)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn show(info: &ServerInfo, out: &mut Printer) -> Result<(), CliError> {
        let rows = [
            ("version", info.version.clone()),
            ("pid", info.pid.to_string()),
            (
                "started",
                info.started
                    .parse()
                    .map_or_else(|_| info.started.clone(), rfc3339),
            ),
            ("listen", info.listen.clone()),
            ("datacenter", info.datacenter.clone()),
            ("engine", info.engine.clone()),
            ("data", info.data.clone()),
            ("storage", info.storage.clone()),
            ("limits", info.storage_limits.clone()),
            ("database", info.database.clone()),
            ("log", info.log.clone().unwrap_or_default()),
            ("cpu", info.cpu.clone()),
            ("memory", info.memory.clone()),
            ("gpus", info.gpus.to_string()),
            (
                "jobs",
                format!("{} running, {} pending", info.jobs_running, info.jobs_pending),
            ),
        ];
        for (name, value) in rows {
            out.line(format!("{name:<12}{value}"))?;
        }
        info.degraded
            .iter()
            .try_for_each(|text| out.line(format!("{:<12}{text}", "note")))
    }
}
