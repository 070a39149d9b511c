//! `data verify`: reads everything and reports what is intact and what is damaged.

use std::ops::ControlFlow;
use std::path::PathBuf;

use paddlecloud_dataprep::{Format as DataFormat, ReadOptions};
use serde::Serialize;

use super::damage::DamageView;
use super::progress::Progress;
use super::sources::{self, InputFile};
use super::{NAME_THE_FORMAT, Review, UNKNOWN, so_many_are, unknown_format};
use crate::commands::{Context, done};
use crate::error::{CliError, chain};
use crate::messages::Messages;
use crate::printer::{Format, Table};

/// Read files from front to back and report all damage
///
/// RecordIO is checked chunk by chunk, even after damage. For other formats the first fault is reported: the line of a
/// table or of JSON, the offset in an archive, the column of Parquet. Exits with 1 if a file is damaged.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Local files or `/pfs/…`
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Read them as this format instead of detecting it
    #[arg(long, value_name = "FORMAT")]
    from: Option<DataFormat>,

    /// CSV: the first line is data, not names
    #[arg(long)]
    no_header: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

/// What is known of a file after reading all of it.
#[derive(Debug, Serialize)]
struct VerifiedView {
    file: PathBuf,
    format: Option<&'static str>,
    records: u64,
    record_bytes: u64,
    whole: bool,
    damage: Vec<DamageView>,
    /// What ended the reading.
    problem: Option<String>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let sources = sources::gather(&args.files, context)?;
    let err = &mut context.world.err;
    let views: Vec<VerifiedView> = sources.iter().map(|source| verified(source, args, err)).collect();
    match args.output {
        Some(Format::Name) => {
            let out = &mut context.world.out;
            views
                .iter()
                .try_for_each(|view| out.line(view.file.display().to_string()))?;
        }
        output if context.world.out.structured(output, &views)? => {}
        _ => {
            context.world.out.table(&table(&views))?;
            views.iter().for_each(|view| tell(view, &mut context.world.err));
        }
    }
    judge(&views, context)
}

/// The exit code. A file of unknown format is neither intact nor damaged.
fn judge(views: &[VerifiedView], context: &mut Context<'_>) -> Result<u8, CliError> {
    let unknown = views.iter().filter(|view| view.is_unknown());
    let unknown: Vec<_> = unknown.map(|view| view.file.as_path()).collect();
    let bad = views
        .iter()
        .filter(|view| !view.whole && !view.is_unknown())
        .count();
    match (bad, unknown.is_empty()) {
        (0, true) => done(),
        (0, false) => Err(CliError::refused(unknown_format(&unknown)).with_hint(NAME_THE_FORMAT)),
        (bad, none_unknown) => {
            if !none_unknown {
                context.world.err.note(&unknown_format(&unknown));
            }
            let words = format!("{} damaged", so_many_are(bad, views.len()));
            Err(CliError::refused(words))
        }
    }
}

impl VerifiedView {
    fn is_unknown(&self) -> bool {
        self.format == Some(UNKNOWN)
    }

    /// The table's word for it.
    fn state(&self) -> &'static str {
        match (self.whole, self.format) {
            (true, _) => "intact",
            (false, Some(UNKNOWN)) => UNKNOWN,
            (false, None) => "unreadable",
            (false, Some(_)) if self.damage.is_empty() => "invalid",
            (false, Some(_)) => "damaged",
        }
    }
}

fn verified(source: &InputFile, args: &Args, err: &mut Messages) -> VerifiedView {
    let mut view = VerifiedView {
        file: source.named().to_owned(),
        format: None,
        records: 0,
        record_bytes: 0,
        whole: false,
        damage: Vec::new(),
        problem: None,
    };
    if let Err(problem) = fill(&mut view, source, args, err) {
        view.problem = Some(problem);
    }
    view.whole = view.damage.is_empty() && view.problem.is_none() && !view.is_unknown();
    view
}

fn fill(view: &mut VerifiedView, source: &InputFile, args: &Args, err: &mut Messages) -> Result<(), String> {
    let asked = ReadOptions {
        format: args.from,
        first_line_is_data: args.no_header,
        ..ReadOptions::default()
    };
    let review = Review::open(&source.origin, asked).map_err(|error| error.to_string())?;
    let data = &review.data;
    view.format = Some(data.format().name());
    let name = view.file.file_name().unwrap_or_default().to_string_lossy();
    let mut progress = Progress::new(err, format!("Verifying {name}"));
    let damage = data.review(&mut |seen| {
        progress.tell(seen.position, data.len());
        view.records += 1;
        view.record_bytes += seen.bytes.len() as u64;
        Ok(ControlFlow::Continue(()))
    });
    view.damage = DamageView::all(&damage.map_err(|error| chain(&error))?);
    progress.done();
    if review.is_unknown(view.records, &view.damage) {
        view.format = Some(UNKNOWN);
        view.damage.clear();
    }
    Ok(())
}

fn table(views: &[VerifiedView]) -> Table {
    let mut table = Table::new(&["FILE", "FORMAT", "RECORDS", "BYTES", "STATE"]);
    for view in views {
        table.push(vec![
            view.file.display().to_string(),
            view.format.unwrap_or_default().to_owned(),
            view.records.to_string(),
            view.record_bytes.to_string(),
            view.state().to_owned(),
        ]);
    }
    table
}

fn tell(view: &VerifiedView, err: &mut Messages) {
    for damage in &view.damage {
        err.note(&damage.sentence(&view.file));
    }
    if let Some(problem) = &view.problem {
        err.note(problem);
    }
}
