//! What people see of a package on its way up: that it is looked through, what is big in it, how far it is.
//!
//! The work itself is done by `paddlecloud_connect::package`.

use std::path::Path;

use paddlecloud_api::client::Client;
use paddlecloud_connect::package::{self, Package};
use paddlecloud_pfs::Entry;
use paddlecloud_pfs::package::Scan;

use crate::error::CliError;
use crate::time_text::size;
use crate::transfer::report::counted;
use crate::world::World;

/// More than this is worth a word before it is sent.
const BIG_PACKAGE: u64 = 50_000_000;
const BIG_FILE: u64 = 10_000_000;
const BIG_FILES_SHOWN: usize = 5;

const COLLECTING: &str = "Collecting package";
const UPLOADING: &str = "Uploading package";

/// Looks through the folder, says `Collecting package ... Done` and names what is big.
pub fn collect(folder: &Path, world: &mut World) -> Result<Package, CliError> {
    let folder = package::resolve(folder)?;
    world.err.begin(COLLECTING);
    let collected = package::look_through(folder, &world.env).inspect_err(|_| world.err.failed())?;
    world.err.done(COLLECTING);
    let collected = collected.not_empty()?;
    tell_big(&collected.scan, world);
    Ok(collected)
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
            .note("what is not needed there can be named in `.paddleignore`");
    }
    for left_out in &scan.left_out {
        world.err.note(&format!(
            "`{}` is a socket, pipe or device and stays here",
            left_out.path
        ));
    }
}

/// Says of a package that the server has had before what is said of one that was sent.
pub fn tell_uploaded(world: &mut World) {
    world.err.begin(UPLOADING);
    world.err.done(UPLOADING);
}

/// Brings the package to the server, unless it is there, and says `Uploading package ... Done`. Who interrupts it is
/// told what that means.
pub async fn upload(
    client: &Client,
    package: &Package,
    interrupt: impl Future<Output = ()>,
    world: &mut World,
) -> Result<(), CliError> {
    let mut interrupt = std::pin::pin!(interrupt);
    // Asked once before anything is said, it listens from here on.
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

/// What the work comes to; nothing when it was interrupted.
async fn unless<T>(interrupt: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = interrupt => None,
        result = work => Some(result),
    }
}

fn interrupted() -> CliError {
    CliError::refused("interrupted: no job was made")
        .with_hint("the same command goes on where this one stopped")
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
