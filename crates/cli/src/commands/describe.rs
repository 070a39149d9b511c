//! `describe <job>`: everything that is known about one run.

use jiff::Timestamp;
use paddlecloud_api::jobs::{JobDetail, JobView, ObjectView, WorkerView};

use super::{Context, done, job_ref};
use crate::error::CliError;
use crate::job_table;
use crate::printer::{Format, Printer, Table};
use crate::time_text::rfc3339;

/// Show everything about a job: its settings, workers and events
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    #[arg(default_value = "last")]
    job: String,

    /// Show only the job's objects in the Kubernetes cluster
    #[arg(long)]
    objects: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let session = context.session().await?;
    let detail = session.client.job_get(&job).await?;
    if args.objects {
        return show_objects(&detail, args.output, context);
    }
    if !context.world.out.structured(args.output, &detail)? {
        let now = (context.world.now)();
        show(&detail, &mut context.world.out, now)?;
    }
    done()
}

/// As `kubectl get` wants them: kind, namespace, name.
fn show_objects(
    detail: &JobDetail,
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let out = &mut context.world.out;
    if !out.structured(format, &detail.objects)? {
        let row =
            |object: &ObjectView| vec![object.kind.clone(), object.namespace.clone(), object.name.clone()];
        let mut table = Table::new(&["KIND", "NAMESPACE", "NAME"]);
        detail.objects.iter().for_each(|object| table.push(row(object)));
        out.table(&table)?;
    }
    if detail.objects.is_empty() {
        let name = &detail.job.name;
        let note =
            format!("{name} has no objects in a cluster: it is pending, has ended, or runs on one machine");
        context.world.err.note(&note);
    }
    done()
}

fn show(detail: &JobDetail, out: &mut Printer, now: Timestamp) -> Result<(), CliError> {
    for (name, value) in rows(&detail.job) {
        out.line(format!("{name:<13}{}", indented(&value, 13)))?;
    }
    if !detail.workers.is_empty() {
        out.line("")?;
        show_workers(&detail.workers, out, now)?;
    }
    if !detail.events.is_empty() {
        out.line("")?;
        for event in &detail.events {
            out.line(format!("{}  {}", rfc3339(event.at), indented(&event.text, 22)))?;
        }
    }
    Ok(())
}

/// The text with all lines but the first indented, so that a value of several lines cannot look like further rows.
fn indented(text: &str, columns: usize) -> String {
    text.replace('\n', &format!("\n{:columns$}", ""))
}

/// A table of fixed width, then how workers ended: these are sentences of any length.
fn show_workers(workers: &[WorkerView], out: &mut Printer, now: Timestamp) -> Result<(), CliError> {
    out.table(&job_table::worker_details(workers, now).for_people())?;
    for worker in workers {
        if let Some(message) = &worker.message {
            let message = indented(message, 4);
            out.line(format!("{}-{}: {message}", worker.role, worker.index))?;
        }
    }
    Ok(())
}

fn rows(job: &JobView) -> Vec<(&'static str, String)> {
    let gpus = match (&job.gpu_type, job.gpu) {
        (_, 0) => String::new(),
        (None, count) => format!(", {count} gpu"),
        (Some(name), count) => format!(", {count} gpu ({name})"),
    };
    let labels = job.node_labels.iter();
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    let servers = match job.pservers {
        0 => "0".to_owned(),
        count => format!("{count} × {} cpu, {}", job.pscpu, job.psmemory),
    };
    let mut rows = vec![
        ("name", job.name.clone()),
        ("id", job.id.clone()),
        ("status", job.status.to_string()),
    ];
    rows.extend(job.message.clone().map(|message| ("message", message)));
    rows.extend(job.comment.clone().map(|comment| ("comment", comment)));
    rows.extend(job.resumed_from.clone().map(|run| ("resumed from", run)));
    rows.extend([
        ("user", job.user.clone()),
        ("datacenter", job.datacenter.clone()),
        (
            "trainers",
            format!("{} × {} cpu, {}{gpus}", job.parallelism, job.cpu, job.memory),
        ),
        ("pservers", servers),
    ]);
    rows.extend((!labels.is_empty()).then(|| ("node labels", labels.join(", "))));
    rows.extend(job.disk.clone().map(|disk| ("disk", format!("{disk} each"))));
    rows.extend([("entry", job.entry.clone())]);
    if job.pservers > 0 {
        rows.push(("psentry", job.psentry.clone()));
    }
    let optional = [
        ("topology", job.topology.clone()),
        ("package", job.job_package.clone()),
        ("output", job.output.clone()),
        ("image", job.image.clone()),
        ("registry", job.registry.clone()),
        ("max-runtime", job.max_runtime.clone()),
    ];
    rows.extend(
        optional
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    rows.extend([
        ("passes", job.passes.to_string()),
        ("priority", job.priority.to_string()),
        ("retries", job.retries.to_string()),
        ("start-limit", job.start_limit.clone()),
        ("grace", job.grace.clone()),
        ("submitted", rfc3339(job.submitted)),
    ]);
    rows.extend(job.started.map(|time| ("started", rfc3339(time))));
    rows.extend(job.completed.map(|time| ("completed", rfc3339(time))));
    rows.extend(
        job.envs
            .iter()
            .map(|(name, value)| ("env", format!("{name}={value}"))),
    );
    rows
}
