//! `output <job> [<dest>]`: fetches what a run wrote to its folder `output`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::jobs::JobView;
use paddlecloud_pfs::PfsPath;
use paddlecloud_transfer::{FileService, ListOptions};

use super::{Context, job_ref};
use crate::error::CliError;
use crate::session::Session;
use crate::transfer::location::{Location, shown};
use crate::transfer::{self, TransferArgs};

/// Download the results of a job
///
/// Downloads what the workers of a run wrote to `output`: saved models and the logs `node_0/train.log` and so on. The
/// contents of `output` become the contents of DEST, which is created if it does not exist. Unchanged files are skipped:
/// run the same command again to resume, or to fetch what a running job has written since.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A name (its latest run), an id, or `last`
    #[arg(default_value = "last")]
    job: String,

    /// The local folder [default: the name of the job and `-output`, in the current folder]
    dest: Option<OsString>,

    #[command(flatten)]
    transfer: TransferArgs,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let job = job_ref(&args.job)?;
    let dest = args.dest.as_ref().map(local_folder).transpose()?;
    let session = context.session().await?;
    let job = session.client.job_get(&job).await?.job;
    let dest = dest.unwrap_or_else(|| PathBuf::from(format!("{}-output", job.name)));
    let folder = output_of(&job, &session).await?;
    if !job.status.is_final() {
        context.world.err.note(&format!(
            "{} is {}: this is its output so far",
            job.name, job.status
        ));
    }
    tell_what_stays(&folder, &dest, &session, context).await?;
    transfer::fetch_contents(&folder, dest, &session, &args.transfer, context.world).await
}

fn local_folder(dest: &OsString) -> Result<PathBuf, CliError> {
    match Location::parse(dest)? {
        Location::Local(path) => Ok(path),
        Location::Remote(_) | Location::Pipe => Err(CliError::usage(format!(
            "`{}` is not a local folder",
            shown(Path::new(dest))
        ))
        .with_hint("`cp` copies on the cluster, and `cat` prints files")),
    }
}

/// The path of the run's output, if there is any.
async fn output_of(job: &JobView, session: &Session) -> Result<String, CliError> {
    let has_none = |why: &str| CliError::refused(format!("{} has no output: {why}", job.name));
    if job.started.is_none() {
        return Err(has_none("it has not started"));
    }
    let Some(folder) = &job.output else {
        return Err(has_none("its files are not on the cluster"));
    };
    let path: PfsPath = folder
        .parse()
        .map_err(|error| CliError::refused(format!("the server replied with an invalid path: {error}")))?;
    match session.client.files().stat(&path).await {
        Ok(_) => Ok(folder.clone()),
        Err(error) if error.refusal() == Some(ErrorName::NotFound) => {
            Err(has_none("it was removed, or the job never wrote any")
                .with_hint("`prune --outputs` and `rm` remove outputs"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Notes entries of the destination that are not from this run: they may be another run's results.
async fn tell_what_stays(
    folder: &str,
    dest: &Path,
    session: &Session,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let Ok(there) = fs::read_dir(dest) else {
        return Ok(());
    };
    let mut others: BTreeSet<OsString> = there.flatten().map(|entry| entry.file_name()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let path: PfsPath = folder.parse().expect("it was parsed before");
    let files = session.client.files();
    let mut listing = files.list(&path, ListOptions::default()).await?;
    while let Some(entry) = listing.next_readable().await? {
        others.retain(|name| name.as_encoded_bytes() != entry.path.as_bytes());
    }
    if let Some(first) = others.first() {
        let what = match others.len() {
            1 => format!("`{}`", shown(Path::new(first))),
            count => format!("`{}` and {} more", shown(Path::new(first)), count - 1),
        };
        let note = format!("`{}` keeps {what}, not written by this run", shown(dest));
        context.world.err.note(&note);
    }
    Ok(())
}
