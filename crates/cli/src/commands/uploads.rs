//! `pfs uploads [--drop]`: unfinished uploads.

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{OURS, UnfinishedUpload};
use paddlecloud_transfer::FileService;

use super::Context;
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::time_text::{rfc3339, short_time, size};
use crate::transfer::remote::is_about_one_path;
use crate::transfer::report::{Lost, TransferTotals};

/// As much of an id as a terminal shows and `--drop` needs.
const SHORT_ID: usize = 8;

/// List unfinished uploads, or discard them
///
/// An unfinished upload keeps its space reserved so that the same `cp` or `submit` can resume it. It expires three days
/// after its last byte. `--drop` discards uploads by id or path, or all of them with `--all`, including files being
/// sent. A package whose `submit` is running is kept.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ids (the first 8 characters are enough) or paths; default: all
    uploads: Vec<String>,

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
    let session = context.session().await?;
    let files = session.client.files();
    let mut tally = TransferTotals::default();
    let found = choose(files.unfinished().await?, &args.uploads, &mut tally);
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

fn is_named(upload: &UnfinishedUpload, name: &str) -> bool {
    let is_id = name.len() >= SHORT_ID && upload.id.to_string().starts_with(name);
    is_id || upload.path.to_string() == name
}

/// The named uploads, or all; names without an upload are reported.
fn choose(all: Vec<UnfinishedUpload>, names: &[String], tally: &mut TransferTotals) -> Vec<UnfinishedUpload> {
    if names.is_empty() {
        return all;
    }
    for name in names {
        if !all.iter().any(|upload| is_named(upload, name)) {
            tally.lose(Lost::new(name, "there is no such unfinished upload"));
        }
    }
    let is_selected = |upload: &UnfinishedUpload| names.iter().any(|name| is_named(upload, name));
    all.into_iter().filter(is_selected).collect()
}

fn print(found: &[UnfinishedUpload], args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(args.output, found, |upload| upload.id.to_string())? {
        return Ok(());
    }
    if found.is_empty() {
        if args.uploads.is_empty() {
            context.world.err.note("there are no unfinished uploads");
        }
        return Ok(());
    }
    let now = (context.world.now)();
    let is_terminal = out.is_terminal;
    let id = |upload: &UnfinishedUpload| {
        let length = if is_terminal { SHORT_ID } else { usize::MAX };
        upload.id.to_string().chars().take(length).collect::<String>()
    };
    let touched = |upload: &UnfinishedUpload| match is_terminal {
        true => short_time(upload.touched, now),
        false => rfc3339(upload.touched),
    };
    let bytes = |count: u64| match args.human {
        true => size(count),
        false => count.to_string(),
    };
    let mut table = Table::new(&["ID", "ARRIVED", "SIZE", "TOUCHED", "PATH"]).with_flexible("PATH");
    for upload in found {
        table.push(vec![
            id(upload),
            bytes(upload.arrived),
            bytes(upload.size),
            touched(upload),
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
