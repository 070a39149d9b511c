//! `data head`: prints the first records.

use std::path::PathBuf;

use super::Reading;
use super::records::{self, Form};
use crate::commands::{Context, done};
use crate::error::CliError;

/// Print the first records of files
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Local files or `/pfs/…`
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// How many records of each
    #[arg(long = "lines", short = 'n', value_name = "COUNT", default_value_t = 10)]
    count: u64,

    /// Output format
    #[arg(long, short, value_name = "FORM", default_value = "lines")]
    output: Form,

    #[command(flatten)]
    reading: Reading,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    records::print_all(&args.files, &args.reading, 0..args.count, args.output, context)?;
    done()
}
