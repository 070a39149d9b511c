//! Messages about a package being uploaded: that it is scanned, what is large in it, the progress.
//!
//! `paddlecloud_connect::package` does the work.

use std::path::Path;

use paddlecloud_api::client::Client;
use paddlecloud_connect::package::{self, Package};
use paddlecloud_pfs::package::{BuiltIn, Scan};
use paddlecloud_pfs::{Entry, RelPath};

use crate::error::CliError;
use crate::time_text::size;
use crate::transfer::report::counted;
use crate::world::World;

/// A larger package is worth a note before it is sent.
const BIG_PACKAGE: u64 = 50_000_000;
const BIG_FILE: u64 = 10_000_000;
const BIG_FILES_SHOWN: usize = 5;

const COLLECTING: &str = "Collecting package";
const UPLOADING: &str = "Uploading package";

/// Scans the folder, prints `Collecting package ... Done` and names large files.
pub fn collect(folder: &Path, world: &mut World) -> Result<Package, CliError> {
    let folder = package::resolve(folder)?;
    world.err.begin(COLLECTING);
    let collected = package::look_through(folder, &world.env).inspect_err(|_| world.err.failed())?;
    world.err.done(COLLECTING);
    let collected = collected.not_empty()?;
    tell_left_out(&collected.scan, world);
    tell_big(&collected.scan, world);
    Ok(collected)
}

/// One line about the virtual environments and caches that are not uploaded; many are counted.
fn tell_left_out(scan: &Scan, world: &mut World) {
    let of_kind = |searched| {
        let folders = scan.built_in.iter().filter(move |(_, kind)| *kind == searched);
        folders.map(|(folder, _)| folder).collect::<Vec<_>>()
    };
    let environments = some_of(&of_kind(BuiltIn::VirtualEnvironment), "virtual environment");
    let caches = some_of(&of_kind(BuiltIn::Cache), "cache");
    let parts: Vec<String> = environments.into_iter().chain(caches).collect();
    if !parts.is_empty() {
        world.err.note(&format!(
            "not uploaded: {}; `.paddleignore` can include them (`!FOLDER`)",
            parts.join(", ")
        ));
    }
}

/// `the cache `__pycache__``, `3 caches`, or nothing.
fn some_of(folders: &[&RelPath], kind: &str) -> Option<String> {
    match folders {
        [] => None,
        [one] => Some(format!("the {kind} `{one}`")),
        many => Some(format!("{} {kind}s", many.len())),
    }
}

fn tell_big(scan: &Scan, world: &mut World) {
    let big: Vec<&Entry> = scan
        .biggest(BIG_FILES_SHOWN)
        .into_iter()
        .filter(|entry| entry.size() > BIG_FILE)
        .collect();
    if scan.total_bytes > BIG_PACKAGE || !big.is_empty() {
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
        world
            .err
            .note("list what the job does not need in `.paddleignore`");
    }
    for special in &scan.special {
        world.err.note(&format!(
            "`{}` is a socket, pipe or device and is not uploaded",
            special
        ));
    }
}

/// Prints the same lines for a package that the server already had as for one that was sent.
pub fn tell_uploaded(world: &mut World) {
    world.err.begin(UPLOADING);
    world.err.done(UPLOADING);
}

/// Uploads the package, unless the server has it, and prints `Uploading package ... Done`. Explains an interruption.
pub async fn upload(
    client: &Client,
    package: &Package,
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
    let sent = unless(interrupt, package::upload(client, package, tell)).await;
    match sent {
        Some(Ok(())) => world.err.done(UPLOADING),
        _ => world.err.failed(),
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
