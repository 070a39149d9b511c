//! `du <path>...`: how much space files use.

use std::ffi::OsString;

use futures_util::{StreamExt, stream};
use paddlecloud_api::files::{FileMeta, StorageView, UsageView, below};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_pfs::PfsPath;
use paddlecloud_transfer::{FileClient, FileService, ListOptions};
use serde::Serialize;

use super::{Context, home};
use crate::error::CliError;
use crate::printer::{Format, Table};
use crate::time_text::size;
use crate::transfer::location::reach;
use crate::transfer::remote;
use crate::transfer::report::{Lost, TransferTotals, uncounted};

/// Show how much space files use
///
/// Without a path: your home, and how much of your quota it uses. For a single folder, also its largest entries.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; default: your home; `*` and `?` match names
    paths: Vec<OsString>,

    /// All entries of the folder, not only the 10 largest
    #[arg(long, conflicts_with = "summarize")]
    all: bool,

    /// Only the paths themselves, not their largest entries
    #[arg(long, short)]
    summarize: bool,

    /// Print readable sizes: `3.4 MB`
    #[arg(id = "help", long = "human-readable", short = 'h')]
    human: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
struct Row {
    path: String,
    #[serde(flatten)]
    usage: UsageView,
    /// Its largest entries, the largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Row>,
}

/// Entries of a folder that are shown.
const LARGEST: usize = 10;
/// Entries that are measured at the same time.
const AT_A_TIME: usize = 8;

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (session, mut paths) = reach(&args.paths, context).await?;
    let files = session.client.files();
    let quota = match paths.is_empty() {
        true => {
            paths.push(home(&session).await?);
            Some(files.quota().await?)
        }
        false => None,
    };
    let (mut rows, mut tally) = (Vec::new(), TransferTotals::default());
    let mut omitted = 0;
    let found = remote::find_all(&files, &paths, &mut tally).await?;
    let shows_children = found.len() == 1 && !args.summarize && args.output != Some(Format::Name);
    for view in found {
        let measured = files.du(&view.path.0).await;
        if let Some(usage) = tally.pass(&view.path.0, measured)? {
            let path = view.path.to_string();
            if let Some(words) = uncounted(usage.unread) {
                tally.lose(Lost::new(&path, words));
            }
            let mut children = match shows_children && usage.folders + usage.files > 1 {
                true => entries_of(&files, &view.path.0).await?,
                false => Vec::new(),
            };
            if !args.all {
                omitted = children.len().saturating_sub(LARGEST);
                children.truncate(LARGEST);
            }
            rows.push(Row {
                path,
                usage,
                children,
            });
        }
    }
    print(&rows, args, context)?;
    if omitted > 0 {
        let line = match omitted {
            1 => "1 more entry; `--all` shows it".to_owned(),
            count => format!("{count} more entries; `--all` shows them"),
        };
        context.world.err.line(line);
    }
    if let Some(quota) = quota {
        let lines = [quota_words(&quota), unfinished_words(&quota, context.program)];
        lines
            .into_iter()
            .flatten()
            .for_each(|line| context.world.err.line(line));
    }
    tally.end("measure", context.world)
}

/// The entries of a folder, the largest first. Entries that cannot be measured are omitted: the folder's own row mentions them.
async fn entries_of(files: &FileClient<'_>, folder: &PfsPath) -> Result<Vec<Row>, CliError> {
    let mut listing = match files.list(folder, ListOptions::default()).await {
        Ok(listing) => listing,
        // A file, or a folder removed meanwhile, has no entries.
        Err(_) => return Ok(Vec::new()),
    };
    let mut entries: Vec<(PfsPath, FileMeta)> = Vec::new();
    while let Some(entry) = listing.next_readable().await? {
        entries.extend(below(folder, &entry.path).ok().map(|path| (path, entry.meta)));
    }
    let measured = stream::iter(entries).map(async |(path, meta)| {
        let usage = match meta.is_folder() {
            true => files.du(&path).await.ok()?,
            false => UsageView {
                bytes: meta.size,
                files: 1,
                ..UsageView::default()
            },
        };
        Some(Row {
            path: path.to_string(),
            usage,
            children: Vec::new(),
        })
    });
    let mut rows: Vec<Row> = measured
        .buffered(AT_A_TIME)
        .filter_map(std::future::ready)
        .collect()
        .await;
    rows.sort_by(|a, b| {
        b.usage
            .bytes
            .cmp(&a.usage.bytes)
            .then_with(|| a.path.cmp(&b.path))
    });
    Ok(rows)
}

fn print(rows: &[Row], args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(args.output, rows, |row| row.path.clone())? || rows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["SIZE", "FILES", "FOLDERS", "PATH"]);
    for row in rows
        .iter()
        .flat_map(|row| std::iter::once(row).chain(&row.children))
    {
        let bytes = match args.human {
            true => size(row.usage.bytes),
            false => row.usage.bytes.to_string(),
        };
        let (files, folders) = (row.usage.files.to_string(), row.usage.folders.to_string());
        table.push(vec![bytes, files, folders, row.path.clone()]);
    }
    out.table(&table)
}

/// `quota: 1.2 GiB of 10 GiB, 300 of 1000 files`, in the units of the server's refusals; empty if nothing is limited.
fn quota_words(quota: &StorageView) -> Option<String> {
    let bytes = quota.bytes_limit.map(|limit| {
        [quota.bytes_used, limit]
            .map(|bytes| Bytes::new(bytes).readable())
            .join(" of ")
    });
    let files = quota
        .files_limit
        .map(|limit| format!("{} of {limit} files", quota.files_used));
    let parts: Vec<String> = bytes.into_iter().chain(files).collect();
    (!parts.is_empty()).then(|| format!("quota: {}", parts.join(", ")))
}

/// Unfinished uploads use space, although no listing shows them.
fn unfinished_words(quota: &StorageView, program: &str) -> Option<String> {
    let count = match quota.unfinished_uploads {
        0 => return None,
        1 => "1 with".to_owned(),
        count => format!("{count} with"),
    };
    let held = size(quota.unfinished_bytes);
    Some(format!(
        "unfinished uploads: {count} {held}; `{program} pfs uploads` shows them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_that_exist_are_reported() {
        let quota = |bytes_limit, files_limit| StorageView {
            bytes_used: 3 << 19,
            files_used: 3,
            bytes_limit,
            files_limit,
            ..StorageView::default()
        };
        assert_eq!(quota_words(&quota(None, None)), None);
        assert_eq!(
            quota_words(&quota(Some(5 << 20), Some(10))).as_deref(),
            Some("quota: 1.5 MiB of 5 MiB, 3 of 10 files")
        );
    }

    #[test]
    fn unfinished_uploads_are_reported_if_there_are_any() {
        let unfinished = |unfinished_uploads, unfinished_bytes| StorageView {
            unfinished_uploads,
            unfinished_bytes,
            ..StorageView::default()
        };
        assert_eq!(unfinished_words(&unfinished(0, 0), "paddlectl"), None);
        assert_eq!(
            unfinished_words(&unfinished(2, 60_000_000), "paddlectl").as_deref(),
            Some("unfinished uploads: 2 with 60.0 MB; `paddlectl pfs uploads` shows them")
        );
    }
}
