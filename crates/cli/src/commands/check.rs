//! `check <left> <right>`: compares, changes nothing.

use std::ffi::OsString;

use paddlecloud_pfs::RelPath;
use paddlecloud_transfer::{FileService, Side, TransferError, TreeDifference};
use serde::Serialize;

use super::Context;
use crate::error::{CliError, DONE, FAILED, chain};
use crate::printer::{Format, Table};
use crate::transfer::location::{Location, translate_datacenter};
use crate::transfer::remote::must_suit_slash;
use crate::transfer::report::counted;

/// What to do about files that changed on the disk.
const DAMAGED: &str = "damaged files have changed on the server's disk: if you have the originals, upload them again with \
                       `paddlectl cp --checksum`, and inform an administrator";

/// Compare a local folder with a remote one
///
/// Compares names, types, executable bits and the digests of all contents, but not times. Each side hashes its own
/// files. Two remote folders, or two files, can be compared too. Exits with 1 if anything differs or is damaged on the
/// server's disk.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A local path or `/pfs/…`
    left: OsString,

    /// A path `/pfs/…` or a local one
    right: OsString,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
struct Row {
    difference: &'static str,
    path: String,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let mut sides = [Location::parse(&args.left)?, Location::parse(&args.right)?];
    if !sides.iter().any(|side| matches!(side, Location::Remote(_))) {
        return Err(
            CliError::usage("neither path is on the cluster").with_hint("`diff -r` compares local folders")
        );
    }
    let session = context.session().await?;
    translate_datacenter(&session, sides.iter_mut().filter_map(Location::as_remote_mut)).await?;
    let files = session.client.files();
    for remote in sides.iter_mut().filter_map(Location::as_remote_mut) {
        must_suit_slash(&files, &remote.path).await?;
    }
    let [left, right] = sides.map(side);
    let (left, right) = (left?, right?);
    let difference = files.check(&left, &right).await.map_err(failed)?;
    let rows = rows(&difference);
    print(&rows, args.output, context)?;
    context.world.err.line(match rows.len() {
        0 => format!("no differences: {} identical", counted(difference.same)),
        1 => format!("1 difference; {} identical", counted(difference.same)),
        count => format!("{count} differences; {} identical", counted(difference.same)),
    });
    if !difference.damaged.is_empty() {
        context.world.err.hint(DAMAGED);
    }
    Ok(if rows.is_empty() { DONE } else { FAILED })
}

fn side(location: Location) -> Result<Side, CliError> {
    match location {
        Location::Local(path) => Ok(Side::Local(path)),
        Location::Remote(remote) => Ok(Side::Remote(remote.path)),
        Location::Pipe => Err(CliError::usage("a pipe cannot be compared")),
    }
}

fn failed(error: TransferError) -> CliError {
    match error {
        TransferError::Server(error) => error.into(),
        other => CliError::refused(format!("cannot compare: {}", chain(&other))),
    }
}

fn rows(difference: &TreeDifference) -> Vec<Row> {
    let mut rows: Vec<(&RelPath, &'static str)> = Vec::new();
    for (paths, what) in [
        (&difference.only_left, "only left"),
        (&difference.only_right, "only right"),
        (&difference.different, "different"),
        (&difference.damaged, "damaged"),
    ] {
        rows.extend(paths.iter().map(|path| (path, what)));
    }
    rows.sort();
    let row = |(path, difference): (&RelPath, _)| Row {
        difference,
        path: path.to_string(),
    };
    rows.into_iter().map(row).collect()
}

fn print(rows: &[Row], format: Option<Format>, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(format, rows, |row| row.path.clone())? || rows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["DIFFERENCE", "PATH"]);
    for row in rows {
        table.push(vec![row.difference.to_owned(), row.path.clone()]);
    }
    out.table(&table)
}
