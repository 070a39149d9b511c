//! Messages about a package being uploaded: that it is scanned, what is large in it, the progress.
//!
//! `paddlecloud_connect::package` does the work.

use std::path::Path;

use paddlecloud_api::client::{Client, ClientError};
use paddlecloud_connect::package::{self, Delivery, Package};
use paddlecloud_pfs::Entry;

use crate::error::CliError;
use crate::question::{can_be_asked, is_agreed};
use crate::time_text::size;
use crate::transfer::report::counted;
use crate::world::World;

/// A larger package is worth a note before it is sent.
const BIG_PACKAGE: u64 = 50_000_000;
const BIG_FILE: u64 = 10_000_000;
const BIG_FILES_SHOWN: usize = 5;

const DATA_ELSEWHERE: &str =
    "list what the job does not need in `.paddleignore`; upload data with `cp` and read it from `/pfs/…`";

const COLLECTING: &str = "Collecting package";
const UPLOADING: &str = "Uploading package";

/// Scans the folder, prints `Collecting package ... Done` and names large files.
pub fn collect(folder: &Path, world: &mut World) -> Result<Package, CliError> {
    let folder = package::resolve(folder, &world.env)?;
    world.err.begin(COLLECTING);
    let collected =
        package::look_through(folder, &world.env).inspect_err(|_| world.err.failed(COLLECTING))?;
    world.err.done(COLLECTING);
    let collected = collected.not_empty()?;
    for note in collected.left_out() {
        world.err.note(&note);
    }
    tell_big(&collected, world);
    Ok(collected)
}

fn tell_big(package: &Package, world: &mut World) {
    let scan = &package.scan;
    let big: Vec<&Entry> = scan
        .biggest(BIG_FILES_SHOWN)
        .into_iter()
        .filter(|entry| entry.size() > BIG_FILE)
        .collect();
    if scan.total_bytes > BIG_PACKAGE || package.volume().is_large() || !big.is_empty() {
        world.err.note(&format!(
            "the package has {} in {}",
            size(scan.total_bytes),
            counted(scan.file_count() as u64)
        ));
        for entry in &big {
            world
                .err
                .note(&format!("  {} {}", size(entry.size()), entry.path));
        }
        world.err.note(DATA_ELSEWHERE);
    }
    for special in &scan.special {
        world.err.note(&format!(
            "`{}` is a socket, pipe or device and is not uploaded",
            special
        ));
    }
}

/// Asks before much is sent. Where nobody can answer, [`collect`] has told it.
pub async fn confirm(client: &Client, package: &Package, world: &mut World) -> Result<(), CliError> {
    if !package.volume().is_large() || !can_be_asked(world) {
        return Ok(());
    }
    let left = package::left_to_send(client, package).await;
    let question = format!("upload {} in {}?", size(left.bytes), counted(left.files as u64));
    if !left.is_large() || is_agreed(&question, world)? {
        return Ok(());
    }
    Err(CliError::refused("nothing was uploaded, and no job was created").with_hint(DATA_ELSEWHERE))
}

/// Prints the same lines for a package that the server already had as for one that was sent.
pub fn tell_uploaded(world: &mut World) {
    world.err.begin(UPLOADING);
    world.err.done(UPLOADING);
}

/// Sends what the server lacks and prints `Uploading package ... Done`. Explains an interruption.
pub async fn upload(
    delivery: &mut Delivery<'_>,
    missing: ClientError,
    interrupt: impl Future<Output = ()>,
    world: &mut World,
) -> Result<(), CliError> {
    let mut interrupt = std::pin::pin!(interrupt);
    // Polled once before anything is printed, it listens from here on.
    unless(interrupt.as_mut(), std::future::ready(()))
        .await
        .ok_or_else(interrupted)?;
    world.err.begin(UPLOADING);
    let tell = |sent, total| {
        let detail = format!("{} of {}", size(sent), size(total));
        world.err.progress(UPLOADING, &detail);
    };
    let sent = unless(interrupt, delivery.send(missing, tell)).await;
    match sent {
        Some(Ok(())) => world.err.done(UPLOADING),
        _ => world.err.failed(UPLOADING),
    }
    Ok(sent.ok_or_else(interrupted)??)
}

/// The result of the work; `None` if it was interrupted.
async fn unless<T>(interrupt: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = interrupt => None,
        result = work => Some(result),
    }
}

fn interrupted() -> CliError {
    CliError::refused("interrupted: no job was created").with_hint("run the same command again to resume")
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn work_ends_by_itself_or_by_an_interrupt() {
        assert_eq!(unless(pending(), ready(7)).await, Some(7));
        assert_eq!(unless(ready(()), pending::<()>()).await, None);
        assert_eq!(
            unless(ready(()), ready(7)).await,
            None,
            "who interrupts is heard first"
        );
    }
}
