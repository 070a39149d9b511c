//! `server start|stop|status`: the embedded server of this machine; the status also of a shared one.

use paddlecloud_api::server::ServerInfo;
use paddlecloud_connect::ConnectError;

use super::{Context, done};
use crate::config::{self, Choice, Datacenter};
use crate::error::CliError;
use crate::printer::{Format, Printer};
use crate::session;
use crate::time_text::rfc3339;

/// Start or stop the embedded server, or look at the server in use
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
    /// Show where it is, its storage and its log; exit code 1 when it does not run, 3 when a shared one cannot be reached
    ///
    /// Where a shared server is configured, that one is shown. `--datacenter local` shows this machine's own all the
    /// same.
    Status {
        /// How to print it
        #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
        output: Option<Format>,
    },
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    match args.action {
        Action::Start => own::start(context).await,
        Action::Stop => own::stop(context).await,
        Action::Status { output } => status(output, context).await,
    }
}

async fn status(format: Option<Format>, context: &mut Context<'_>) -> Result<u8, CliError> {
    let choice = config::choice(&context.flags.wanted(), &context.world.env);
    match choice.map_err(ConnectError::from)? {
        Choice::Embedded => own::status(format, context).await,
        Choice::Remote(shared) => status_of_shared(&shared, format, context).await,
    }
}

async fn status_of_shared(
    shared: &Datacenter,
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let client = session::remote(shared, &context.world.env);
    let info = client.server_get().await?;
    if !context.world.out.structured(format, &info)? {
        let server = format!("the shared server of `{}` at {}", shared.name, shared.endpoint);
        let out = &mut context.world.out;
        out.line(format!("{:<12}{server}", "server"))?;
        show(&info, out)?;
    }
    done()
}

/// What only administrators are told is not there for others.
fn show(info: &ServerInfo, out: &mut Printer) -> Result<(), CliError> {
    let started = info.started.parse();
    let started = started.map_or_else(|_| info.started.clone(), rfc3339);
    let jobs = format!("{} running, {} pending", info.jobs_running, info.jobs_pending);
    let rows = [
        ("version", info.version.clone()),
        ("pid", info.pid.to_string()),
        ("started", started),
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
        ("jobs", jobs),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        out.line(format!("{name:<12}{value}"))?;
    }
    info.degraded
        .iter()
        .try_for_each(|text| out.line(format!("{:<12}{text}", "note")))
}

#[cfg(not(target_os = "linux"))]
mod own {
    use super::{CliError, Context, Format, session};

    pub async fn start(context: &mut Context<'_>) -> Result<u8, CliError> {
        Err(session::no_embedded(&context.world.env).into())
    }

    pub async fn stop(context: &mut Context<'_>) -> Result<u8, CliError> {
        start(context).await
    }

    pub async fn status(_: Option<Format>, context: &mut Context<'_>) -> Result<u8, CliError> {
        start(context).await
    }
}

#[cfg(target_os = "linux")]
mod own {
    use paddlecloud_api::client::ClientError;
    use paddlecloud_connect::Program;

    use super::{CliError, Context, Format, done, show};
    use crate::embedded::{self, Place};
    use crate::error::FAILED;

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
            Err(ClientError::Unreachable { .. }) => {
                context.world.err.line("the embedded server does not run")
            }
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
}
