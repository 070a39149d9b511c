//! `data convert`: writes a file in another format or with another compressor.

use std::path::{Path, PathBuf};

use paddlecloud_core::quantity::Bytes;
use paddlecloud_dataprep::{
    Converted, Dataset, Format as DataFormat, IfExists, Origin, WriteOptions, convert,
};
use paddlecloud_pfs::Existing;
use paddlecloud_recordio::Compressor;
use serde::Serialize;

use super::damage::{self, DamageView};
use super::file_there::FileThere;
use super::progress::Progress;
use super::sources;
use super::{Reading, failed, found_format};
use crate::commands::{Context, done};
use crate::error::CliError;
use crate::printer::Format;

/// Write a file in another format, or with another compressor
///
/// The formats follow from the names: .rio, .txt, .csv, .jsonl, .tar, .parquet, all but .rio and .parquet also
/// followed by .gz. Rows of CSV and Parquet become JSON objects; samples of a WebDataset become pickled
/// dictionaries. The new file appears when it is complete.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to read, local or `/pfs/…`
    source: PathBuf,

    /// File to write, local or `/pfs/…`
    dest: PathBuf,

    /// Write this format, regardless of the file name
    #[arg(long, value_name = "FORMAT")]
    to: Option<DataFormat>,

    /// RecordIO: none, snappy, gzip, or zstd, which only PaddleCloud reads
    #[arg(long, value_name = "NAME", default_value = "snappy")]
    compressor: Compressor,

    /// RecordIO: the maximum size of a chunk, before compression
    #[arg(long, value_name = "BYTES", default_value = "1Mi")]
    chunk_size: Bytes,

    /// RecordIO: write an index beside the file, which also reveals truncation
    #[arg(long)]
    index: bool,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,

    #[command(flatten)]
    reading: Reading,
}

#[derive(Debug, Serialize)]
struct ConvertedView<'a> {
    source: &'a PathBuf,
    dest: &'a PathBuf,
    records: u64,
    record_bytes: u64,
    damage: Vec<DamageView>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let sources = sources::gather(std::slice::from_ref(&args.source), context)?;
    match &sources[..] {
        [source] => converted(args, &source.origin, context),
        several => Err(CliError::refused(format!(
            "`{}` matches {} files, but only one can be converted at a time",
            args.source.display(),
            several.len()
        ))),
    }
}

fn converted(args: &Args, source: &Origin, context: &mut Context<'_>) -> Result<u8, CliError> {
    // `--field` applies to the side that has fields.
    let format = args.reading.from.or(found_format(source)?);
    let field = args.reading.field.clone();
    let of_source = field
        .clone()
        .filter(|_| format.is_some_and(DataFormat::has_fields));
    let input = args.reading.open_as(source, format, of_source)?;
    let converted = written(args, &input, field, context)?;
    let view = ConvertedView {
        source: &args.source,
        dest: &args.dest,
        records: converted.records,
        record_bytes: converted.record_bytes,
        damage: DamageView::all(&converted.damage),
    };
    if args.output == Some(Format::Name) {
        context.world.out.line(args.dest.display().to_string())?;
    }
    if !context.world.out.structured(args.output, &view)? {
        damage::tell(&converted.damage, &args.source, &mut context.world.err);
        let dest = args.dest.display();
        context.world.err.line(format!(
            "`{dest}` has {}",
            match converted.records {
                1 => "1 record".to_owned(),
                count => format!("{count} records"),
            }
        ));
    }
    done()
}

/// Writes the file to its destination; on the cluster it appears when it is complete, as locally.
fn written(
    args: &Args,
    input: &Dataset,
    field: Option<String>,
    context: &mut Context<'_>,
) -> Result<Converted, CliError> {
    if !sources::is_written_there(&args.dest) {
        return written_here(args, input, field, &args.dest, context);
    }
    let existing = match args.force {
        true => Existing::Replace,
        false => Existing::Keep,
    };
    let there = FileThere::open(&args.dest, existing, context)?;
    let converted =
        written_here(args, input, field, &there.here(), context).map_err(|error| there.in_names(error))?;
    there.publish(&mut context.world.err)?;
    Ok(converted)
}

fn written_here(
    args: &Args,
    input: &Dataset,
    field: Option<String>,
    dest: &Path,
    context: &mut Context<'_>,
) -> Result<Converted, CliError> {
    let options = WriteOptions {
        format: args.to,
        field,
        first_line_is_data: args.reading.no_header,
        if_exists: match args.force {
            true => IfExists::Replace,
            false => IfExists::Refuse,
        },
        compressor: args.compressor,
        chunk_size: args.chunk_size.as_u64(),
        with_index: args.index,
    };
    let name = args.source.file_name().unwrap_or_default().to_string_lossy();
    let mut progress = Progress::new(&mut context.world.err, format!("Converting {name}"));
    let mut tell = |read| progress.tell(read, input.len());
    let converted = convert(input, dest, &options, &mut tell).map_err(failed)?;
    progress.done();
    Ok(converted)
}
