//! Uploads a local folder as a package: what belongs to it, and only the files that the server lacks.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paddlecloud_api::SMALL_BODY;
use paddlecloud_api::client::{Client, ClientError};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{PACK_BYTES, PACK_ENTRIES, SMALL_FILE};
use paddlecloud_api::jobs::{JobRequest, PackageReply};
use paddlecloud_pfs::package::{Manifest, Scan, ScanError, ScanOptions, scan};
use paddlecloud_pfs::{Entry, RelPath};
use paddlecloud_transfer::{FileService, Patience, Progress, TransferError, Upload};

use crate::environment::Environment;
use crate::error::{ConnectError, chain};
use crate::known_files::KnownFiles;
use crate::left_out;

/// How often received data may turn out to be wrong or gone without any progress.
const MOST_SPOILED: usize = 4;
/// How often an upload reports its progress.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Sending more than this is worth a question.
const MANY_BYTES: u64 = 200_000_000;
const MANY_FILES: usize = 10_000;

/// How much there is to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    pub files: usize,
    pub bytes: u64,
}

impl Volume {
    /// More than most programs have: data was meant to be elsewhere, or the wrong folder was named.
    pub fn is_large(self) -> bool {
        self.bytes > MANY_BYTES || self.files > MANY_FILES
    }
}

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

    /// Adds the list of files to a submit, if the package fits into one pack and the request stays small. A server that lacks
    /// the package then replies what to send, and the repeated submit publishes it. A dry run sends nothing.
    pub fn list_in(&self, request: &mut JobRequest) {
        let files = self.manifest.entries().iter().filter(|entry| entry.is_file());
        let volume = self.volume();
        let is_small = files.map(Entry::size).all(|size| size <= SMALL_FILE);
        if request.dry_run || !is_small || volume.bytes > PACK_BYTES || volume.files > PACK_ENTRIES {
            return;
        }
        request.package_list = Some(self.manifest.clone());
        let body = serde_json::to_vec(request).expect("wire types always serialize");
        if body.len() > SMALL_BODY {
            request.package_list = None;
        }
    }

    /// The whole package, whatever the server already has of it.
    pub fn volume(&self) -> Volume {
        Volume {
            files: self.scan.file_count(),
            bytes: self.scan.total_bytes,
        }
    }

    /// What it leaves out although no ignore file names it.
    pub fn left_out(&self) -> Vec<String> {
        left_out::notes(&self.scan)
    }

    /// A package without files has nothing to run.
    pub fn not_empty(self) -> Result<Package, ConnectError> {
        if self.scan.file_count() > 0 {
            return Ok(self);
        }
        let error = ConnectError::refused(format!("the package `{}` is empty", self.folder.display()));
        Err(if self.scan.ignored > 0 {
            error.with_hint("everything in it is ignored: by `.gitignore`, by `.paddleignore`, or as a virtual environment, cache or credentials")
        } else {
            error.with_hint("put your program into it, or name another folder")
        })
    }
}

/// A folder as a package, ready to be uploaded.
pub fn collect(folder: &Path) -> Result<Package, ConnectError> {
    let environment = Environment::of_this_process();
    look_through(resolve(folder, &environment)?, &environment)?.not_empty()
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

/// The folder itself, with links resolved. A home is refused, whether named on purpose or typed as `.` in it: it has keys,
/// passwords and the user's other work.
pub fn resolve(folder: &Path, environment: &Environment) -> Result<PathBuf, ConnectError> {
    let wrong = |problem: &str| {
        unusable(folder, problem).with_hint(
            "a package is the folder that contains your program, or a path `/pfs/…` on the cluster",
        )
    };
    let real = folder.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => wrong("there is no such folder"),
        _ => wrong(&error.to_string()),
    })?;
    if !real.is_dir() {
        return Err(wrong("it is not a folder"));
    }
    match too_much(&real, environment) {
        Some(problem) => Err(unusable(folder, problem)
            .with_hint("put the program into a folder of its own, and submit that folder")),
        None => Ok(real),
    }
}

/// Why a folder is never a program's own.
fn too_much(folder: &Path, environment: &Environment) -> Option<&'static str> {
    if folder.parent().is_none() {
        return Some("it is the root of the file system");
    }
    let home = environment.user_home()?.canonicalize().ok()?;
    if home == folder {
        return Some("it is your home folder");
    }
    home.starts_with(folder).then_some("your home folder is in it")
}

/// What the server lacks of the package; all of it if it does not say.
pub async fn left_to_send(client: &Client, package: &Package) -> Volume {
    let Ok(reply) = client.package_announce(&package.manifest).await else {
        return package.volume();
    };
    let files = missing(&package.manifest, &reply);
    Volume {
        files: files.len(),
        bytes: files.iter().map(Entry::size).sum(),
    }
}

/// The package of a submit, on its way to a server that lacks it.
///
/// A package is identified by its content, so sending it twice does no harm. Files and chunks received before a connection broke,
/// or before an earlier call was interrupted, are not sent again. It retries as long as less remains to be sent each
/// time, and otherwise as long as [`Patience`] lasts.
pub struct Delivery<'a> {
    client: &'a Client,
    package: &'a Package,
    tries: Tries<'a>,
    has_begun: bool,
    /// The package was announced apart from the submit, and the server had all of it.
    was_stored: bool,
}

impl<'a> Delivery<'a> {
    pub fn of(client: &'a Client, package: &'a Package) -> Delivery<'a> {
        Delivery {
            client,
            package,
            tries: Tries {
                patience: Patience::new(client),
                least: u64::MAX,
                spoiled: 0,
            },
            has_begun: false,
            was_stored: false,
        }
    }

    /// Whether the server asked for the package.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Sends what the server lacks, after it refused a submit because of that. The submit is to be repeated. `progress` gets the
    /// bytes received by the server and the total.
    pub async fn send(
        &mut self,
        refused: ClientError,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(), ConnectError> {
        self.has_begun = true;
        match refused.missing_package() {
            Some(reply) => self.send_missing(reply, &mut progress).await,
            None if self.was_stored => Err(refused.into()),
            // The request had no list, or the server is of an earlier version.
            None => self.announce_and_send(&mut progress).await,
        }
    }

    /// Waits before a submit is repeated that failed after the package was sent; returns the error if that is pointless.
    pub async fn after(&mut self, error: ClientError) -> Result<(), ConnectError> {
        match self.has_begun {
            true => Ok(self.tries.patience.after(error).await?),
            false => Err(error.into()),
        }
    }

    async fn announce_and_send(&mut self, progress: &mut impl FnMut(u64, u64)) -> Result<(), ConnectError> {
        loop {
            match self.client.package_announce(&self.package.manifest).await {
                Ok(reply) if reply.stored => {
                    self.was_stored = true;
                    return Ok(());
                }
                Ok(reply) => self.send_missing(&reply, progress).await?,
                Err(error) if error.refusal() == Some(ErrorName::PayloadTooLarge) => {
                    return Err(too_many_files(self.package, &error));
                }
                Err(error) => self.tries.after(error.into()).await?,
            }
        }
    }

    async fn send_missing(
        &mut self,
        reply: &PackageReply,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<(), ConnectError> {
        let files = missing(&self.package.manifest, reply);
        self.tries.on_left(files.iter().map(Entry::size).sum());
        match fill(self.client, self.package, reply, files, progress).await? {
            Some(error) => self.tries.after(error).await,
            None => self.tries.spoil(changing),
        }
    }
}

/// Whether a broken upload is worth a retry.
struct Tries<'a> {
    patience: Patience<'a>,
    /// The fewest bytes that remained to be sent so far.
    least: u64,
    /// How often all was sent and something was still missing, or what was sent was wrong or gone, since the last progress.
    spoiled: usize,
}

impl Tries<'_> {
    /// This many bytes remain. If they are fewer than before, the last attempt made progress.
    fn on_left(&mut self, bytes: u64) {
        if bytes < self.least {
            (self.least, self.spoiled) = (bytes, 0);
            self.patience.renew();
        }
    }

    async fn after(&mut self, error: TransferError) -> Result<(), ConnectError> {
        use ErrorName::{Changing, Conflict, Damaged, NotFound};
        match error {
            // Announce the package again.
            TransferError::Changed | TransferError::UploadGone => self.spoil(changing),
            TransferError::Server(error) => match error.refusal() {
                Some(Damaged | Conflict | Changing | NotFound) => self.spoil(|| error.into()),
                _ => Ok(self.patience.after(error).await?),
            },
            error => Err(ConnectError::refused(format!(
                "cannot send the package: {}",
                chain(&error)
            ))),
        }
    }

    fn spoil(&mut self, error: impl FnOnce() -> ConnectError) -> Result<(), ConnectError> {
        self.spoiled += 1;
        match self.spoiled < MOST_SPOILED {
            true => Ok(()),
            false => Err(error()),
        }
    }
}

fn changing() -> ConnectError {
    ConnectError::refused("cannot send the package: its files change".to_owned())
        .with_hint("files must not change while they are sent; submit again")
}

/// The files whose content the server lacks.
fn missing(manifest: &Manifest, reply: &PackageReply) -> Vec<Entry> {
    let missing: HashSet<&str> = reply.missing.iter().map(String::as_str).collect();
    let is_missing = |entry: &&Entry| {
        let digest = entry.digest();
        digest.is_some_and(|digest| missing.contains(digest.to_string().as_str()))
    };
    manifest.entries().iter().filter(is_missing).cloned().collect()
}

/// Sends files into the package. Returns the reason if not all of them arrived.
async fn fill(
    client: &Client,
    package: &Package,
    reply: &PackageReply,
    files: Vec<Entry>,
    progress: &mut impl FnMut(u64, u64),
) -> Result<Option<TransferError>, ConnectError> {
    let whole = package.scan.total_bytes;
    let there = whole.saturating_sub(files.iter().map(Entry::size).sum());
    let remote = reply.folder.parse();
    let remote =
        remote.map_err(|error| ConnectError::refused(format!("the server named no folder: {error}")))?;
    let tree = Upload::Tree {
        local: package.folder.clone(),
        remote,
        entries: files,
    };
    let arrived = Arrived::default();
    let service = client.files();
    let mut sending = std::pin::pin!(service.fill_package(tree, &arrived));
    let summary = loop {
        match tokio::time::timeout(TELL_EVERY, sending.as_mut()).await {
            Ok(summary) => break summary,
            Err(_) => progress((there + arrived.0.load(Ordering::Relaxed)).min(whole), whole),
        }
    };
    let errors = summary.failures.into_iter().map(|failure| failure.error);
    Ok(errors.reduce(|first, next| match first {
        TransferError::BrokenOff => next,
        first => first,
    }))
}

/// Bytes that the server received.
#[derive(Default)]
struct Arrived(AtomicU64);

impl Progress for Arrived {
    fn moved(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn again(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn reused(&self, bytes: u64) {
        self.moved(bytes);
    }
}

/// The server's refusal names the limit in bytes; the number of files is known here.
fn too_many_files(package: &Package, error: &ClientError) -> ConnectError {
    let problem = format!(
        "the package `{}` has too many files, {}: {error}",
        package.folder.display(),
        package.scan.file_count()
    );
    ConnectError::refused(problem).with_hint(
        "list what the job does not need in `.paddleignore`; upload data with `cp` and read it from `/pfs/…`",
    )
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use paddlecloud_api::error::ErrorBody;

    use super::*;

    /// A folder with a program, the client's own folder, and a link to another place.
    fn program() -> (tempfile::TempDir, Environment) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".paddle/local/bin")).unwrap();
        std::fs::write(folder.path().join("train.py"), "print()").unwrap();
        std::os::unix::fs::symlink("/bin/sh", folder.path().join(".paddle/local/bin/paddle")).unwrap();
        let own = folder.path().join(".paddle").display().to_string();
        let environment = Environment::from(BTreeMap::from([("PADDLECLOUD_HOME".to_owned(), own)]));
        (folder, environment)
    }

    fn looked_through(folder: &Path, environment: &Environment) -> Result<Package, ConnectError> {
        look_through(resolve(folder, environment)?, environment)
    }

    #[test]
    fn a_home_the_root_and_what_is_above_a_home_are_no_packages() {
        let (home, _) = program();
        let below = home.path().join("job");
        std::fs::create_dir(&below).unwrap();
        let link = below.join("link");
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        let text = home.path().display().to_string();
        let environment = Environment::from(BTreeMap::from([("HOME".to_owned(), text)]));
        for (folder, reason) in [
            (home.path(), "it is your home folder"),
            (&link, "it is your home folder"),
            (home.path().parent().unwrap(), "your home folder is in it"),
            (Path::new("/"), "it is the root of the file system"),
        ] {
            let error = resolve(folder, &environment).unwrap_err().to_string();
            assert!(error.ends_with(reason), "{}: {error}", folder.display());
        }
        assert!(resolve(&below, &environment).is_ok());
        let homeless = Environment::default();
        assert!(resolve(Path::new("/"), &homeless).is_err());
        assert!(resolve(home.path(), &homeless).is_ok());
    }

    #[test]
    fn the_clients_own_folder_is_not_packaged() {
        let (folder, environment) = program();
        let package = looked_through(folder.path(), &environment).unwrap();
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
    fn unchanged_files_are_not_read_again() {
        let (folder, environment) = program();
        let look = || {
            let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            looked_through(&sources, &environment).unwrap()
        };
        let (first, second) = (look(), look());
        assert_eq!(first.scan.read, first.scan.file_count());
        assert_eq!((second.id(), second.scan.read), (first.id(), 0));

        let known = folder.path().join(".paddle/known-files");
        for file in std::fs::read_dir(known).unwrap() {
            std::fs::write(file.unwrap().path(), "damaged").unwrap();
        }
        let third = look();
        assert_eq!((third.id(), third.scan.read), (first.id(), first.scan.read));
    }

    #[test]
    fn a_link_to_the_outside_is_refused_with_a_hint() {
        let (folder, environment) = program();
        std::os::unix::fs::symlink("/etc/hosts", folder.path().join("hosts")).unwrap();
        let Err(error) = looked_through(folder.path(), &environment) else {
            panic!("a link out of the folder cannot travel");
        };
        assert!(
            error.to_string().contains("`hosts` points outside the folder"),
            "{error}"
        );
        assert!(error.hints("paddlectl")[0].contains("`.paddleignore`"));
    }

    #[test]
    fn files_are_sent_whose_content_the_server_lacks() {
        let (folder, environment) = program();
        for (name, content) in [("data", "0123456789"), ("same", "0123456789")] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let package = looked_through(folder.path(), &environment).unwrap();
        let digest = package.scan.entries[0].digest().unwrap();
        let left = |missing: &str| -> Vec<String> {
            let text = format!(r#"{{"id":"x","folder":"/pfs/dc/x","missing":[{missing}],"stored":false}}"#);
            let reply: PackageReply = serde_json::from_str(&text).unwrap();
            let files = super::missing(&package.manifest, &reply);
            files.iter().map(|entry| entry.path.to_string()).collect()
        };
        assert_eq!(left(""), [""; 0]);
        assert_eq!(left(&format!("\"{digest}\"")), ["data", "same"]);
    }

    #[test]
    fn a_list_that_is_too_long_is_reported_with_the_number_of_files() {
        let (folder, environment) = program();
        let package = looked_through(folder.path(), &environment).unwrap();
        let refused = ErrorBody::new(ErrorName::PayloadTooLarge, "the list is longer than 64 MiB");
        let error = too_many_files(&package, &ClientError::Refused(refused));
        let text = error.to_string();
        assert!(
            text.contains("has too many files, 1: the list is longer than 64 MiB"),
            "{text}"
        );
        assert!(error.hints("paddlectl")[0].contains("`.paddleignore`"));
    }

    #[tokio::test]
    async fn a_package_that_keeps_changing_is_an_error() {
        let client = Client::new("unix:/nowhere".parse().unwrap());
        let mut tries = Tries {
            patience: Patience::new(&client),
            least: u64::MAX,
            spoiled: 0,
        };
        let refused = |name| TransferError::from(ClientError::Refused(ErrorBody::new(name, "no")));
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
        tries.on_left(7);
        tries.after(TransferError::Changed).await.unwrap();
        assert!(tries.after(refused(ErrorName::Forbidden)).await.is_err());
    }
}
