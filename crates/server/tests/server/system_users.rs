//! Users who are mapped to system users: what they own on the disk, and what their jobs cannot reach.
//!
//! Needs root; the accounts are two that every Debian has.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::MoveRequest;
use paddlecloud_api::jobs::{JobRequest, PackageReply};
use paddlecloud_core::names::JobRef;
use paddlecloud_pfs::PfsPath;
use paddlecloud_pfs::pack::PackTotals;
use paddlecloud_pfs::package::Manifest;
use paddlecloud_server::app::App;
use paddlecloud_server::config::Config;
use paddlecloud_server::start::{Server, StartError};
use paddlecloud_worker::protocol::{Isolation, RunAs};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::packages::package;
use crate::stage;

/// Users and the accounts they are mapped to.
const MAPPING: [(&str, &str); 2] = [("me", "nobody"), ("you", "daemon")];

/// Storage that anybody may enter, so that homes are protected by nothing but themselves.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("word"), "secret\n").unwrap();
    folder
}

fn config(folder: &Path) -> Config {
    let mut config = stage::config(folder, "storage: storage\n");
    for (user, (_, account)) in config.users.iter_mut().zip(MAPPING) {
        user.system_user = Some(account.to_owned());
    }
    config
}

async fn start(config: Config, isolation: Isolation) -> Result<Server, StartError> {
    Server::start(config, isolation, CancellationToken::new()).await
}

fn account(user: &str) -> RunAs {
    let (_, account) = MAPPING.iter().find(|(name, _)| *name == user).unwrap();
    paddlecloud_supervisor::find_account(account)
        .unwrap()
        .expect("an account of every Debian")
}

struct Mapped {
    folder: tempfile::TempDir,
    app: Arc<App>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Mapped {
    async fn new() -> Mapped {
        Mapped::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Mapped {
        let folder = folder();
        let mut config = config(folder.path());
        change(&mut config);
        let server = start(config, paddlecloud_supervisor::probe()).await.unwrap();
        Mapped {
            app: Arc::clone(server.app()),
            stop: server.stop_token(),
            running: tokio::spawn(server.run()),
            folder,
        }
    }

    fn home(&self, user: &str) -> PathBuf {
        self.folder.path().join("storage/home").join(user)
    }

    /// Puts a file into a home as its user would.
    fn put(&self, user: &str, name: &str, text: &str) -> PathBuf {
        let RunAs { uid, gid, .. } = account(user);
        let path = self.home(user).join(name);
        if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
            fs::create_dir(parent).unwrap();
            chown(parent, Some(uid), Some(gid)).unwrap();
        }
        fs::write(&path, text).unwrap();
        chown(&path, Some(uid), Some(gid)).unwrap();
        path
    }

    /// Runs a shell script as a job in `~/job` and returns what it ended as.
    async fn run(&self, user: &str, script: &str) -> String {
        self.put(user, "job/train.sh", script);
        let request = JobRequest {
            name: Some(format!("job-of-{user}")),
            job_package: Some(format!("/pfs/dc1/home/{user}/job")),
            entry: Some("sh train.sh".to_owned()),
            pservers: Some(0),
            cpu: Some("10m".into()),
            memory: Some("64Mi".into()),
            ..JobRequest::default()
        };
        let job = self.app.job_submit(&caller(user), request, None).await.unwrap();
        let id = job.id.unwrap();
        self.app.jobs.wait_final(&id).await;
        let detail = self.app.job_show(&caller(user), &JobRef::Id(id)).await.unwrap();
        format!("{:?}", detail.job.status)
    }

    fn output(&self, user: &str, name: &str) -> String {
        let path = self.home(user).join("job/output").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    async fn finish(self) {
        self.stop.cancel();
        drop(self.app);
        self.running.await.unwrap();
    }
}

fn caller(user: &str) -> Caller {
    Caller {
        user: user.parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    }
}

/// Everything at and below a path that does not belong to this user.
fn foreign(path: &Path, uid: u32) -> Vec<PathBuf> {
    let found = fs::symlink_metadata(path).unwrap();
    let mut others = Vec::new();
    if found.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        others.extend(entries.flat_map(|entry| foreign(&entry, uid)));
    }
    others.extend((found.uid() != uid).then(|| path.to_owned()));
    others
}

#[tokio::test]
#[ignore = "needs root"]
async fn jobs_run_as_their_users_and_cannot_read_each_others_homes() {
    let mapped = Mapped::new().await;
    for (user, other) in [("me", "you"), ("you", "me")] {
        let secret = mapped.put(other, "secret", "for my eyes only\n");
        fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
        let script = format!(
            "id -u > output/id; id -G > output/groups; command -v paddle > output/paddle; echo hello\n\
             echo 0 > /train.list && cat /trainer_id > output/trainer_id\n\
             cat {secret} > output/stolen 2> output/why\n\
             ls -A {storage} > output/storage\n\
             touch {storage}/home/{user}/.paddlecloud/packages/x 2> /dev/null\n\
             ls /pfs/dc1/home > output/homes\n",
            secret = secret.display(),
            storage = mapped.folder.path().join("storage").display(),
        );
        assert_eq!(mapped.run(user, &script).await, "Succeeded");
        assert_eq!(mapped.output(user, "id").trim(), account(user).uid.to_string());
        assert_eq!(
            mapped.output(user, "groups").trim(),
            account(user).gid.to_string()
        );
        assert_eq!(mapped.output(user, "paddle"), "/.paddlecloud/bin/paddle\n");
        assert_eq!(mapped.output(user, "trainer_id"), "0\n");
        assert_eq!(mapped.output(user, "stolen"), "");
        let why = mapped.output(user, "why");
        assert!(
            why.contains("No such file"),
            "like one that does not exist: {why}"
        );
        assert_eq!(mapped.output(user, "storage"), "", "no names of other users");
        let packages = mapped.home(user).join(".paddlecloud/packages");
        assert!(
            !packages.join("x").exists(),
            "packages are read-only on every path"
        );
        assert_eq!(mapped.output(user, "homes"), format!("{user}\n"));
        assert_eq!(
            mapped.output(user, "node_0/train.log").lines().last(),
            Some("hello")
        );
    }
    for (user, _) in MAPPING {
        let home = mapped.home(user);
        assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(
            foreign(&home, account(user).uid),
            Vec::<PathBuf>::new(),
            "all of it is theirs"
        );
    }
    mapped.finish().await;
}

async fn announce(mapped: &Mapped, user: &str, manifest: &Manifest) -> Result<PackageReply, ErrorBody> {
    let list = manifest.to_json().into();
    Ok(mapped.app.package_announce(&caller(user), list, None).await?)
}

/// Announces a package and sends its files.
async fn send(mapped: &Mapped, user: &str, manifest: &Manifest, pack: &[u8]) {
    let folder = announce(mapped, user, manifest).await.unwrap().folder;
    let totals = PackTotals {
        entries: 9,
        bytes: 1 << 20,
    };
    let app = &mapped.app;
    let mut sending = app.pack_in(&caller(user), &folder, totals, false).await.unwrap();
    sending.feed(vec![pack.to_vec().into()]).await.unwrap();
    sending.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "needs root"]
async fn an_upload_belongs_to_its_user_and_needs_their_rights() {
    let mapped = Mapped::new().await;
    let (manifest, stream) = package();
    let id = manifest.id().to_string();
    send(&mapped, "me", &manifest, &stream).await;
    assert!(announce(&mapped, "me", &manifest).await.unwrap().stored);
    assert!(mapped.app.package_has(&caller("me"), &id).await.unwrap());
    let home = mapped.home("me");
    assert!(
        home.join(".paddlecloud/packages")
            .join(&id)
            .join("train.py")
            .exists()
    );
    assert_eq!(foreign(&home, account("me").uid), Vec::<PathBuf>::new());
    let packages = mapped.home("you").join(".paddlecloud/packages");
    mapped.put("you", ".paddlecloud/mine", "");
    fs::create_dir(&packages).unwrap();
    send(&mapped, "you", &manifest, &stream).await;
    let refused = announce(&mapped, "you", &manifest).await;
    assert!(
        refused.is_err(),
        "a folder of root's in the home is not the server's to fill"
    );
    assert_eq!(fs::read_dir(packages).unwrap().count(), 0);
    mapped.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_copy_counts_what_a_job_has_locked() {
    let mapped = Mapped::with(|config| config.users[0].limits.files = Some(3)).await;
    mapped.put("me", "small", "1");
    for name in ["d/a", "d/b", "d/c"] {
        mapped.put("me", name, "1");
    }
    fs::set_permissions(mapped.home("me").join("d"), Permissions::from_mode(0o000)).unwrap();
    let at = |name: &str| {
        let path: PfsPath = format!("/pfs/dc1/home/me/{name}").parse().unwrap();
        path.into()
    };
    let request = MoveRequest {
        from: at("small"),
        to: at("copy"),
        no_overwrite: false,
        keep_link: false,
    };
    let refused = mapped.app.file_copy(&caller("me"), request).await.unwrap_err();
    let refused = ErrorBody::from(refused);
    assert_eq!(refused.error, ErrorName::QuotaExceeded, "{refused:?}");
    assert!(refused.msg.contains("4 of 3 files are used"), "{}", refused.msg);
    assert!(!mapped.home("me").join("copy").exists());
    mapped.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_run_is_not_prepared_through_a_planted_link() {
    let mapped = Mapped::new().await;
    let outside = folder();
    mapped.put("me", ".paddlecloud/mine", "");
    std::os::unix::fs::symlink(outside.path(), mapped.home("me").join(".paddlecloud/runs")).unwrap();
    assert_eq!(
        mapped.run("me", "true\n").await,
        "Succeeded",
        "its user is not locked out"
    );
    let runs = mapped.home("me").join(".paddlecloud/runs");
    assert!(!runs.is_symlink(), "the link was put aside");
    assert_eq!(
        fs::read_dir(outside.path()).unwrap().count(),
        1,
        "the file it began with"
    );
    mapped.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_home_of_another_owner_is_not_taken_over() {
    let folder = folder();
    let home = folder.path().join("storage/home/you");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("model"), "precious").unwrap();
    let refused = start(config(folder.path()), paddlecloud_supervisor::probe()).await;
    let Some(StartError::Homes(problem)) = refused.err() else {
        panic!("the home is root's");
    };
    let RunAs { uid, gid, .. } = account("you");
    let expected = format!(
        "the home `{}` of user `you` belongs to system user number 0, not to number {uid}",
        home.display(),
    );
    assert_eq!(problem.to_string(), expected);
    let command = format!("`chown -R --no-dereference {uid}:{gid} {}`", home.display());
    let hint = problem.hint().unwrap();
    assert!(hint.contains(&command), "{hint}");
    assert_eq!(fs::read(home.join("model")).unwrap(), b"precious");
}

#[tokio::test]
#[ignore = "needs root"]
async fn an_empty_home_of_the_servers_goes_to_its_user() {
    let folder = folder();
    let homes = folder.path().join("storage/home");
    fs::create_dir_all(homes.join("me")).unwrap();
    fs::create_dir_all(homes.join("you/.paddlecloud/packages")).unwrap();
    let server = start(config(folder.path()), paddlecloud_supervisor::probe()).await;
    assert!(server.is_ok(), "{:?}", server.err());
    for (user, _) in MAPPING {
        let home = fs::metadata(homes.join(user)).unwrap();
        assert_eq!((home.uid(), home.mode() & 0o777), (account(user).uid, 0o700));
    }
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_storage_that_users_may_not_enter_is_refused_at_the_start() {
    let folder = folder();
    let storage = folder.path().join("storage");
    fs::create_dir(&storage).unwrap();
    fs::set_permissions(&storage, Permissions::from_mode(0o700)).unwrap();
    let refused = start(config(folder.path()), paddlecloud_supervisor::probe()).await;
    let problem = refused.err().unwrap().to_string();
    assert!(problem.contains("has no access to their home"), "{problem}");
    fs::set_permissions(&storage, Permissions::from_mode(0o711)).unwrap();
    let again = start(config(folder.path()), paddlecloud_supervisor::probe()).await;
    let problem = again.err().map(|error| error.to_string());
    assert_eq!(problem, None, "what the hint advises is enough");
}

#[tokio::test]
#[ignore = "needs root"]
async fn users_cannot_be_mapped_without_a_private_view() {
    let folder = folder();
    let refused = start(config(folder.path()), Isolation::default()).await;
    assert!(matches!(refused, Err(StartError::SystemUsers(_))));
    assert!(!folder.path().join("data").exists(), "nothing was begun");
}

#[tokio::test]
async fn an_account_that_does_not_exist_is_named() {
    let folder = folder();
    let mut config = config(folder.path());
    config.users[0].system_user = Some("nobody-has-this-name".to_owned());
    let refused = start(config, Isolation::default()).await;
    let problem = refused.err().unwrap().to_string();
    assert_eq!(
        problem,
        "user `me`: there is no system user `nobody-has-this-name` on this machine"
    );
}
