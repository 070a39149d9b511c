//! `data inspect`: shows the structure of a file.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use paddlecloud_dataprep::{Dataset, Format as DataFormat, Origin, ReadOptions};
use paddlecloud_recordio::{ChunkInfo, Layout, Policy, SkipBound};
use serde::Serialize;

use super::damage::DamageView;
use super::progress::Progress;
use super::sources;
use super::{NAME_THE_FORMAT, Review, UNKNOWN, failed, so_many_are, unknown_format};
use crate::commands::{Context, done};
use crate::error::CliError;
use crate::printer::{Format, Table};

/// Show chunks, records, sizes and damage of files
///
/// For RecordIO only headers are read, which is fast; `data verify` reads everything. Exits with 1 if damage was
/// found.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Local files or `/pfs/…`
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// RecordIO: show every chunk
    #[arg(long)]
    chunks: bool,

    /// Read them as this format instead of detecting it
    #[arg(long, value_name = "FORMAT")]
    from: Option<DataFormat>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

/// The structure of a file.
#[derive(Debug, Serialize)]
struct FileView {
    file: PathBuf,
    format: &'static str,
    size: u64,
    records: u64,
    #[serde(flatten)]
    recordio: Option<RecordIoView>,
    damage: Vec<DamageView>,
}

/// What only RecordIO has.
#[derive(Debug, Serialize)]
struct RecordIoView {
    chunks: usize,
    layout: &'static str,
    /// How many chunks each compressor has.
    compressors: BTreeMap<String, u64>,
    /// Whether there is an index beside the file.
    index: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_list: Option<Vec<ChunkView>>,
}

#[derive(Debug, Serialize)]
struct ChunkView {
    offset: u64,
    first_record: u64,
    records: u32,
    stored_bytes: u32,
    compressor: String,
    checksum: String,
}

impl ChunkView {
    fn of(chunk: &ChunkInfo) -> Self {
        Self {
            offset: chunk.offset,
            first_record: chunk.first_record,
            records: chunk.header.records,
            stored_bytes: chunk.header.stored_len,
            compressor: chunk.header.compressor.to_string(),
            checksum: format!("{:08x}", chunk.header.checksum),
        }
    }
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let mut views = Vec::new();
    for source in sources::gather(&args.files, context)? {
        views.push(inspected(&source.origin, args, context)?);
    }
    match args.output {
        Some(Format::Name) => {
            let out = &mut context.world.out;
            views
                .iter()
                .try_for_each(|view| out.line(view.file.display().to_string()))?;
        }
        output if context.world.out.structured(output, &views)? => {}
        _ => show(&views, context)?,
    }
    let bad = views.iter().filter(|view| !view.damage.is_empty()).count();
    match bad {
        0 => done(),
        _ => Err(CliError::refused(format!(
            "{} damaged",
            so_many_are(bad, views.len())
        ))),
    }
}

fn show(views: &[FileView], context: &mut Context<'_>) -> Result<(), CliError> {
    context.world.out.table(&files_table(views))?;
    for view in views {
        if let Some(chunks) = view.recordio.as_ref().and_then(|own| own.chunk_list.as_ref()) {
            context.world.out.line("")?;
            context.world.out.table(&chunks_table(chunks))?;
        }
        for damage in &view.damage {
            context.world.err.note(&damage.sentence(&view.file));
        }
    }
    let unknown = views.iter().filter(|view| view.format == UNKNOWN);
    let unknown: Vec<_> = unknown.map(|view| view.file.as_path()).collect();
    if !unknown.is_empty() {
        context.world.err.note(&unknown_format(&unknown));
        context.world.err.hint(NAME_THE_FORMAT);
    }
    Ok(())
}

fn inspected(file: &Origin, args: &Args, context: &mut Context<'_>) -> Result<FileView, CliError> {
    let review = Review::open(
        file,
        ReadOptions {
            format: args.from,
            ..ReadOptions::default()
        },
    )?;
    let view = match review.data.is_record_file() {
        true => of_recordio(&review.data, args.chunks),
        false => of_other(&review.data, context),
    }?;
    match review.is_unknown(view.records, &view.damage) {
        true => Ok(FileView {
            format: UNKNOWN,
            recordio: None,
            damage: Vec::new(),
            ..view
        }),
        false => Ok(view),
    }
}

fn of_recordio(data: &Dataset, with_chunks: bool) -> Result<FileView, CliError> {
    let file = data
        .record_file(Policy::Skip(SkipBound::UNLIMITED))
        .map_err(failed)?;
    let index = file.index();
    let mut compressors: BTreeMap<String, u64> = BTreeMap::new();
    for chunk in index.chunks() {
        *compressors
            .entry(chunk.header.compressor.to_string())
            .or_default() += 1;
    }
    Ok(FileView {
        file: data.path().to_owned(),
        format: data.format().name(),
        size: data.len(),
        records: file.len(),
        recordio: Some(RecordIoView {
            chunks: index.chunks().len(),
            layout: match index.layout() {
                Layout::Cloud => "cloud",
                Layout::Fluid => "fluid",
            },
            compressors,
            index: file.index_is_stored(),
            chunk_list: with_chunks.then(|| index.chunks().iter().map(ChunkView::of).collect()),
        }),
        damage: index.lost().map(DamageView::of).collect(),
    })
}

/// Other formats have no headers: their records are counted.
fn of_other(data: &Dataset, context: &mut Context<'_>) -> Result<FileView, CliError> {
    let name = data.path().file_name().unwrap_or_default().to_string_lossy();
    let mut progress = Progress::new(&mut context.world.err, format!("Reading {name}"));
    let mut records = 0;
    let damage = data
        .each(&mut |seen| {
            progress.tell(seen.position, data.len());
            records += 1;
            Ok(ControlFlow::Continue(()))
        })
        .map_err(failed)?;
    progress.done();
    Ok(FileView {
        file: data.path().to_owned(),
        format: data.format().name(),
        size: data.len(),
        records,
        recordio: None,
        damage: DamageView::all(&damage),
    })
}

fn files_table(views: &[FileView]) -> Table {
    let mut table = Table::new(&[
        "FILE",
        "FORMAT",
        "SIZE",
        "RECORDS",
        "CHUNKS",
        "COMPRESSOR",
        "INDEX",
        "DAMAGE",
    ])
    .with_flexible("FILE");
    for view in views {
        let own = view.recordio.as_ref();
        let compressors = own.map(|own| own.compressors.keys().cloned().collect::<Vec<_>>().join(","));
        table.push(vec![
            view.file.display().to_string(),
            view.format.to_owned(),
            view.size.to_string(),
            view.records.to_string(),
            own.map(|own| own.chunks.to_string()).unwrap_or_default(),
            compressors.unwrap_or_default(),
            own.map_or("", |own| if own.index { "yes" } else { "no" })
                .to_owned(),
            view.damage.len().to_string(),
        ]);
    }
    table
}

fn chunks_table(chunks: &[ChunkView]) -> Table {
    let mut table = Table::new(&["OFFSET", "FIRST", "RECORDS", "STORED", "COMPRESSOR", "CHECKSUM"]);
    for chunk in chunks {
        table.push(vec![
            chunk.offset.to_string(),
            chunk.first_record.to_string(),
            chunk.records.to_string(),
            chunk.stored_bytes.to_string(),
            chunk.compressor.clone(),
            chunk.checksum.clone(),
        ]);
    }
    table
}
