//! `pfs uploads [--drop]`: unfinished uploads.

use std::ffi::OsString;

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{OURS, UnfinishedUpload};
use paddlecloud_transfer::FileService;

use super::Context;
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::time_text::{rfc3339, size};
use crate::transfer::location::{Remote, settle};
use crate::transfer::remote::is_about_one_path;
use crate::transfer::report::{Lost, TransferTotals};

/// List unfinished uploads, or discard them
///
/// An unfinished upload keeps its space reserved so that the same `cp` or `submit` can resume it. It expires three days
/// after its last byte. `--drop` discards uploads by id or path, or all of them with `--all`, including files being
/// sent. A package whose `submit` is running is kept.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ids, or paths `/pfs/…` where the files would appear; default: all
    uploads: Vec<OsString>,

    /// Discard them and everything received
    #[arg(long)]
    drop: bool,

    /// With `--drop`: all uploads
    #[arg(long, requires = "drop", conflicts_with = "uploads")]
    all: bool,

    /// Print readable sizes: `3.4 MB`
    #[arg(id = "help", long = "human-readable", short = 'h')]
    human: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    if args.drop && args.uploads.is_empty() && !args.all {
        return Err(CliError::usage("`--drop` needs an id, a path or `--all`")
            .with_hint("name them by id or path, or write `--drop --all`"));
    }
    let mut wanted = parse(&args.uploads)?;
    let session = context.session().await?;
    settle(&session, wanted.iter_mut().filter_map(UploadName::as_path)).await?;
    let files = session.client.files();
    let mut tally = TransferTotals::default();
    let found = choose(files.unfinished().await?, &wanted, &mut tally);
    if !args.drop {
        print(&found, args, context)?;
        return tally.end("show", context.world);
    }
    let (mut count, mut freed) = (0, 0);
    for upload in &found {
        match files.give_up(&upload.id).await {
            Ok(()) => (count, freed) = (count + 1, freed + kept_for(upload)),
            // It was finished meanwhile.
            Err(error) if error.refusal() == Some(ErrorName::NotFound) => {}
            Err(error) if is_about_one_path(&error) => tally.refuse(upload.path.to_string(), &error),
            Err(error) => return Err(error.into()),
        }
    }
    if count > 0 || tally.failures() == 0 {
        let line = format!("{} dropped, {} freed", uploads(count), size(freed));
        context.world.err.line(line);
    }
    tally.end("give up", context.world)
}

/// What an upload reserves: its whole size, but for a package only what has arrived.
fn kept_for(upload: &UnfinishedUpload) -> u64 {
    let mut parts = upload.path.0.place().path.parts();
    match parts.next() == Some(OURS.as_bytes()) {
        true => upload.arrived,
        false => upload.size,
    }
}

/// One of the named uploads.
#[derive(Debug)]
enum UploadName {
    Id(String),
    Path(Remote),
}

impl UploadName {
    fn as_path(&mut self) -> Option<&mut Remote> {
        match self {
            UploadName::Path(remote) => Some(remote),
            UploadName::Id(_) => None,
        }
    }

    fn is(&self, upload: &UnfinishedUpload) -> bool {
        match self {
            UploadName::Id(id) => *id == upload.id.to_string(),
            UploadName::Path(remote) => remote.path.place() == upload.path.0.place(),
        }
    }

    fn shown(&self) -> String {
        match self {
            UploadName::Id(id) => id.clone(),
            UploadName::Path(remote) => remote.path.to_string(),
        }
    }
}

fn parse(words: &[OsString]) -> Result<Vec<UploadName>, CliError> {
    let wanted = |word: &OsString| match word.to_str().filter(|word| !word.contains('/')) {
        Some(id) => Ok(UploadName::Id(id.to_owned())),
        None => Remote::parse(word).map(UploadName::Path),
    };
    words.iter().map(wanted).collect()
}

/// The named uploads, or all; names without an upload are reported.
fn choose(
    all: Vec<UnfinishedUpload>,
    wanted: &[UploadName],
    tally: &mut TransferTotals,
) -> Vec<UnfinishedUpload> {
    if wanted.is_empty() {
        return all;
    }
    for missing in wanted
        .iter()
        .filter(|wanted| !all.iter().any(|one| wanted.is(one)))
    {
        tally.lose(Lost::new(missing.shown(), "there is no such unfinished upload"));
    }
    let is_wanted = |upload: &UnfinishedUpload| wanted.iter().any(|wanted| wanted.is(upload));
    all.into_iter().filter(is_wanted).collect()
}

fn print(found: &[UnfinishedUpload], args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if args.output == Some(Format::Name) {
        return found
            .iter()
            .try_for_each(|upload| out.line(upload.id.to_string()));
    }
    if out.structured(args.output, &found)? || found.is_empty() {
        return Ok(());
    }
    let bytes = |count: u64| match args.human {
        true => size(count),
        false => count.to_string(),
    };
    let mut table = Table::new(&["ID", "ARRIVED", "SIZE", "TOUCHED", "PATH"]);
    for upload in found {
        table.push(vec![
            upload.id.to_string(),
            bytes(upload.arrived),
            bytes(upload.size),
            rfc3339(upload.touched),
            upload.path.to_string(),
        ]);
    }
    out.table(&table)
}

fn uploads(count: u64) -> String {
    match count {
        1 => "1 upload".to_owned(),
        count => format!("{count} uploads"),
    }
}
