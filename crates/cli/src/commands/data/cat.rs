//! `data cat`: prints records.

use std::ops::Range;
use std::path::PathBuf;

use super::Reading;
use super::records::{self, Form};
use crate::commands::{Context, done};
use crate::error::CliError;

/// Print the records of files
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Local files or `/pfs/…`
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Only records with these numbers, counted from 0: `10..20`, `10..`, `7`
    #[arg(long, value_name = "RANGE", value_parser = records::range)]
    records: Option<Range<u64>>,

    /// Output format
    #[arg(long, short, value_name = "FORM", default_value = "lines")]
    output: Form,

    #[command(flatten)]
    reading: Reading,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let range = args.records.clone().unwrap_or(0..u64::MAX);
    records::print_all(&args.files, &args.reading, range, args.output, context)?;
    done()
}
