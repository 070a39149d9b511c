//! `submit`: checks, uploads, starts, and says what to type next.

use std::path::PathBuf;

use paddlecloud_api::client::new_idempotency_key;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::jobs::{JobRequest, JobStatus, SubmitReply};
use paddlecloud_api::logs::LogQuery;
use paddlecloud_connect::check_programs;
use paddlecloud_connect::package::Package;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::spec::{JobSpec, Resources};

use super::logs::{self, Reading, Run};
use super::{Context, done, was_removed};
use crate::error::CliError;
use crate::log_view::Style;
use crate::machine_notes;
use crate::package;
use crate::printer::Format;
use crate::session::Session;
use crate::submission::{self, Source, Submission, whole_number};
use crate::transfer::location::settle_text;

/// Submit job to PaddlePaddle Cloud.
///
/// PACKAGE is the folder that holds your program (uploaded, without what `.gitignore` and `.paddleignore` name), or a
/// path `/pfs/…` that lies on the cluster already. What follows `--` is the command that starts a trainer:
/// `paddlectl submit -- python train.py` runs it in the current folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of the program; the current one when only `--` is given, none when `-image` holds it
    pub package: Option<PathBuf>,

    /// Name of the job: letters, digits, `-`, `.`; made from the folder's name when left out
    #[arg(long, visible_alias = "name", value_name = "NAME")]
    pub jobname: Option<String>,

    /// Number of trainers [default: 1]
    #[arg(long, short = 'p', value_name = "NUMBER", value_parser = whole_number)]
    pub parallelism: Option<i64>,

    /// Cores of each trainer: `2` or `500m` [default: 1]
    #[arg(long, short = 'c', value_name = "CORES")]
    pub cpu: Option<Cpu>,

    /// Cards of each trainer [default: 0]
    #[arg(long, value_name = "NUMBER", value_parser = whole_number)]
    pub gpu: Option<i64>,

    /// Memory of each trainer: a number and Ki, Mi, Gi, Ti, Pi, Ei (or K, M, G, T, P, E) [default: 1Gi]
    #[arg(long, short = 'm', value_name = "MEMORY")]
    pub memory: Option<Bytes>,

    /// Number of parameter servers; 0 for a job without them [default: as many as trainers]
    #[arg(long, value_name = "NUMBER", value_parser = whole_number)]
    pub pservers: Option<i64>,

    /// Cores of each parameter server [default: 1]
    #[arg(long, value_name = "CORES")]
    pub pscpu: Option<Cpu>,

    /// Memory of each parameter server [default: 1Gi]
    #[arg(long, value_name = "MEMORY")]
    pub psmemory: Option<Bytes>,

    /// Command that starts a trainer, run in the package's folder [default: `paddle train`]
    #[arg(long, value_name = "COMMAND", conflicts_with = "command")]
    pub entry: Option<String>,

    /// Configuration file of a v1 program; the trainer is then `paddle train --config=FILE`
    #[arg(long, short = 't', value_name = "FILE")]
    pub topology: Option<String>,

    /// Passes over the data [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = whole_number)]
    pub passes: Option<i64>,

    /// Image the workers run in [default: the server's]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Registry the image comes from, by the name given to `paddlectl registry -name`
    #[arg(long, value_name = "NAME")]
    pub registry: Option<String>,

    /// Command that starts a parameter server [default: `paddle pserver`]
    #[arg(long, value_name = "COMMAND", help_heading = "More options")]
    pub psentry: Option<String>,

    /// Ports a parameter server listens on before trainers start [default: 2 for `paddle pserver`, else 1]
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = whole_number,
        help_heading = "More options"
    )]
    pub psports: Option<i64>,

    /// Environment variable of every worker; may be given often
    #[arg(long, value_name = "NAME=VALUE", help_heading = "More options")]
    pub env: Vec<String>,

    /// Jobs with a higher priority start first [default: 0]
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = whole_number,
        help_heading = "More options"
    )]
    pub priority: Option<i64>,

    /// How often a worker that failed is started again [default: 0]
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = whole_number,
        help_heading = "More options"
    )]
    pub retries: Option<i64>,

    /// Stop the job after this time: `90s`, `10m`, `1h30m`
    #[arg(long, value_name = "TIME", help_heading = "More options")]
    pub max_runtime: Option<String>,

    /// Give up when not all workers are there after this time [default: 10m]
    #[arg(long, value_name = "TIME", help_heading = "More options")]
    pub start_limit: Option<String>,

    /// Time between asking a worker to end and ending it [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "More options")]
    pub grace: Option<String>,

    /// Follow the log until the job ends; Ctrl-C leaves the job running
    #[arg(long, short = 'f', help_heading = "More options")]
    pub follow: bool,

    /// Check everything, start nothing
    #[arg(long, help_heading = "More options")]
    pub dry_run: bool,

    /// How to print the job
    #[arg(long, short, value_name = "FORMAT", help_heading = "More options", value_parser = Format::for_programs_or_names())]
    pub output: Option<Format>,

    /// The trainer's command, word by word
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Submission {
        source,
        mut request,
        spec,
    } = submission::of_args(args)?;
    if spec.runs_paddle_train() && spec.topology.is_none() && spec.image.is_none() {
        return Err(no_trainer_yet(&request));
    }
    tell_plan(&spec, args.jobname.is_some(), context);
    if let (None, Some(folder)) = (&args.jobname, submission::unspeakable_folder(&source)) {
        context.world.err.note(&format!(
            "a job's name has letters, digits, `-` and `.` only, of which `{folder}` has none: \
             it is called `{}`; `-jobname` gives it another",
            spec.name
        ));
    }
    if let (Some(topology), Some(entry)) = (&request.topology, &request.entry) {
        context.world.err.note(&format!(
            "`-topology {topology}` decides what runs; `{entry}` does not"
        ));
    }
    let package = match &source {
        Source::Local(folder) => Some(package::collect(folder, context.world)?),
        Source::Cluster(_) | Source::Image => None,
    };
    if let Some(package) = &package {
        check_programs(&request, package)?;
        request.package_id = Some(package.id());
        request.package_name = Some(package.name.clone());
    }
    let session = context.session().await?;
    if session.is_embedded {
        request.shell_env = context.world.env.shell();
    }
    if let Some(path) = &mut request.job_package {
        settle_text(&session, path).await?;
    }
    let mut reply = start(&session, &request, package.as_ref(), context).await?;
    announce(&session, &mut reply, args.output, context).await?;
    if args.follow && !args.dry_run {
        return follow(&session, &reply, context).await;
    }
    done()
}

/// A job that could only fail is not worth an upload. With `-topology` or `-image` the documents' own lines mean
/// `paddle train`; there the server says so and takes the job.
fn no_trainer_yet(request: &JobRequest) -> CliError {
    let problem = match &request.entry {
        None => "no `-entry` is given, and its default, `paddle train`, comes with a later version",
        Some(_) => "`paddle train` comes with a later version",
    };
    CliError::refused(problem).with_hint("name your own program, for example `-entry 'python train.py'`")
}

/// What was understood, before anything happens. A name that was left out is the server's to give.
fn tell_plan(spec: &JobSpec, named: bool, context: &mut Context<'_>) {
    let name = if named {
        format!("{}: ", spec.name)
    } else {
        String::new()
    };
    let servers = match spec.pservers {
        0 => "no parameter servers".to_owned(),
        count => format!(
            "{} ({})",
            counted(count, "parameter server"),
            each(spec.pservers, spec.pserver)
        ),
    };
    context.world.err.line(format!(
        "{name}{} ({}), {servers}",
        counted(spec.parallelism, "trainer"),
        each(spec.parallelism, spec.trainer)
    ));
    context
        .world
        .err
        .line(format!("  runs `{}`", spec.trainer_command()));
}

fn counted(count: u32, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

fn each(count: u32, resources: Resources) -> String {
    let gpu = match resources.gpu {
        0 => String::new(),
        count => format!(", {count} gpu"),
    };
    let each = if count == 1 { "" } else { " each" };
    format!("{} cpu, {}{gpu}{each}", resources.cpu, resources.memory)
}

/// The server checks everything else before it asks for the package; where it has it already, nothing is sent.
async fn start(
    session: &Session,
    request: &JobRequest,
    package: Option<&Package>,
    context: &mut Context<'_>,
) -> Result<SubmitReply, CliError> {
    let (client, key) = (&session.client, new_idempotency_key());
    let reply = match (client.job_submit(request, &key).await, package) {
        (Err(missing), Some(package)) if missing.refusal() == Some(ErrorName::PackageMissing) => {
            let interrupt = async { drop(tokio::signal::ctrl_c().await) };
            package::upload(client, package, interrupt, context.world).await?;
            client.job_submit(request, &key).await?
        }
        (Ok(reply), Some(_)) if !request.dry_run => {
            package::tell_uploaded(context.world);
            reply
        }
        (reply, _) => reply?,
    };
    if request.dry_run {
        context.world.err.line(format!(
            "Dry run: everything is in order, nothing was started; it would be called {}",
            reply.job.name
        ));
    } else {
        context
            .world
            .err
            .line(format!("Starting {} job ... Done", reply.engine));
    }
    Ok(reply)
}

/// Says what the server added, what to type next, and prints the job when that was asked for.
pub async fn announce(
    session: &Session,
    reply: &mut SubmitReply,
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    machine_notes::tell(session, &reply.notes, context).await;
    let is_made = !reply.id.is_empty();
    if is_made && reply.job.status == JobStatus::Pending {
        tell_reason(session, reply, context).await;
    }
    let job = &reply.job;
    match format {
        Some(Format::Name) => context.world.out.line(&job.name)?,
        _ => drop(context.world.out.structured(format, job)?),
    }
    if !is_made {
        return Ok(());
    }
    let (program, name) = (context.program, &job.name);
    let messages = &mut context.world.err;
    messages.line(format!("{name} is submitted ({}). Next:", reply.id));
    messages.line(format!("  {program} logs -f {name}"));
    messages.line(format!("  {program} get workers {name}"));
    messages.line(format!("  {program} kill {name}"));
    Ok(())
}

/// Says why the job waits. The reply came before anybody had worked that out, and is set right here.
async fn tell_reason(session: &Session, reply: &mut SubmitReply, context: &mut Context<'_>) {
    // A job that was made is not reported as a failure because its reason cannot be had.
    if let Ok(why) = session.client.job_why(&reply.id).await {
        reply.job.status = why.job.status;
        reply.job.message = Some(why.reason);
    }
    if reply.job.status == JobStatus::Pending
        && let Some(reason) = &reply.job.message
    {
        context.world.err.note(reason);
    }
}

/// Shows the new job's log until it ends.
pub async fn follow(
    session: &Session,
    reply: &SubmitReply,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    context.world.out.flush()?;
    let query = LogQuery {
        follow: true,
        ..LogQuery::default()
    };
    let style = Style {
        colour: context.world.out.colour,
        steps: context.world.out.is_terminal,
        ..Style::default()
    };
    let run = Run::of(&reply.job);
    match logs::read(session, &run, query, style, context).await? {
        Reading::Ended(Some(end)) => Ok(logs::tell_end(&run.name, &end, context)),
        Reading::Ended(None) => Err(was_removed(&run.name)),
        Reading::Left => {
            logs::tell_left(&run.name, context);
            done()
        }
    }
}
