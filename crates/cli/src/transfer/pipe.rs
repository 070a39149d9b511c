//! `-` on either side: stdin becomes a file of the cluster, files of the cluster become stdout.

use std::fs::File;
use std::io;
use std::ops::Range;

use paddlecloud_pfs::PfsPath;
use paddlecloud_transfer::{FileClient, FileService, Throttle};

use super::Transfer;
use super::filter::Selection;
use super::location::{Remote, name_of};
use super::remote;
use super::report::{Lost, TransferTotals, foreseen};
use super::rules::Target;
use crate::error::CliError;
use crate::session::Session;
use crate::world::World;

impl Transfer<'_> {
    /// Sends stdin. It is kept in a temporary file first: only then its size is known, and a lost connection does not lose
    /// it. The file has no name, so nothing of it stays, however this process ends.
    pub(super) async fn pipe_up(&mut self, dest: &Remote) -> Result<(), CliError> {
        let there = remote::target(&self.files, &dest.path).await?;
        if dest.path.has_trailing_slash() || there == Target::Folder {
            return Err(CliError::refused(format!("`{}` is a folder", dest.path))
                .with_hint("data from a pipe has no name: add a file name to the path"));
        }
        let Some(place) = self.file_behind_link("-", dest.path.clone()).await? else {
            return Ok(());
        };
        if self.options.dry_run {
            return self.foresee_pipe(there);
        }
        let kept = keep_stdin().map_err(|error| CliError::refused(format!("cannot read stdin: {error}")))?;
        if !self.make_parent(&place).await? {
            return Ok(());
        }
        let (files, options, watch) = (self.files, self.options.clone(), self.watch());
        let work = files.upload_open(kept, "-", &place, &options, &watch);
        let summary = self.show("Uploading -", &watch, work).await?;
        self.settle(summary, &watch)
    }

    fn foresee_pipe(&mut self, there: Target) -> Result<(), CliError> {
        if self.options.no_overwrite && there != Target::Missing {
            self.tally.kept += 1;
            return self.world.out.line("keep -");
        }
        self.tally.transferred += 1;
        self.world.out.line("copy -")
    }
}

fn keep_stdin() -> io::Result<File> {
    let mut kept = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut kept)?;
    Ok(kept)
}

/// How files are printed, and which.
#[derive(Debug, Default)]
pub struct Printing {
    /// The part of each that is wanted; all of it when left out.
    pub range: Option<Range<u64>>,
    pub selection: Selection,
    /// Bytes per second.
    pub bwlimit: Option<u64>,
    pub dry_run: bool,
}

/// Prints files, one after the other.
pub async fn print_files(
    session: &Session,
    sources: &[Remote],
    printing: &Printing,
    world: &mut World,
) -> Result<u8, CliError> {
    let files = session.client.files().patient();
    let mut tally = TransferTotals::default();
    let pace = printing.bwlimit.map(Pace::of);
    for view in remote::find_all(&files, sources, &mut tally).await? {
        let path = &view.path.0;
        if !printing.selection.takes_file(name_of(path).unwrap_or_default()) {
            continue;
        }
        let printed = match printing.dry_run {
            true => foresee(&files, path, &mut tally, world).await,
            false => print_file(&files, path, printing.range.clone(), pace.as_ref(), world).await,
        };
        match printed {
            Ok(()) => {}
            Err(CliError::Client(error)) if remote::is_about_one_path(&error) => {
                tally.refuse(path.to_string(), &error);
                if view.meta.is_folder() {
                    tally.hint(FOLDERS);
                }
            }
            Err(error) => {
                tally.list_lost(world);
                return Err(error);
            }
        }
    }
    if printing.dry_run {
        world.err.line(foreseen(&tally.foreseen()));
    }
    tally.end("print", world)
}

const FOLDERS: &str = "`ls` lists a folder, `cp -r` downloads it";

async fn foresee(
    files: &FileClient<'_>,
    path: &PfsPath,
    tally: &mut TransferTotals,
    world: &mut World,
) -> Result<(), CliError> {
    if files.stat(path).await?.is_folder() {
        tally.lose(Lost::new(path.to_string(), "it is a folder"));
        tally.hint(FOLDERS);
        return Ok(());
    }
    tally.transferred += 1;
    world.out.line(format!("copy {path}"))
}

async fn print_file(
    files: &FileClient<'_>,
    path: &PfsPath,
    range: Option<Range<u64>>,
    pace: Option<&Pace>,
    world: &mut World,
) -> Result<(), CliError> {
    let mut content = match range {
        Some(range) => files.stretch(path, range).await?,
        None => files.cat(path).await?,
    };
    while let Some(piece) = content.next().await? {
        let Some(pace) = pace else {
            world.out.bytes(&piece)?;
            continue;
        };
        for some in piece.chunks(pace.at_once) {
            tokio::time::sleep(pace.throttle.delay(some.len() as u64)).await;
            world.out.bytes(some)?;
            world.out.flush()?;
        }
    }
    Ok(())
}

/// Bytes that go on while the next are held back.
const AT_ONCE: u64 = 64 << 10;

/// Limits a stream to this many bytes per second.
struct Pace {
    throttle: Throttle,
    /// Bytes to hand out in one go: a slow pace is kept in small steps.
    at_once: usize,
}

impl Pace {
    fn of(rate: u64) -> Pace {
        Pace {
            throttle: Throttle::new(rate),
            at_once: (rate / 10).clamp(1, AT_ONCE) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_pace_is_kept_in_small_steps() {
        assert_eq!(Pace::of(1_000_000).at_once, 64 << 10);
        assert_eq!(Pace::of(50).at_once, 5);
        assert_eq!(Pace::of(1).at_once, 1);
    }
}
