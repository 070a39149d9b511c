//! `submit`: checks, uploads, starts, and prints what to type next.

use std::path::PathBuf;

use paddlecloud_api::client::{Client, new_idempotency_key};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::jobs::{Amount, JobRequest, JobStatus, SubmitReply};
use paddlecloud_api::logs::LogQuery;
use paddlecloud_connect::package::{Delivery, Package};
use paddlecloud_connect::{check_programs, python_note};
use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::spec::{JobSpec, Resources};

use super::logs::{self, Reading, Run};
use super::{Context, done, was_removed};
use crate::error::CliError;
use crate::log_view::{Reader, Style};
use crate::machine_notes;
use crate::package;
use crate::printer::Format;
use crate::session::Session;
use crate::submission::{self, PackageSource, Submission, whole_number};
use crate::transfer::location::translate_datacenter_in_text;

/// Submit job to PaddlePaddle Cloud.
///
/// PACKAGE is the folder that contains your program, or a path `/pfs/…` that is already on the cluster. The folder is
/// uploaded without the files that `.gitignore` and `.paddleignore` match, and without virtual environments, caches and
/// credentials; a line `!FILE` in `.paddleignore` includes one. The words after `--` are the command that starts a trainer:
/// `paddlectl submit -- python train.py` runs it in the current folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of the program; the current one if only `--` is given, none if the image contains the program
    pub package: Option<PathBuf>,

    /// Name of the job: letters, digits, `-`, `.`; default: derived from the folder's name
    #[arg(long, visible_alias = "name", value_name = "NAME")]
    pub jobname: Option<String>,

    /// Number of trainers [default: 1]
    #[arg(long, short = 'p', value_name = "NUMBER", value_parser = whole_number)]
    pub parallelism: Option<i64>,

    /// Cores of each trainer: `2` or `500m` [default: 1]
    #[arg(long, short = 'c', value_name = "CORES")]
    pub cpu: Option<Cpu>,

    /// GPUs of each trainer [default: 0]
    #[arg(long, value_name = "NUMBER", value_parser = whole_number)]
    pub gpu: Option<i64>,

    /// Type of the trainers' GPUs: `a100`; -gpu is then 1 by default
    #[arg(long, value_name = "TYPE", help_heading = "More options")]
    pub gpu_type: Option<String>,

    /// Label that the nodes of all workers have; repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "More options")]
    pub node_label: Vec<String>,

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

    /// Most that each worker may write to the disk of its node, outside `/pfs`; on Kubernetes only [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "More options")]
    pub disk: Option<Bytes>,

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

    /// Environment variable for every worker; repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "More options")]
    pub env: Vec<String>,

    /// Stored secret for every worker, in the variable VARIABLE or the name in capitals; repeatable
    #[arg(long, value_name = "NAME[=VARIABLE]", help_heading = "More options")]
    pub secret: Vec<String>,

    /// Jobs with a higher priority start first [default: 0]
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = whole_number,
        help_heading = "More options"
    )]
    pub priority: Option<i64>,

    /// How often a failed worker is restarted [default: 0]
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

    /// Fail the job if not all workers are ready after this time [default: 10m]
    #[arg(long, value_name = "TIME", help_heading = "More options")]
    pub start_limit: Option<String>,

    /// Time between SIGTERM and SIGKILL [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "More options")]
    pub grace: Option<String>,

    /// One line about this run, shown by `describe` and, on a wide terminal, by `get jobs`
    #[arg(long, value_name = "TEXT", help_heading = "More options")]
    pub comment: Option<String>,

    /// Continue the parameter-server training of an ended run: its id, its name, or `last`
    #[arg(long, value_name = "RUN", help_heading = "More options")]
    pub resume: Option<String>,

    /// Follow the log until the job ends; Ctrl-C leaves the job running
    #[arg(long, short = 'f', help_heading = "More options")]
    pub follow: bool,

    /// Check everything, start nothing
    #[arg(long, help_heading = "More options")]
    pub dry_run: bool,

    /// With --dry-run: print Kubernetes manifests that `kubectl apply` runs without a server
    #[arg(long, requires = "dry_run", help_heading = "More options")]
    pub manifests: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", help_heading = "More options", value_parser = Format::for_programs_or_names())]
    pub output: Option<Format>,

    /// The trainer's command, word by word
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Args {
    /// The flags as a request. Nothing is checked here, and nothing gets a default.
    pub fn request(&self, source: &PackageSource) -> Result<JobRequest, CliError> {
        Ok(JobRequest {
            name: self.jobname.clone(),
            job_package: match source {
                PackageSource::Cluster(path) => Some(path.clone()),
                PackageSource::Local(_) | PackageSource::Image => None,
            },
            parallelism: self.parallelism,
            cpu: self.cpu.map(|cpu| Amount::Text(cpu.to_string())),
            gpu: self.gpu,
            gpu_type: self.gpu_type.clone(),
            node_labels: submission::node_labels(&self.node_label)?,
            memory: self.memory.map(|memory| Amount::Text(memory.to_string())),
            pservers: self.pservers,
            pscpu: self.pscpu.map(|cpu| Amount::Text(cpu.to_string())),
            psmemory: self.psmemory.map(|memory| Amount::Text(memory.to_string())),
            disk: self.disk.map(|disk| Amount::Text(disk.to_string())),
            topology: self.topology.clone(),
            entry: submission::entry(self),
            psentry: self.psentry.clone(),
            psports: self.psports,
            passes: self.passes,
            image: self.image.clone(),
            registry: self.registry.clone(),
            envs: submission::envs(&self.env)?,
            secrets: self.secret.clone(),
            priority: self.priority,
            retries: self.retries,
            max_runtime: self.max_runtime.clone().map(Amount::Text),
            start_limit: self.start_limit.clone().map(Amount::Text),
            grace: self.grace.clone().map(Amount::Text),
            comment: self.comment.clone(),
            resume: self.resume.clone(),
            dry_run: self.dry_run,
            manifests: self.manifests,
            ..JobRequest::default()
        })
    }
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Submission {
        source,
        mut request,
        spec,
    } = submission::of_args(args)?;
    tell_plan(&spec, args.jobname.is_some(), context);
    if let (None, Some(folder)) = (&args.jobname, submission::unspeakable_folder(&source)) {
        context.world.err.note(&format!(
            "`{folder}` contains no character that a job name may have: \
             the job is named `{}`; choose another name with `-jobname`",
            spec.name
        ));
    }
    if let (Some(topology), Some(entry)) = (&request.topology, &request.entry) {
        context.world.err.note(&format!(
            "`-topology {topology}` overrides the entry; `{entry}` is not run"
        ));
    }
    let package = match &source {
        PackageSource::Local(folder) => Some(package::collect(folder, context.world)?),
        PackageSource::Cluster(_) | PackageSource::Image => None,
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
        translate_datacenter_in_text(&session, path).await?;
    }
    let mut reply = start(&session, &request, package.as_ref(), context).await?;
    announce(&session, &mut reply, args.output, context).await?;
    if args.follow && !args.dry_run {
        return follow(&session, &reply, context).await;
    }
    done()
}

/// Prints the plan before anything happens. The server chooses an omitted name.
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
            each(spec.pservers, spec.pserver, None)
        ),
    };
    context.world.err.line(format!(
        "{name}{} ({}), {servers}",
        counted(spec.parallelism, "trainer"),
        each(spec.parallelism, spec.trainer, spec.gpu_type.as_ref())
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

fn each(count: u32, resources: Resources, gpu_type: Option<&GpuType>) -> String {
    let gpu = match (resources.gpu, gpu_type) {
        (0, _) => String::new(),
        (count, None) => format!(", {count} gpu"),
        (count, Some(name)) => format!(", {count} gpu ({name})"),
    };
    let each = if count == 1 { "" } else { " each" };
    format!("{} cpu, {}{gpu}{each}", resources.cpu, resources.memory)
}

/// The server checks everything else before it asks for the package; if it already has it, nothing is sent.
async fn start(
    session: &Session,
    request: &JobRequest,
    package: Option<&Package>,
    context: &mut Context<'_>,
) -> Result<SubmitReply, CliError> {
    let reply = match package {
        Some(package) => with_package(&session.client, request, package, context).await?,
        None => session.client.job_submit(request, &new_idempotency_key()).await?,
    };
    if request.dry_run {
        context.world.err.line(format!(
            "Dry run: no problems found, nothing was started; the job would be named {}",
            reply.job.name
        ));
    } else {
        let verb = match reply.job.status {
            JobStatus::Pending => "Queueing",
            _ => "Starting",
        };
        context
            .world
            .err
            .line(format!("{verb} {} job ... Done", reply.engine));
    }
    Ok(reply)
}

/// Submits until the server has the package. A small one is listed in the request, so that it costs no request of its own.
async fn with_package(
    client: &Client,
    request: &JobRequest,
    package: &Package,
    context: &mut Context<'_>,
) -> Result<SubmitReply, CliError> {
    let (mut request, key) = (request.clone(), new_idempotency_key());
    package.list_in(&mut request);
    let mut delivery = Delivery::of(client, package);
    loop {
        match client.job_submit(&request, &key).await {
            Ok(reply) => {
                if !request.dry_run && !delivery.has_begun() {
                    package::tell_uploaded(context.world);
                }
                return Ok(reply);
            }
            Err(missing) if missing.refusal() == Some(ErrorName::PackageMissing) => {
                if !delivery.has_begun() {
                    package::confirm(client, package, context.world).await?;
                }
                let interrupt = async { drop(tokio::signal::ctrl_c().await) };
                package::upload(&mut delivery, missing, interrupt, context.world).await?;
            }
            Err(error) => delivery.after(error).await?,
        }
    }
}

/// Prints the server's notes and what to type next, and the job if requested.
pub async fn announce(
    session: &Session,
    reply: &mut SubmitReply,
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    machine_notes::tell(session, &reply.notes, context).await;
    if let Some(note) = python_note(reply, context.world.env.python_environment()) {
        context.world.err.note(&note);
    }
    let is_made = !reply.id.is_empty();
    if is_made && reply.job.status == JobStatus::Pending {
        tell_reason(session, reply, context).await;
    }
    if !reply.manifests.is_empty() {
        return print_manifests(&reply.manifests, format, context);
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

/// Documents for `kubectl apply -f -`; as JSON, one list.
fn print_manifests(
    objects: &[serde_json::Value],
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if format == Some(Format::Json) {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        out.structured(format, &list)?;
        return Ok(());
    }
    for object in objects {
        out.line("---")?;
        out.structured(Some(Format::Yaml), object)?;
    }
    Ok(())
}

/// Prints why the job waits. The reply was sent before the reason was known, so it is completed here.
async fn tell_reason(session: &Session, reply: &mut SubmitReply, context: &mut Context<'_>) {
    // An accepted job is not reported as a failure because its reason is unavailable.
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
    let reader = match context.world.out.is_terminal {
        true => Reader::Owner,
        false => Reader::Raw,
    };
    let style = Style {
        reader,
        colour: context.world.out.colour,
        ..Style::default()
    };
    let run = Run::of(&reply.job);
    match logs::read(session, &run, query, style, context).await? {
        Reading::Ended(Some(end)) => Ok(logs::tell_end(&run.name, &end, context)),
        Reading::Ended(None) => Err(was_removed(&run.name)),
        Reading::Left => {
            logs::tell_left(session, &run, context).await;
            done()
        }
    }
}
