//! Uploads a local folder as a package: what belongs to it, and only the files that the server lacks.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use paddlecloud_api::client::{Client, ClientError, UploadWriter, upload_channel};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_pfs::pack::{PackError, PackWriter};
use paddlecloud_pfs::package::{Manifest, Scan, ScanError, ScanOptions, scan};
use paddlecloud_pfs::{Entry, RelPath, Root};
use paddlecloud_transfer::Patience;

use crate::environment::Environment;
use crate::error::{ConnectError, chain};
use crate::known_files::KnownFiles;

/// How often received data may turn out to be wrong, or to be gone.
const MOST_SPOILED: usize = 4;
/// How often an upload reports its progress.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// A scanned folder.
pub struct Package {
    pub folder: PathBuf,
    /// The folder's name on the cluster.
    pub name: String,
    pub scan: Scan,
    manifest: Manifest,
}

impl Package {
    pub fn id(&self) -> String {
        self.manifest.id().to_string()
    }

    /// A package without files has nothing to run.
    pub fn not_empty(self) -> Result<Package, ConnectError> {
        if self.scan.file_count() > 0 {
            return Ok(self);
        }
        let error = ConnectError::refused(format!("the package `{}` is empty", self.folder.display()));
        Err(if self.scan.ignored > 0 {
            error.with_hint("everything in it is ignored: by `.gitignore`, by `.paddleignore`, or as a virtual environment or cache")
        } else {
            error.with_hint("put your program into it, or name another folder")
        })
    }
}

/// A folder as a package, ready to be uploaded.
pub fn collect(folder: &Path) -> Result<Package, ConnectError> {
    look_through(resolve(folder)?, &Environment::of_this_process())?.not_empty()
}

/// Finds the files of the package, honouring `.gitignore` and `.paddleignore`. May take a while.
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

/// The client's own folder, if it is in the package: configuration, tokens and the embedded server's data are not part
/// of a program.
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

/// The folder itself, with links resolved.
pub fn resolve(folder: &Path) -> Result<PathBuf, ConnectError> {
    let wrong = |problem: &str| {
        unusable(folder, problem).with_hint(
            "a package is the folder that contains your program, or a path `/pfs/…` on the cluster",
        )
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

/// Uploads the package, unless the server has it. `progress` gets the bytes received by the server and the total.
///
/// A package is identified by its content, so sending it twice does no harm. Bytes received before a connection broke,
/// or before an earlier call was interrupted, are not sent again. It retries as long as less remains to be sent each
/// time, and otherwise as long as [`Patience`] lasts.
pub async fn upload(
    client: &Client,
    package: &Package,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), ConnectError> {
    let mut tries = Tries {
        patience: Patience::new(client),
        least: u64::MAX,
        spoiled: 0,
    };
    loop {
        match upload_once(client, package, &mut tries, &mut progress).await {
            Err(ConnectError::Client(error)) => tries.after(error).await?,
            ended => return ended,
        }
    }
}

/// Whether a broken upload is worth a retry.
struct Tries<'a> {
    patience: Patience<'a>,
    /// The fewest bytes that remained to be sent so far.
    least: u64,
    spoiled: usize,
}

impl Tries<'_> {
    /// This many bytes remain. If they are fewer than before, the last attempt made progress.
    fn on_left(&mut self, bytes: u64) {
        if bytes < self.least {
            self.least = bytes;
            self.patience.renew();
        }
    }

    async fn after(&mut self, error: ClientError) -> Result<(), ConnectError> {
        // Earlier data was wrong, or was removed meanwhile: announce the package again.
        if matches!(error.refusal(), Some(ErrorName::Damaged | ErrorName::Conflict)) {
            self.spoiled += 1;
            return match self.spoiled < MOST_SPOILED {
                true => Ok(()),
                false => Err(error.into()),
            };
        }
        Ok(self.patience.after(error).await?)
    }
}

async fn upload_once(
    client: &Client,
    package: &Package,
    tries: &mut Tries<'_>,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), ConnectError> {
    let id = package.id();
    let reply = client.package_announce(&package.manifest).await;
    let reply = reply.map_err(|error| too_many_files(package, error))?;
    if reply.stored {
        return Ok(());
    }
    let whole = package.scan.total_bytes;
    let items = wanted(&package.manifest, &reply);
    let total: u64 = items.iter().map(Item::bytes).sum();
    tries.on_left(total);
    let there = whole.saturating_sub(total);
    let (writer, body) = upload_channel();
    let so_far = body.progress();
    let folder = package.folder.clone();
    let packing = tokio::task::spawn_blocking(move || pack(&folder, &items, writer));
    let put = client.package_put(&id, body);
    let mut put = std::pin::pin!(put);
    let sent = loop {
        match tokio::time::timeout(TELL_EVERY, put.as_mut()).await {
            Ok(sent) => break sent,
            Err(_) => progress(there + so_far.load(Ordering::Relaxed).min(total), whole),
        }
    };
    // A local error explains why the server saw a broken stream, so it is reported first.
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

/// The server's refusal names the limit in bytes; the number of files is known here.
fn too_many_files(package: &Package, error: ClientError) -> ConnectError {
    if error.refusal() != Some(ErrorName::PayloadTooLarge) {
        return error.into();
    }
    let problem = format!(
        "the package `{}` has too many files, {}: {error}",
        package.folder.display(),
        package.scan.file_count()
    );
    ConnectError::refused(problem).with_hint(
        "list what the job does not need in `.paddleignore`; upload data with `cp` and read it from `/pfs/…`",
    )
}

/// An entry that must be sent.
struct Item {
    entry: Entry,
    /// Bytes of it that the server has.
    have: u64,
}

impl Item {
    fn bytes(&self) -> u64 {
        self.entry.size() - self.have
    }
}

/// Folders and links are always sent; files only if the server lacks their content, or the rest of it.
fn wanted(manifest: &Manifest, reply: &PackageReply) -> Vec<Item> {
    let missing: HashSet<&str> = reply.missing.iter().map(String::as_str).collect();
    let parts: HashMap<&RelPath, u64> = reply.parts.iter().map(|part| (&part.path, part.have)).collect();
    let wanted = manifest.entries().iter().filter(|entry| {
        let digest = entry.digest();
        digest.is_none_or(|digest| missing.contains(digest.to_string().as_str()))
    });
    wanted
        .map(|entry| Item {
            have: parts
                .get(&entry.path)
                .copied()
                .filter(|have| *have < entry.size())
                .unwrap_or(0),
            entry: entry.clone(),
        })
        .collect()
}

fn pack(folder: &Path, items: &[Item], writer: UploadWriter) -> Result<(), String> {
    let root = Root::open(folder).map_err(|error| chain(&error))?;
    let writer = write_items(&root, items, writer).map_err(|error| chain(&error))?;
    writer.finish().map_err(|error| error.to_string())
}

fn write_items(root: &Root, items: &[Item], writer: UploadWriter) -> Result<UploadWriter, PackError> {
    let mut stream = PackWriter::new(writer)?;
    for item in items {
        match item.have {
            0 => stream.add(&item.entry, root)?,
            have => stream.add_rest(&item.entry, root, have)?,
        }
    }
    Ok(stream.finish()?.0)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use paddlecloud_api::error::ErrorBody;

    use super::*;

    /// A home with a program, the client's own folder, and a link that leads elsewhere.
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

    /// The sources of this crate: files that did not change in the last seconds.
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

    fn reply(text: &str) -> PackageReply {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn of_a_file_whose_beginning_is_there_the_rest_is_sent() {
        let (home, environment) = home();
        std::fs::write(home.path().join("data"), "0123456789").unwrap();
        let package = look_through(resolve(home.path()).unwrap(), &environment).unwrap();
        let missing: Vec<String> = package
            .scan
            .entries
            .iter()
            .filter_map(|entry| Some(entry.digest()?.to_string()))
            .collect();
        let missing = serde_json::to_string(&missing).unwrap();
        let left = |parts: &str| -> u64 {
            let reply = reply(&format!(
                r#"{{"id":"x","missing":{missing},{parts}"stored":false}}"#
            ));
            wanted(&package.manifest, &reply).iter().map(Item::bytes).sum()
        };
        assert_eq!(left(""), 17, "an old server says nothing of parts");
        assert_eq!(left(r#""parts":[{"path":"data","have":4}],"#), 13);
        assert_eq!(
            left(r#""parts":[{"path":"data","have":10}],"#),
            17,
            "that is no rest"
        );
        let nothing = reply(r#"{"id":"x","missing":[],"stored":false}"#);
        assert!(wanted(&package.manifest, &nothing).is_empty());
    }

    #[test]
    fn a_list_that_is_too_long_is_told_with_the_number_of_files() {
        let (home, environment) = home();
        let package = look_through(resolve(home.path()).unwrap(), &environment).unwrap();
        let refused = ErrorBody::new(ErrorName::PayloadTooLarge, "the list is longer than 64 MiB");
        let told = too_many_files(&package, ClientError::Refused(refused));
        let text = told.to_string();
        assert!(
            text.contains("has too many files, 1: the list is longer than 64 MiB"),
            "{text}"
        );
        assert!(told.hints("paddlectl")[0].contains("`.paddleignore`"));
    }

    #[tokio::test]
    async fn what_is_spoiled_again_and_again_is_told() {
        let client = Client::new("unix:/nowhere".parse().unwrap());
        let mut tries = Tries {
            patience: Patience::new(&client),
            least: u64::MAX,
            spoiled: 0,
        };
        let refused = |name| ClientError::Refused(ErrorBody::new(name, "no"));
        for _ in 1..MOST_SPOILED / 2 {
            tries.after(refused(ErrorName::Damaged)).await.unwrap();
        }
        for _ in MOST_SPOILED / 2..MOST_SPOILED {
            // Another package needed the space before this one was sent.
            tries.after(refused(ErrorName::Conflict)).await.unwrap();
        }
        for name in [ErrorName::Damaged, ErrorName::Conflict] {
            assert!(tries.after(refused(name)).await.is_err());
        }
        let denied = ClientError::Refused(ErrorBody::new(ErrorName::Forbidden, "no"));
        assert!(tries.after(denied).await.is_err());
    }
}
