//! A local folder on its way up: what belongs to it, and only the files the server lacks.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use paddlecloud_api::client::{Client, ClientError, UploadWriter, upload_channel};
use paddlecloud_pfs::package::{Manifest, Scan, ScanError, ScanOptions, scan};
use paddlecloud_pfs::{Entry, RelPath, Root};

use crate::environment::Environment;
use crate::error::{ConnectError, chain};
use crate::known_files::KnownFiles;

/// How often an upload whose connection broke is begun again.
const TRIES: usize = 3;
/// How often an upload says how far it is.
const TELL_EVERY: Duration = Duration::from_millis(200);

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

    /// A package without a file has nothing to run.
    pub fn not_empty(self) -> Result<Package, ConnectError> {
        if self.scan.file_count() > 0 {
            return Ok(self);
        }
        let error = ConnectError::refused(format!("the package `{}` is empty", self.folder.display()));
        Err(if self.scan.ignored > 0 {
            error.with_hint(".gitignore or .paddleignore leave out everything in it")
        } else {
            error.with_hint("put your program into it, or name another folder")
        })
    }
}

/// A folder as a package, ready to go up.
pub fn collect(folder: &Path) -> Result<Package, ConnectError> {
    look_through(resolve(folder)?, &Environment::of_this_process())?.not_empty()
}

/// Finds what belongs to the package, honouring `.gitignore` and `.paddleignore`. May take a while.
pub fn look_through(folder: PathBuf, environment: &Environment) -> Result<Package, ConnectError> {
    let name = folder.file_name().map_or_else(
        || "package".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let known = KnownFiles::of(&folder, environment);
    let options = ScanOptions {
        without: own_folder(&folder, environment),
        known: Some(&known.stamps),
        ..ScanOptions::default()
    };
    let scan = scan(&folder, &options).map_err(|error| {
        let refused = unusable(&folder, &chain(&error));
        match error {
            ScanError::LinkOutside(_) => refused
                .with_hint("put the file itself there, or name the link in `.paddleignore` to leave it out"),
            _ => refused,
        }
    })?;
    known.keep(scan.file_count(), scan.read);
    let manifest = scan.manifest();
    let manifest = manifest.map_err(|error| unusable(&folder, &chain(&error)))?;
    Ok(Package {
        folder,
        name,
        scan,
        manifest,
    })
}

/// The client's own folder, where it lies in the package: configuration, tokens and the embedded server's data are
/// nobody's program.
fn own_folder(folder: &Path, environment: &Environment) -> Option<RelPath> {
    let own = environment.paddle_home()?.canonicalize().ok()?;
    let inside = own.strip_prefix(folder).ok()?;
    let inside = RelPath::from_bytes(inside.as_os_str().as_encoded_bytes()).ok()?;
    (!inside.is_root()).then_some(inside)
}

fn unusable(folder: &Path, problem: &str) -> ConnectError {
    ConnectError::refused(format!(
        "cannot use `{}` as a package: {problem}",
        folder.display()
    ))
}

/// The folder itself, whatever way leads to it.
pub fn resolve(folder: &Path) -> Result<PathBuf, ConnectError> {
    let wrong = |problem: &str| {
        unusable(folder, problem)
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

/// Brings the package to the server, unless it is there. `progress` hears the bytes sent and their total.
///
/// A package is named by its content, so sending it twice is the same as sending it once.
pub async fn upload(
    client: &Client,
    package: &Package,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), ConnectError> {
    let mut tries = 1;
    loop {
        match upload_once(client, package, &mut progress).await {
            Err(ConnectError::Client(ClientError::Broken { .. })) if tries < TRIES => tries += 1,
            ended => return ended,
        }
    }
}

async fn upload_once(
    client: &Client,
    package: &Package,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), ConnectError> {
    let id = package.id();
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
    let so_far = body.progress();
    let folder = package.folder.clone();
    let packing = tokio::task::spawn_blocking(move || pack(&folder, &entries, writer));
    let put = client.package_put(&id, body);
    let mut put = std::pin::pin!(put);
    let sent = loop {
        match tokio::time::timeout(TELL_EVERY, put.as_mut()).await {
            Ok(sent) => break sent,
            Err(_) => progress(so_far.load(Ordering::Relaxed).min(total), total),
        }
    };
    // What went wrong here explains why the server saw a broken stream, so it is told first.
    let packed = packing
        .await
        .unwrap_or_else(|_| Err("reading the package failed".to_owned()));
    match (sent, packed) {
        (Ok(()), _) => Ok(()),
        (Err(error @ ClientError::Refused(_)), _) => Err(error.into()),
        (Err(_), Err(problem)) if !problem.contains("stopped reading") => Err(ConnectError::refused(
            format!("cannot send the package: {problem}"),
        )
        .with_hint("files must not change while they are sent; submit again")),
        (Err(error), _) => Err(error.into()),
    }
}

/// Folders and links always travel; files only when the server lacks their content.
fn is_wanted(entry: &Entry, missing: &HashSet<String>) -> bool {
    entry
        .digest()
        .is_none_or(|digest| missing.contains(&digest.to_string()))
}

fn pack(folder: &Path, entries: &[Entry], writer: UploadWriter) -> Result<(), String> {
    let root = Root::open(folder).map_err(|error| chain(&error))?;
    let (writer, _) =
        paddlecloud_pfs::pack::write_pack(&root, entries, writer).map_err(|error| chain(&error))?;
    writer.finish().map_err(|error| error.to_string())
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A home with a program, the client's own folder, and a link in it that leads elsewhere.
    fn home() -> (tempfile::TempDir, Environment) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".paddle/local/bin")).unwrap();
        std::fs::write(home.path().join("train.py"), "print()").unwrap();
        std::os::unix::fs::symlink("/bin/sh", home.path().join(".paddle/local/bin/paddle")).unwrap();
        let path = home.path().display().to_string();
        let environment = Environment::from(BTreeMap::from([("HOME".to_owned(), path)]));
        (home, environment)
    }

    #[test]
    fn the_clients_own_folder_is_no_part_of_a_package() {
        let (home, environment) = home();
        let package = look_through(resolve(home.path()).unwrap(), &environment).unwrap();
        let paths: Vec<String> = package
            .scan
            .entries
            .iter()
            .map(|entry| entry.path.to_string())
            .collect();
        assert_eq!(paths, ["train.py"]);
    }

    /// The sources of this crate: files that nobody changed in the last seconds.
    #[test]
    fn what_did_not_change_since_the_last_submit_is_not_read_again() {
        let (home, environment) = home();
        let look = || {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            look_through(resolve(&folder).unwrap(), &environment).unwrap()
        };
        let (first, second) = (look(), look());
        assert_eq!(first.scan.read, first.scan.file_count());
        assert_eq!((second.id(), second.scan.read), (first.id(), 0));

        let folder = home.path().join(".paddle/known-files");
        for file in std::fs::read_dir(folder).unwrap() {
            std::fs::write(file.unwrap().path(), "damaged").unwrap();
        }
        let third = look();
        assert_eq!((third.id(), third.scan.read), (first.id(), first.scan.read));
    }

    #[test]
    fn a_link_that_leads_out_says_what_to_do() {
        let (home, environment) = home();
        std::os::unix::fs::symlink("/etc/hosts", home.path().join("hosts")).unwrap();
        let Err(error) = look_through(resolve(home.path()).unwrap(), &environment) else {
            panic!("a link out of the folder cannot travel");
        };
        assert!(
            error.to_string().contains("`hosts` leads out of the folder"),
            "{error}"
        );
        assert!(error.hints("paddlectl")[0].contains("`.paddleignore`"));
    }
}
