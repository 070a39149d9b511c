//! `stat <path>...`: what is known about a file.

use std::ffi::OsString;

use paddlecloud_transfer::FileService;

use super::Context;
use super::ls::Row;
use crate::error::CliError;
use crate::printer::Format;
use crate::time_text::size;
use crate::transfer::location::reach;
use crate::transfer::remote;
use crate::transfer::report::TransferTotals;

/// Show the metadata of a file
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; `*` and `?` match names
    #[arg(required = true)]
    paths: Vec<OsString>,

    /// Include the BLAKE3 digest, as `b3sum` prints it; the server reads the file
    #[arg(long)]
    digest: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (session, paths) = reach(&args.paths, context).await?;
    let files = session.client.files();
    let (mut rows, mut tally) = (Vec::new(), TransferTotals::default());
    for view in remote::find_all(&files, &paths, &mut tally).await? {
        let meta = match args.digest && view.meta.is_file() {
            true => files.stat_digest(&view.path.0).await,
            false => Ok(view.meta),
        };
        let meta = tally.pass(&view.path.0, meta)?;
        rows.extend(meta.map(|meta| Row::new(&view.path.0, &meta)));
    }
    let out = &mut context.world.out;
    if !out.listed(args.output, &rows, |row| row.path.clone())? {
        for (at, row) in rows.iter().enumerate() {
            if at > 0 {
                out.line("")?;
            }
            lines(row)
                .iter()
                .try_for_each(|(name, value)| out.line(format!("{name:<12}{value}")))?;
        }
    }
    tally.end("stat", context.world)
}

/// `3 bytes`, `3400000 (3.4 MB)`.
fn bytes_and_size(bytes: u64) -> String {
    match bytes {
        0..1000 => size(bytes),
        _ => format!("{bytes} ({})", size(bytes)),
    }
}

fn lines(row: &Row) -> Vec<(&'static str, String)> {
    let kind = serde_json::to_value(row.kind).expect("a kind is a word");
    let mut lines = vec![
        ("path", row.path.clone()),
        ("kind", kind.as_str().unwrap_or_default().to_owned()),
        ("size", bytes_and_size(row.size)),
        ("modified", row.modified.clone()),
    ];
    if row.executable {
        lines.push(("executable", "yes".to_owned()));
    }
    if let Some(target) = &row.target {
        lines.push(("target", target.clone()));
    }
    if let Some(digest) = &row.digest {
        lines.push(("blake3", digest.clone()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shortened_only_where_that_says_more() {
        assert_eq!(
            [1, 999, 3_400_000].map(bytes_and_size),
            ["1 byte", "999 bytes", "3400000 (3.4 MB)"]
        );
    }
}
