//! `server start|stop|status`: the embedded server of this machine; the status also of a shared one.

use paddlecloud_api::server::ServerInfo;
use paddlecloud_connect::ConnectError;
use paddlecloud_core::quantity::Bytes;

use super::{Context, done};
use crate::config::{self, Choice, Datacenter};
use crate::error::CliError;
use crate::printer::{Format, Printer};
use crate::session;
use crate::time_text::rfc3339;

/// Start or stop the embedded server, or show the current server
///
/// Other commands start it automatically if no server is configured. Stopping it does not stop jobs: workers keep running
/// and the next server adopts them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Start the embedded server unless it is running
    Start,
    /// Stop the embedded server; jobs keep running
    Stop,
    /// Show the server's address, storage and log; exits with 1 if it is not running, with 3 if a shared server is
    /// unreachable
    ///
    /// Shows the shared server if one is configured. `--datacenter local` shows the embedded one.
    Status {
        /// Output format
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
    let choice = config::choice(&context.flags.overrides(), &context.world.env);
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

/// Details for administrators are missing for others.
fn show(info: &ServerInfo, out: &mut Printer) -> Result<(), CliError> {
    let started = info.started.parse();
    let started = started.map_or_else(|_| info.started.clone(), rfc3339);
    let jobs = format!("{} running, {} pending", info.jobs_running, info.jobs_pending);
    let memory = info.memory.parse().map(Bytes::readable);
    let memory = memory.unwrap_or_else(|_| info.memory.clone());
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
        ("memory", memory),
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
    use crate::embedded::{self, EmbeddedFolder};
    use crate::error::FAILED;

    pub async fn start(context: &mut Context<'_>) -> Result<u8, CliError> {
        let place = EmbeddedFolder::of(&context.world.env)?;
        let fresh = embedded::start(&place, &context.world.env, &Program::this_one()?).await?;
        let info = place.client().server_get().await?;
        let verb = if fresh { "started" } else { "it is already running" };
        context
            .world
            .err
            .line(format!("{verb}: process {}, {}", info.pid, info.listen));
        done()
    }

    pub async fn stop(context: &mut Context<'_>) -> Result<u8, CliError> {
        let client = EmbeddedFolder::of(&context.world.env)?.client();
        match client.server_get().await {
            Ok(info) => {
                embedded::stop(&client).await?;
                tell_stopped(info.jobs_running, context);
            }
            Err(ClientError::Unreachable { .. }) => {
                context.world.err.line("the embedded server is not running")
            }
            Err(error) => return Err(error.into()),
        }
        done()
    }

    /// A command that still follows a job starts the server again; mention it.
    fn tell_stopped(running: u64, context: &mut Context<'_>) {
        let messages = &mut context.world.err;
        let adopted = match running {
            0 => return messages.line("stopped"),
            1 => "1 job continues and is",
            _ => &format!("{running} jobs continue and are"),
        };
        messages.line(format!("stopped; {adopted} adopted at the next start"));
        messages.hint(
            "the next command that needs the server starts it again, and so does a `logs -f`, `submit -f` or `wait` that still runs",
        );
    }

    pub async fn status(format: Option<Format>, context: &mut Context<'_>) -> Result<u8, CliError> {
        let place = EmbeddedFolder::of(&context.world.env)?;
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
                    .line(format!("the embedded server is not running (its data: {data})"));
                Ok(FAILED)
            }
            Err(error) => Err(error.into()),
        }
    }
}
