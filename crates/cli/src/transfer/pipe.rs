//! `-` on either side: stdin becomes a file of the cluster, files of the cluster become stdout.

use std::fs::File;
use std::io;
use std::ops::Range;

use paddlecloud_pfs::PfsPath;
use paddlecloud_transfer::{FileClient, FileService};

use super::Transfer;
use super::location::Remote;
use super::remote;
use super::report::TransferTotals;
use super::rules::Target;
use crate::error::CliError;
use crate::session::Session;
use crate::world::World;

impl Transfer<'_> {
    /// Sends stdin. It is first written to a temporary file: only then is its size known, and a lost connection does
    /// not lose it. The file has no name, so nothing remains of it when this process ends.
    pub(super) async fn pipe_up(&mut self, dest: &Remote) -> Result<(), CliError> {
        let there = remote::target(&self.files, &dest.path).await?;
        if dest.path.has_trailing_slash() || there == Target::Folder {
            return Err(CliError::refused(format!("`{}` is a folder", dest.path))
                .with_hint("data from a pipe has no name: add a file name to the path"));
        }
        let Some(place) = self.file_behind_link("-", dest.path.clone()).await? else {
            return Ok(());
        };
        let kept = keep_stdin().map_err(|error| {
            let folder = std::env::temp_dir();
            let problem = format!(
                "cannot copy stdin to a temporary file in `{}`: {error}",
                folder.display()
            );
            CliError::refused(problem).with_hint("set TMPDIR to a folder with enough space")
        })?;
        if !self.make_parent(&place).await? {
            return Ok(());
        }
        let (files, options, watch) = (self.files, self.options.clone(), self.watch());
        let work = files.upload_open(kept, "-", &place, &options, &watch);
        let summary = self.show("Uploading -", &watch, work).await?;
        self.record(summary, &watch)
    }
}

fn keep_stdin() -> io::Result<File> {
    let mut kept = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut kept)?;
    Ok(kept)
}

/// Prints files, one after the other: this part of each, or all of it.
pub async fn print_files(
    session: &Session,
    sources: &[Remote],
    range: Option<Range<u64>>,
    world: &mut World,
) -> Result<u8, CliError> {
    let files = session.client.files().patient();
    let mut tally = TransferTotals::default();
    for view in remote::find_all(&files, sources, &mut tally).await? {
        let path = &view.path.0;
        match print_file(&files, path, range.clone(), world).await {
            Ok(()) => {}
            Err(CliError::Client(error)) if remote::is_about_one_path(&error) => {
                tally.refuse(path.to_string(), &error);
                if view.meta.is_folder() {
                    tally.hint("`ls` lists a folder, `cp -r` downloads it");
                }
            }
            Err(error) => {
                tally.list_lost(world);
                return Err(error);
            }
        }
    }
    tally.end("print", world)
}

async fn print_file(
    files: &FileClient<'_>,
    path: &PfsPath,
    range: Option<Range<u64>>,
    world: &mut World,
) -> Result<(), CliError> {
    let mut content = match range {
        Some(range) => files.read_range(path, range).await?,
        None => files.cat(path).await?,
    };
    while let Some(piece) = content.next().await? {
        world.out.bytes(&piece)?;
    }
    Ok(())
}
