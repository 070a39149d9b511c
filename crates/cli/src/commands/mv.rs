//! `mv <src>... <dest>`: moves files within the cluster.

use std::ffi::OsString;

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::split_last;
use paddlecloud_pfs::{Existing, PfsPath};
use paddlecloud_transfer::{FileClient, FileService};

use super::Context;
use crate::error::CliError;
use crate::transfer::location::{Location, Remote, translate_datacenter};
use crate::transfer::remote::{self, RemoteSource, is_about_one_path, is_written_within};
use crate::transfer::report::{Lost, TransferTotals};
use crate::transfer::rules::{self, Request, Style, Target};
use crate::transfer::{into_itself, no_place, place_there};

/// Move or rename files
///
/// Works like mv(1). A move is atomic, except on S3 and between the public folder and a system user's home, where files
/// are copied and then removed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sources, then the destination; `*` and `?` match names
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<OsString>,

    /// Never overwrite
    #[arg(long, short = 'n')]
    no_clobber: bool,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let paths = Location::parse_all(&args.paths)?;
    let mut paths: Vec<Remote> = paths.into_iter().map(on_the_cluster).collect::<Result<_, _>>()?;
    let session = context.session().await?;
    translate_datacenter(&session, &mut paths).await?;
    let (dest, arguments) = paths.split_last().expect("clap requires two");
    let files = session.client.files();
    let mut tally = TransferTotals::default();
    let found = remote::find_all(&files, arguments, &mut tally).await?;
    let sources = found
        .into_iter()
        .map(|view| remote::node(view.path.0, view.meta))
        .collect();
    let places = places(&files, sources, dest, &mut tally).await?;
    let existing = match args.no_clobber {
        true => Existing::Keep,
        false => Existing::Replace,
    };
    for (source, place) in places {
        match files.rename(&source, &place, existing).await {
            Ok(()) => {}
            Err(error) if args.no_clobber && error.refusal() == Some(ErrorName::Conflict) => {
                context.world.err.note(&format!("`{place}` is left unchanged"));
            }
            Err(error) if is_about_one_path(&error) => tally.refuse(source.to_string(), &error),
            Err(error) => return Err(error.into()),
        }
    }
    tally.end("move", context.world)
}

fn on_the_cluster(location: Location) -> Result<Remote, CliError> {
    match location {
        Location::Remote(remote) => Ok(remote),
        other => Err(CliError::usage(format!("`{other}` is not on the cluster"))
            .with_hint("`mv` works within the cluster; use `cp`, then `rm`, to move files from or to it")),
    }
}

/// The destination of each source; missing parent folders are created.
async fn places(
    files: &FileClient<'_>,
    sources: Vec<RemoteSource>,
    dest: &Remote,
    tally: &mut TransferTotals,
) -> Result<Vec<(PfsPath, PfsPath)>, CliError> {
    let request = Request {
        target: remote::target(files, &dest.path).await?,
        slash: dest.path.has_trailing_slash(),
        recursive: true,
        style: Style::Cp,
    };
    let plain: Vec<rules::TransferSource> = sources.iter().map(|source| source.source.clone()).collect();
    let landings =
        rules::landings(&plain, request).map_err(|error| no_place("move", &dest.path.to_string(), &error))?;
    let mut places = Vec::new();
    for (source, landing) in sources.into_iter().zip(landings) {
        match landing
            .map_err(|error| error.to_string())
            .and_then(|landing| place_there(&dest.path, &landing).map_err(|error| error.to_string()))
        {
            Ok(place) if place.place() != source.path.place() && is_written_within(&place, &source.path) => {
                tally.lose(into_itself(&source.path, &place));
            }
            Ok(place) => places.push((source.path, place)),
            Err(reason) => tally.lose(Lost::new(source.source.shown, reason)),
        }
    }
    if request.target == Target::Missing && !places.is_empty() {
        make_way(files, &dest.path, request.slash).await?;
    }
    Ok(places)
}

async fn make_way(files: &FileClient<'_>, dest: &PfsPath, is_folder: bool) -> Result<(), CliError> {
    let folder = match is_folder {
        true => Some(dest.clone()),
        false => split_last(dest).map(|(parent, _)| parent),
    };
    if let Some(folder) = folder {
        files.mkdir(&folder, true).await?;
    }
    Ok(())
}
