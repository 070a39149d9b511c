//! `logs [job]`: what the workers wrote, to the end or on and on.

use paddlecloud_api::client::{Client, LogEvent};
use paddlecloud_api::jobs::JobStatus;
use paddlecloud_api::logs::{LogEnd, LogQuery};

use super::get::Role;
use super::{Context, done, job_ref};
use crate::error::{CliError, DONE, FAILED, chain};
use crate::log_view::{LogView, Style};
use crate::session::Session;
use crate::time_text::parse_since;

/// Print logs of the job.
///
/// All workers of the job, parameter servers included, each line with its worker's name where there are several. Logs
/// stay after the job has ended. `-f` follows until the job ends and then exits with 0 or, when the job failed, 1;
/// Ctrl-C stops the reading, not the job.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`; the latest job when left out
    #[arg(default_value = "last")]
    job: String,

    /// Only the last lines of each worker
    #[arg(long, short = 'n', alias = "tail", value_name = "NUMBER", value_parser = line_count)]
    lines: Option<u64>,

    /// One worker, by its name or as `trainer-0`
    #[arg(long, short, value_name = "NAME")]
    worker: Option<String>,

    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,

    /// Only what was written since: `10m`, or a time such as `2026-01-31T09:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Only workers of this role
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,

    /// The time before every line
    #[arg(long)]
    timestamps: bool,

    /// Plain lines without the worker's name
    #[arg(long)]
    raw: bool,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let now = (context.world.now)();
    let since = args
        .since
        .as_deref()
        .map(|text| parse_since(text, now).map_err(CliError::usage))
        .transpose()?;
    let session = context.session().await?;
    // A name may come to mean another run while the log is read.
    let view = session.client.job_get(&job).await?.job;
    let (id, job) = (view.id, view.name);
    let query = LogQuery {
        n: args.lines,
        w: args.worker.clone(),
        role: args.role.map(|role| role.as_str().to_owned()),
        since: since.map(|time| time.to_string()),
        follow: args.follow,
        from: None,
    };
    let style = Style {
        raw: args.raw,
        timestamps: args.timestamps,
        colour: context.world.out.colour,
    };
    match read(&session, &id, query, style, context).await? {
        Reading::Ended(Some(end)) if args.follow => Ok(tell_end(&job, &end, context)),
        Reading::Ended(_) => done(),
        Reading::Left => {
            tell_left(&job, context);
            done()
        }
    }
}

fn line_count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number of lines"))
}

/// How the reading of a log came to its end.
pub enum Reading {
    /// All there is was shown. With a body: the job is final.
    Ended(Option<LogEnd>),
    /// The user pressed Ctrl-C.
    Left,
}

/// Reads the log of a run and prints it.
pub async fn read(
    session: &Session,
    id: &str,
    query: LogQuery,
    style: Style,
    context: &mut Context<'_>,
) -> Result<Reading, CliError> {
    let mut view = LogView::new(style);
    let mut out = Vec::new();
    let shown = show(session, id, query, &mut view, &mut out, context).await;
    view.end(&mut out);
    context.world.out.bytes(&out)?;
    context.world.out.flush()?;
    shown
}

async fn show(
    session: &Session,
    id: &str,
    query: LogQuery,
    view: &mut LogView,
    out: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Result<Reading, CliError> {
    let client: &Client = &session.client;
    let mut log = client.job_logs(id, query);
    let leave = tokio::signal::ctrl_c();
    let mut leave = std::pin::pin!(leave);
    loop {
        let event = tokio::select! {
            biased;
            event = log.next() => event?,
            _ = leave.as_mut() => return Ok(Reading::Left),
        };
        let Some(event) = event else {
            return Ok(Reading::Ended(None));
        };
        view.show(&event, out);
        if !log.has_more() || out.len() > 64 << 10 {
            context.world.out.bytes(out)?;
            context.world.out.flush()?;
            out.clear();
        }
        match event {
            LogEvent::End(end) => return Ok(Reading::Ended(end)),
            LogEvent::Lost(_) if session.is_embedded => revive(context).await?,
            _ => {}
        }
    }
}

#[cfg(target_os = "linux")]
async fn revive(context: &mut Context<'_>) -> Result<(), CliError> {
    let program = paddlecloud_connect::Program::this_one()?;
    if let Err(error) = crate::embedded::revive(&context.world.env, &program).await {
        context
            .world
            .err
            .note(&format!("the embedded server is gone: {}", chain(&error)));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
async fn revive(_: &mut Context<'_>) -> Result<(), CliError> {
    Ok(())
}

/// Says how the job ended and gives the exit code that goes with it.
pub fn tell_end(job: &str, end: &LogEnd, context: &mut Context<'_>) -> u8 {
    let message = end
        .message
        .as_ref()
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    context.world.err.line(format!("{job} {}{message}", end.status));
    if end.status == JobStatus::Succeeded {
        return DONE;
    }
    if end.status == JobStatus::Failed {
        context
            .world
            .err
            .hint(&format!("`{} why {job}` tells more", context.program));
    }
    FAILED
}

/// Says that only the reading has ended.
pub fn tell_left(job: &str, context: &mut Context<'_>) {
    let program = context.program;
    context.world.err.line(format!(
        "\ndetached; {job} goes on: `{program} logs -f {job}` comes back to it, `{program} kill {job}` stops it"
    ));
}
