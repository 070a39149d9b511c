//! `data split`: divides files among the nodes of a job.

use std::path::{Path, PathBuf};

use paddlecloud_dataprep::split::{self, By, Divided, FirstRow, PartCount, Request};
use serde::Serialize;

use super::copies::Copies;
use super::division_there::DivisionThere;
use super::progress::Progress;
use super::{failed, sources};
use crate::commands::{Context, done};
use crate::error::CliError;
use crate::messages::Messages;
use crate::printer::{Format, Table};

/// Divide files among the nodes of a job: `<out>/<i>/data`, beside `<out>/output`
///
/// Lines, CSV rows and records are distributed round-robin, so the nodes' shares differ by at most one. Each other file
/// goes as a whole to the node with the least data. A CSV header goes to every node. A second run replaces the result
/// of the first. `paddle-data` does the same inside a job.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, or folders of files; default: the files below `<out>/quick_start`
    files: Vec<PathBuf>,

    /// Number of nodes
    #[arg(long = "count", short = 'n', value_name = "NODES")]
    count: PartCount,

    /// The output folder, local or `/pfs/…`
    #[arg(long, short = 'd', value_name = "DIR")]
    out: PathBuf,

    /// Smallest unit to distribute: auto, file, line, row (of CSV) or record
    #[arg(long, value_name = "UNIT", default_value = "auto")]
    by: By,

    /// CSV: the first row is names, even where it looks like data
    #[arg(long, conflicts_with = "no_header")]
    header: bool,

    /// CSV: the first row is data, even where it looks like names
    #[arg(long)]
    no_header: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
struct DividedView {
    out: PathBuf,
    files: Vec<FileView>,
    /// Bytes of each node.
    node_bytes: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct FileView {
    file: PathBuf,
    name: PathBuf,
    by: &'static str,
    units: u64,
    /// Whether a header was found, which every node gets.
    has_names: bool,
}

impl DividedView {
    fn of(divided: Divided, out: PathBuf, copies: &Copies) -> Self {
        let files = divided.files.into_iter().map(|file| FileView {
            file: copies.name_of(&file.source),
            name: file.name,
            by: file.by.name(),
            units: file.units,
            has_names: file.has_names,
        });
        Self {
            out,
            files: files.collect(),
            node_bytes: divided.part_bytes,
        }
    }
}

impl Args {
    fn first_row(&self) -> FirstRow {
        match (self.header, self.no_header) {
            (true, _) => FirstRow::Names,
            (_, true) => FirstRow::Data,
            _ => FirstRow::AsItLooks,
        }
    }
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (divided, copies) = match sources::is_written_there(&args.out) {
        true => divided_there(args, context)?,
        false => divided_into(&args.out, &args.files, args, context)?,
    };
    let view = DividedView::of(divided, args.out.clone(), &copies);
    if args.output == Some(Format::Name) {
        let out = &mut context.world.out;
        view.files
            .iter()
            .try_for_each(|file| out.line(file.name.display().to_string()))?;
    } else if !context.world.out.structured(args.output, &view)? {
        context.world.out.table(&table(&view))?;
        if args.first_row() == FirstRow::AsItLooks {
            view.files
                .iter()
                .for_each(|file| tell_first_row(file, &mut context.world.err));
        }
        let nodes = args.count.get();
        context
            .world
            .err
            .line(format!("`{}` has the data of {nodes} nodes", view.out.display()));
    }
    done()
}

/// Splits locally, then uploads everything.
fn divided_there(args: &Args, context: &mut Context<'_>) -> Result<(Divided, Copies), CliError> {
    let there = DivisionThere::open(&args.out, args.count.get(), context)?;
    let files = match args.files.is_empty() {
        true => vec![there.data_set()],
        false => args.files.clone(),
    };
    there.check_inputs(&files)?;
    let divided = divided_into(&there.here(), &files, args, context)?;
    there.publish(&mut context.world.err)?;
    Ok(divided)
}

fn divided_into(
    out: &Path,
    files: &[PathBuf],
    args: &Args,
    context: &mut Context<'_>,
) -> Result<(Divided, Copies), CliError> {
    let copies = Copies::fetch(files, context)?;
    let request = Request {
        inputs: copies.inputs().to_vec(),
        out: out.to_owned(),
        parts: args.count,
        by: args.by,
        first_row: args.first_row(),
    };
    let mut progress = Progress::new(&mut context.world.err, "Dividing");
    let divided = split::run(&request, &mut |done, total| progress.tell(done, total))
        .map_err(|error| copies.in_names(failed(error)))?;
    progress.done();
    Ok((divided, copies))
}

/// A guess about the header may be wrong.
fn tell_first_row(file: &FileView, messages: &mut Messages) {
    let name = file.file.display();
    match (file.by, file.has_names) {
        ("row", true) => messages.note(&format!(
            "the first row of `{name}` is treated as a header and copied to every node; `--no-header` treats it as data"
        )),
        ("row", false) => messages.note(&format!(
            "the first row of `{name}` is treated as data; `--header` copies it to every node as a header"
        )),
        _ => {}
    }
}

fn table(view: &DividedView) -> Table {
    let mut table = Table::new(&["FILE", "NAME", "BY", "UNITS"]);
    for file in &view.files {
        table.push(vec![
            file.file.display().to_string(),
            file.name.display().to_string(),
            file.by.to_owned(),
            file.units.to_string(),
        ]);
    }
    table
}
