//! `logs [job]`: prints the output of the workers, to the current end or continuously.

use std::sync::Arc;
use std::time::Duration;

use paddlecloud_api::client::{Client, LogEvent};
use paddlecloud_api::jobs::{JobStatus, JobView};
use paddlecloud_api::logs::{LogEnd, LogQuery, LogWorker};
use paddlecloud_core::job::some_of;

use super::get::WorkerRole;
use super::{Context, done, job_ref, removed, was_removed};
use crate::error::{CliError, DONE, FAILED};
use crate::log_screen::LogScreen;
use crate::log_view::{Reader, Style};
use crate::session::Session;
use crate::time_text::parse_since;

/// How often a follower checks whether its job waits for something else now.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How long the user waits for the last message after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(1);

/// Print logs of the job.
///
/// Prints the logs of all workers, including parameter servers. With several workers each line starts with its worker's
/// name. Logs remain after the job has ended. `-f` follows until the job ends, then exits with 0, or with 1 if the job
/// failed. Ctrl-C stops following, not the job.
///
/// The bytes of a single worker are printed unchanged. With several workers, or with times, a progress bar (`\r`) is one
/// line: on a terminal it is redrawn at the end of the log until it is complete, elsewhere its last step is printed. On a
/// terminal, several workers and jobs of others are shown without the codes that move the cursor, and with other control
/// characters escaped; colours stay, and so does everything with `--raw`. Only a count is shown there of the lines with
/// which the launcher of each worker begins.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`; default: the latest job
    #[arg(default_value = "last")]
    job: String,

    /// Only the last lines of each worker
    #[arg(long, short = 'n', alias = "tail", value_name = "NUMBER", value_parser = line_count)]
    lines: Option<u64>,

    /// One worker, by its name or as `trainer-0`
    #[arg(long, short, value_name = "NAME")]
    worker: Option<String>,

    /// Follow until the job has ended
    #[arg(long, short)]
    follow: bool,

    /// Only lines written since: `10m`, or a time such as `2026-01-31T09:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Only workers of this role
    #[arg(long, value_name = "ROLE")]
    role: Option<WorkerRole>,

    /// Print the time before every line
    #[arg(long)]
    timestamps: bool,

    /// Print plain lines without the worker's name
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
    // A name may refer to another run while the log is read.
    let found = session.client.job_get(&job).await?.job;
    let run = Run::of(&found);
    if matches!(found.status, JobStatus::Pending | JobStatus::Starting) {
        tell_waiting(&session, &run, args.follow, context).await?;
    }
    let query = LogQuery {
        n: args.lines,
        w: args.worker.clone(),
        role: args.role.map(|role| role.as_str().to_owned()),
        since: since.map(|time| time.to_string()),
        follow: args.follow,
        from: None,
    };
    let reader = match context.world.out.is_terminal && !args.raw {
        false => Reader::Raw,
        true if session.client.whoami_get().await?.user == found.user => Reader::Owner,
        true => Reader::Other,
    };
    let style = Style {
        reader,
        raw: args.raw,
        timestamps: args.timestamps,
        colour: context.world.out.colour,
    };
    match read(&session, &run, query, style, context).await? {
        Reading::Ended(Some(end)) if args.follow => Ok(tell_end(&run.name, &end, context)),
        Reading::Ended(None) if args.follow => Err(was_removed(&run.name)),
        Reading::Ended(_) => done(),
        Reading::Left => {
            tell_left(&session, &run, context).await;
            done()
        }
    }
}

/// A job that waits or starts has no log, or only that of earlier attempts, so the reason is shown.
async fn tell_waiting(
    session: &Session,
    run: &Run,
    is_followed: bool,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let why = session.client.job_why(&run.id).await?;
    let state = match (why.job.status, run.has_started) {
        (JobStatus::Pending, false) => "has not started",
        (JobStatus::Pending, true) => "is not running",
        (JobStatus::Starting, _) => "is starting",
        _ => return Ok(()),
    };
    let (name, program) = (&run.name, context.program);
    context.world.err.note(&format!("{name} {state}: {}", why.reason));
    if why.job.status == JobStatus::Starting && !is_followed {
        let hint = format!("`{program} logs -f {name}` waits for its output");
        context.world.err.hint(&hint);
    }
    Ok(())
}

fn line_count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number of lines"))
}

/// The run whose log is read. Its name may refer to another run meanwhile, its id does not.
pub struct Run {
    pub id: String,
    pub name: String,
    is_pending: bool,
    /// Also true if it was queued again.
    has_started: bool,
    /// How it had ended when the reading began.
    end: Option<JobStatus>,
    /// What it waits for, at the last check.
    reason: Option<String>,
}

impl Run {
    pub fn of(job: &JobView) -> Run {
        Run {
            id: job.id.clone(),
            name: job.name.clone(),
            is_pending: job.status == JobStatus::Pending,
            has_started: job.started.is_some(),
            end: Some(job.status).filter(|status| status.is_final()),
            reason: job.message.clone(),
        }
    }
}

/// How reading a log ended.
pub enum Reading {
    /// Everything was shown. With a body: the job is final.
    Ended(Option<LogEnd>),
    /// The user pressed Ctrl-C.
    Left,
}

/// Reads the log of a run and prints it.
pub async fn read(
    session: &Session,
    run: &Run,
    query: LogQuery,
    style: Style,
    context: &mut Context<'_>,
) -> Result<Reading, CliError> {
    let mut screen = LogScreen::new(style);
    let shown = show(session, run, query, &mut screen, context).await;
    screen.end(&mut context.world.out)?;
    // The bytes stay unchanged; a message after them on the same screen begins on a new line.
    if screen.is_within_line() && context.world.out.is_terminal && !matches!(shown, Ok(Reading::Left)) {
        context.world.err.line("");
    }
    shown
}

async fn show(
    session: &Session,
    run: &Run,
    query: LogQuery,
    screen: &mut LogScreen,
    context: &mut Context<'_>,
) -> Result<Reading, CliError> {
    let mut waiting = Waiting::of(run, &query);
    let follows = query.follow;
    let mut log = session.client.job_logs(&run.id, query);
    let mut leave = std::pin::pin!(tokio::signal::ctrl_c());
    let mut is_heard = false;
    loop {
        let event = {
            let mut next = std::pin::pin!(log.next());
            loop {
                tokio::select! {
                    biased;
                    event = next.as_mut() => break event,
                    _ = leave.as_mut() => return Ok(Reading::Left),
                    () = waiting.pause() => {
                        if let Some(reason) = waiting.look(&session.client, run).await {
                            screen.note(&reason, context.world)?;
                        }
                    }
                    () = screen.bars_are_due() => screen.print(&mut context.world.out)?,
                }
            }
        };
        // Only an existing worker can have been removed; one that never existed is a different error.
        let event = event.map_err(|error| {
            if is_heard {
                removed(&run.name, error)
            } else {
                error.into()
            }
        })?;
        let Some(event) = event else {
            return Ok(Reading::Ended(None));
        };
        is_heard = true;
        screen.show(&event, log.has_more(), context.world)?;
        match event {
            LogEvent::End(end) => return Ok(Reading::Ended(end)),
            // A job that was queued again has a log while it waits.
            LogEvent::Data { .. } if !run.has_started => waiting.is_over = true,
            LogEvent::Workers(workers) if !follows => {
                if let Some(note) = behind(&run.name, &workers, context.program) {
                    screen.note(&note, context.world)?;
                }
            }
            LogEvent::Gap { worker, from, to } => screen.note(&gap(&worker.name, from, to), context.world)?,
            LogEvent::Lost(_) => {
                screen.note("the connection to the server was lost; resuming", context.world)?;
            }
            _ => {}
        }
    }
}

/// Which workers may have written more than is shown, because they have no connection to the server now.
fn behind(job: &str, workers: &[Arc<LogWorker>], program: &str) -> Option<String> {
    let names = workers.iter().filter(|worker| worker.is_behind);
    let names: Vec<String> = names.map(|worker| worker.name.clone()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "not connected to the server now: {}; what they wrote last is missing here, and `{program} logs -f {job}` shows it \
             when they are back",
            some_of(&names)
        )
    })
}

/// Bytes that were rotated away or beyond the owner's quota, or not written because the disk was full.
fn gap(worker: &str, from: u64, to: u64) -> String {
    format!(
        "bytes {from} to {to} of the log of {worker} are missing: rotated away, over the storage quota, or the disk was full"
    )
}

/// Notifies the user who follows a pending job when the reason for waiting changes.
struct Waiting {
    reason: Option<String>,
    is_over: bool,
}

impl Waiting {
    fn of(run: &Run, query: &LogQuery) -> Waiting {
        Waiting {
            reason: run.reason.clone(),
            is_over: !(run.is_pending && query.follow),
        }
    }

    /// Until the next check; forever if there is nothing to check.
    async fn pause(&self) {
        if self.is_over {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }

    /// Returns the reason if it is another one. A failed check does not end the reading.
    async fn look(&mut self, client: &Client, run: &Run) -> Option<String> {
        let job = client.job_get(&run.id).await.ok()?.job;
        self.is_over = job.status != JobStatus::Pending;
        let reason = job
            .message
            .filter(|reason| !self.is_over && self.reason.as_ref() != Some(reason));
        self.reason = reason.clone().or_else(|| self.reason.take());
        reason
    }
}

/// Prints how the job ended and returns the exit code.
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
            .hint(&format!("`{} why {job}` has the details", context.program));
    }
    FAILED
}

/// Says that only the reading has ended, and not the job, unless it has.
pub async fn tell_left(session: &Session, run: &Run, context: &mut Context<'_>) {
    let (job, program) = (&run.name, context.program);
    context.world.err.line(match ended(session, run).await {
        Some(end) => format!("\nstopped reading; {job} has ended: {end}"),
        None => format!(
            "\ndetached; {job} continues: `{program} logs -f {job}` follows it again, `{program} kill {job}` stops it"
        ),
    });
}

/// How the run has ended, if it is known to have.
async fn ended(session: &Session, run: &Run) -> Option<JobStatus> {
    if run.end.is_some() {
        return run.end;
    }
    let job = tokio::time::timeout(PATIENCE, session.client.job_get(&run.id)).await;
    let status = job.ok()?.ok()?.job.status;
    status.is_final().then_some(status)
}
