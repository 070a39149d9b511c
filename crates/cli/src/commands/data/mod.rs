//! `data`: inspects data sets, converts them and divides them among nodes; a file per subcommand.
//!
//! Input on the cluster is read in place, and only as much as needed. Output for the cluster is created locally and then
//! uploaded. Inside a worker `/pfs/…` are ordinary paths.

mod cat;
mod cluster;
mod convert;
mod copies;
mod damage;
mod division_there;
mod file_there;
mod head;
mod inspect;
mod progress;
mod records;
mod sources;
mod split;
mod upload;
mod verify;
mod window;

use std::path::Path;

use paddlecloud_core::quantity::Bytes;
use paddlecloud_dataprep::{DataError, Dataset, Format, Origin, ReadOptions};
use paddlecloud_recordio::{Policy, ReadError, SkipBound};

use self::damage::DamageView;
use super::Context;
use crate::error::{CliError, chain};

/// Prepare and inspect data sets
///
/// Formats: recordio, lines, csv, jsonl, tar (WebDataset), parquet; all but the last also compressed with gzip.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Cat(cat::Args),
    Convert(convert::Args),
    Head(head::Args),
    Inspect(inspect::Args),
    Split(split::Args),
    Verify(verify::Args),
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    match &args.action {
        Action::Cat(args) => cat::run(args, context),
        Action::Convert(args) => convert::run(args, context),
        Action::Head(args) => head::run(args, context),
        Action::Inspect(args) => inspect::run(args, context),
        Action::Split(args) => split::run(args, context),
        Action::Verify(args) => verify::run(args, context),
    }
}

/// How a file is read: flags shared by several subcommands.
#[derive(Debug, Clone, clap::Args)]
struct Reading {
    /// Read the file as this format instead of detecting it
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,

    /// Take only this field of each record: a column, a JSON field, a file's extension
    #[arg(long, value_name = "NAME")]
    field: Option<String>,

    /// CSV: the first line is data, not names
    #[arg(long)]
    no_header: bool,

    /// RecordIO: skip damage, up to this many bytes, and report what was lost
    #[arg(long, value_name = "BYTES")]
    skip_damage: Option<Bytes>,
}

impl Reading {
    fn open(&self, origin: &Origin) -> Result<Dataset, CliError> {
        let format = self.from.or(found_format(origin)?);
        let field = self.field.clone();
        self.open_as(origin, format, field)
    }

    fn open_as(
        &self,
        origin: &Origin,
        format: Option<Format>,
        field: Option<String>,
    ) -> Result<Dataset, CliError> {
        let policy = match self.skip_damage {
            None => Policy::Strict,
            Some(bytes) => Policy::Skip(SkipBound {
                max_bytes: bytes.as_u64(),
                max_ranges: u64::MAX,
            }),
        };
        let options = ReadOptions {
            format,
            field,
            first_line_is_data: self.no_header,
            policy,
        };
        Dataset::open(origin.clone(), options).map_err(failed)
    }
}

/// The format's name if it is unknown.
const UNKNOWN: &str = "unknown";

/// A file that is read completely, even if it is damaged.
struct Review {
    data: Dataset,
    /// Its format is unknown. It may be RecordIO that is damaged at its start, and is read as that.
    is_guess: bool,
}

impl Review {
    fn open(origin: &Origin, asked: ReadOptions) -> Result<Self, CliError> {
        let format = match asked.format {
            Some(format) => Some(format),
            None => found_format(origin)?,
        };
        let options = ReadOptions {
            format: Some(format.unwrap_or(Format::RecordIo)),
            policy: Policy::Skip(SkipBound::UNLIMITED),
            ..asked
        };
        Ok(Self {
            data: Dataset::open(origin.clone(), options).map_err(failed)?,
            is_guess: format.is_none(),
        })
    }

    /// Whether that guess was wrong: everything looks damaged then, which says nothing about the file.
    fn is_unknown(&self, records: u64, damage: &[DamageView]) -> bool {
        self.is_guess && records == 0 && !damage.is_empty()
    }
}

/// Why nothing can be said about these files, in one line for any number of them.
fn unknown_format(files: &[&Path]) -> String {
    match files {
        [file] => format!(
            "the format of `{}` cannot be determined from its name or contents",
            file.display()
        ),
        files => format!(
            "the format of {} files, `{}` first, cannot be determined from their names or contents",
            files.len(),
            files
                .first()
                .map(|file| file.display().to_string())
                .unwrap_or_default()
        ),
    }
}

const NAME_THE_FORMAT: &str = "`--from lines` reads them as text; `--from` accepts any format";

/// `1 of 2 files is`, `2 of 2 files are`.
fn so_many_are(some: usize, all: usize) -> String {
    let files = if all == 1 { "file" } else { "files" };
    let are = if some == 1 { "is" } else { "are" };
    format!("{some} of {all} {files} {are}")
}

fn found_format(origin: &Origin) -> Result<Option<Format>, CliError> {
    Format::of_file(origin).map_err(failed)
}

/// The error and a hint.
fn failed(error: DataError) -> CliError {
    let refused = CliError::refused(chain(&error));
    match error {
        DataError::UnknownFormat { .. } => {
            refused.with_hint("name it: `--from` for the input, `--to` for the output")
        }
        DataError::AlreadyThere { .. } => refused.with_hint("`--force` replaces it"),
        DataError::RecordRead(ReadError::Damaged { .. }) => refused
            .with_hint("`data verify` lists all damage; `--skip-damage BYTES`, where available, skips it"),
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_as_people_count() {
        assert_eq!(so_many_are(1, 1), "1 of 1 file is");
        assert_eq!(so_many_are(1, 2), "1 of 2 files is");
        assert_eq!(so_many_are(2, 2), "2 of 2 files are");
    }
}
