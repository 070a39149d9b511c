//! A local folder on its way up: what belongs to it, what is big, and only the files the server lacks.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use paddlecloud_api::client::{Client, upload_channel};
use paddlecloud_pfs::package::{Manifest, Scan, ScanOptions, scan};
use paddlecloud_pfs::{Entry, Root};

use crate::error::{CliError, chain};
use crate::time_text::size;
use crate::world::World;

/// More than this is worth a word before it is sent.
const BIG_PACKAGE: u64 = 50_000_000;
const BIG_FILE: u64 = 10_000_000;
const BIG_FILES_SHOWN: usize = 5;

const COLLECTING: &str = "Collecting package";
const UPLOADING: &str = "Uploading package";

/// A folder that was looked through.
pub struct Package {
    pub folder: PathBuf,
    /// What the folder is called on the cluster.
    pub name: String,
    pub scan: Scan,
    manifest: Manifest,
}

impl Package {
    pub fn id(&self) -> String {
        self.manifest.id().to_string()
    }
}

/// Looks through the folder, says `Collecting package ... Done` and names what is big.
pub fn collect(folder: &Path, world: &mut World) -> Result<Package, CliError> {
    let folder = resolve(folder)?;
    let name = folder.file_name().map_or_else(
        || "package".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    world.err.begin(COLLECTING);
    let collected = scan(&folder, &ScanOptions::default())
        .map_err(|error| chain(&error))
        .and_then(|scan| {
            let manifest = scan.manifest().map_err(|error| chain(&error))?;
            Ok((scan, manifest))
        });
    let (scan, manifest) = collected.map_err(|problem| {
        world.err.failed();
        CliError::refused(format!(
            "cannot use `{}` as a package: {problem}",
            folder.display()
        ))
    })?;
    world.err.done(COLLECTING);
    if scan.file_count() == 0 {
        return Err(empty(&folder, &scan));
    }
    tell_big(&scan, world);
    Ok(Package {
        folder,
        name,
        scan,
        manifest,
    })
}

fn resolve(folder: &Path) -> Result<PathBuf, CliError> {
    let wrong = |problem: &str| {
        CliError::refused(format!(
            "cannot use `{}` as a package: {problem}",
            folder.display()
        ))
        .with_hint("a package is the folder that holds your program, or a path `/pfs/…` on the cluster")
    };
    let real = folder.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => wrong("there is no such folder"),
        _ => wrong(&error.to_string()),
    })?;
    if real.is_dir() {
        Ok(real)
    } else {
        Err(wrong("it is not a folder"))
    }
}

fn empty(folder: &Path, scan: &Scan) -> CliError {
    let error = CliError::refused(format!("the package `{}` is empty", folder.display()));
    if scan.ignored > 0 {
        return error.with_hint(".gitignore or .paddleignore leave out everything in it");
    }
    error.with_hint("put your program into it, or name another folder")
}

fn tell_big(scan: &Scan, world: &mut World) {
    let big: Vec<&Entry> = scan
        .biggest(BIG_FILES_SHOWN)
        .into_iter()
        .filter(|entry| entry.size() > BIG_FILE)
        .collect();
    if scan.total_bytes > BIG_PACKAGE || !big.is_empty() {
        let count = scan.file_count();
        world.err.note(&format!(
            "the package has {} in {count} files",
            size(scan.total_bytes)
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

/// Brings the package to the server, unless it is there, and says `Uploading package ... Done`.
pub async fn upload(client: &Client, package: &Package, world: &mut World) -> Result<(), CliError> {
    world.err.begin(UPLOADING);
    let sent = send(client, package, world).await;
    match sent {
        Ok(()) => world.err.done(UPLOADING),
        Err(_) => world.err.failed(),
    }
    sent
}

async fn send(client: &Client, package: &Package, world: &mut World) -> Result<(), CliError> {
    let id = package.id();
    if client.package_has(&id).await? {
        return Ok(());
    }
    let reply = client.package_announce(&package.manifest).await?;
    if reply.stored {
        return Ok(());
    }
    let missing: HashSet<String> = reply.missing.into_iter().collect();
    let entries: Vec<Entry> = package
        .manifest
        .entries()
        .iter()
        .filter(|entry| is_wanted(entry, &missing))
        .cloned()
        .collect();
    let total: u64 = entries.iter().map(Entry::size).sum();
    let (writer, body) = upload_channel();
    let progress = body.progress();
    let folder = package.folder.clone();
    let packing = tokio::task::spawn_blocking(move || pack(&folder, &entries, writer));
    let put = client.package_put(&id, body);
    let mut put = std::pin::pin!(put);
    let sent = loop {
        match tokio::time::timeout(Duration::from_millis(200), put.as_mut()).await {
            Ok(sent) => break sent,
            Err(_) => {
                let so_far = progress.load(Ordering::Relaxed).min(total);
                let detail = format!("{} of {}", size(so_far), size(total));
                world.err.progress(UPLOADING, &detail);
            }
        }
    };
    // What went wrong here explains why the server saw a broken stream, so it is told first.
    let packed = packing
        .await
        .unwrap_or_else(|_| Err("reading the package failed".to_owned()));
    match (sent, packed) {
        (Ok(()), _) => Ok(()),
        (Err(error @ paddlecloud_api::client::ClientError::Refused(_)), _) => Err(error.into()),
        (Err(_), Err(problem)) if !problem.contains("stopped reading") => {
            Err(CliError::refused(format!("cannot send the package: {problem}"))
                .with_hint("files must not change while they are sent; submit again"))
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// Folders and links always travel; files only when the server lacks their content.
fn is_wanted(entry: &Entry, missing: &HashSet<String>) -> bool {
    entry
        .digest()
        .is_none_or(|digest| missing.contains(&digest.to_string()))
}

fn pack(
    folder: &Path,
    entries: &[Entry],
    writer: paddlecloud_api::client::UploadWriter,
) -> Result<(), String> {
    let root = Root::open(folder).map_err(|error| chain(&error))?;
    let (writer, _) =
        paddlecloud_pfs::pack::write_pack(&root, entries, writer).map_err(|error| chain(&error))?;
    writer.finish().map_err(|error| error.to_string())
}
