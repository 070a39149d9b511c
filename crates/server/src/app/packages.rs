//! Announcing packages, and whether a job may use a package.

use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{OURS, UnfinishedUpload};
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_core::names::UserName;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_files::homes::{Storage, StorageError};
use paddlecloud_files::queue::{Class, Turn};
use paddlecloud_files::{Files, time_of};
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::staging::{StagedId, UnfinishedPackage};
use paddlecloud_pfs::{Digest, Node, Root, RootError};

use super::{App, AppError};
use paddlecloud_files::packages::check_upload;

/// How long an announcement waits for files that are being uploaded into the package. Clients wait longer.
const FREE_WITHIN: Duration = Duration::from_secs(30);

impl App {
    /// Whether the caller's package is complete.
    pub async fn package_has(&self, caller: &Caller, id: &str) -> Result<bool, AppError> {
        self.files_within_reach()?;
        let (user, id) = (caller.user.clone(), package_id(id)?);
        self.with_files(move |storage| storage.has_package(&user, id))
            .await
    }

    /// Publishes a package if the server has all its files, and otherwise returns which to send. A long manifest holds a queue
    /// turn while it is in memory.
    pub async fn package_announce(
        &self,
        caller: &Caller,
        manifest: bytes::Bytes,
        turn: Option<Turn>,
    ) -> Result<PackageReply, AppError> {
        self.files_within_reach()?;
        let manifest = tokio::task::spawn_blocking(move || serde_json::from_slice(&manifest)).await;
        let manifest = manifest.map_err(|_| AppError::Internal)?;
        self.package_complete(caller, manifest.map_err(AppError::PackageList)?, turn)
            .await
    }

    /// The same for a manifest that was read.
    pub(super) async fn package_complete(
        &self,
        caller: &Caller,
        manifest: Manifest,
        turn: Option<Turn>,
    ) -> Result<PackageReply, AppError> {
        let mut held = (manifest, turn);
        let id = held.0.id();
        let until = Instant::now() + FREE_WITHIN;
        let missing = loop {
            if self.package_has(caller, &id.to_string()).await? {
                break Vec::new();
            }
            let (files, storage, user) = (self.files.clone(), self.storage.clone(), caller.clone());
            // Received files are read and synced, even if the caller has disconnected.
            let end = self.queue.turn(Class::End, &caller.user).await;
            let ended = end.blocking(move || (complete(&files, &storage, &user, &held.0), held));
            let (missing, kept) = ended.await.map_err(|_| AppError::Internal)?;
            match missing? {
                Ok(missing) => break missing,
                Err(busy) if Instant::now() >= until => return Err(busy.into()),
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
            held = kept;
        };
        Ok(PackageReply {
            id: id.to_string(),
            folder: format!("{}/{OURS}/packages/{id}", self.storage.home_name(&caller.user)),
            stored: missing.is_empty(),
            missing: missing.iter().map(ToString::to_string).collect(),
        })
    }

    /// Unfinished packages of the caller, listed like unfinished uploads of files.
    pub(super) async fn packages_unfinished(
        &self,
        caller: &Caller,
    ) -> Result<Vec<UnfinishedUpload>, AppError> {
        if self.files_within_reach().is_err() {
            return Ok(Vec::new());
        }
        let (user, home) = (caller.user.clone(), self.storage.home_name(&caller.user));
        let found = self.with_files(move |storage| storage.unfinished_packages(&user));
        let view = |package: UnfinishedPackage| {
            Some(UnfinishedUpload {
                id: shown_id(package.id)?,
                path: format!("{home}/{OURS}/packages/{}", package.id).parse().ok()?,
                size: package.usage.bytes,
                arrived: package.usage.bytes,
                touched: time_of(package.touched),
            })
        };
        Ok(found.await?.into_iter().filter_map(view).collect())
    }

    /// Drops an unfinished package; returns whether the id belongs to one.
    pub(super) async fn package_give_up(&self, caller: &Caller, id: &StagedId) -> Result<bool, AppError> {
        if self.files_within_reach().is_err() {
            return Ok(false);
        }
        let user = caller.user.clone();
        let found = self.with_files(move |storage| storage.unfinished_packages(&user));
        let mut ids = found.await?.into_iter().map(|package| package.id);
        let meant = ids.find(|package| shown_id(*package).as_ref() == Some(id));
        let Some(package) = meant else {
            return Ok(false);
        };
        let (user, storage) = (caller.user.clone(), self.storage.clone());
        let turn = self.queue.turn(Class::Removal, &caller.user).await;
        let gone = turn.blocking(move || storage.give_up_unfinished(&user, package));
        match gone.await.map_err(|_| AppError::Internal)? {
            Err(StorageError::Storage(RootError::Busy(_))) => Err(AppError::PackageInUse),
            gone => {
                self.files.home_changed(caller);
                gone?;
                Ok(true)
            }
        }
    }
}

/// Checks that a job's package exists and that the user may run it. Blocks.
pub(super) fn check_package(storage: &Storage, user: &UserName, spec: &JobSpec) -> Result<(), AppError> {
    match (&spec.snapshot, &spec.package) {
        (Some(snapshot), Some(package)) => {
            check_uploaded(storage, &*storage.home(user)?, user, (snapshot, package))
        }
        (None, Some(package)) => Ok(storage.check_folder(user, package).map(drop)?),
        (_, None) => Ok(()),
    }
}

/// The same for an uploaded package and the path under which it will appear.
pub(super) fn check_uploaded(
    storage: &Storage,
    home: &Root,
    user: &UserName,
    (snapshot, package): (&str, &str),
) -> Result<(), AppError> {
    let id = package_id(snapshot)?;
    storage.upload_name(user, package.rsplit('/').next().unwrap_or_default())?;
    Ok(check_upload(home, id)?)
}

/// Completes a package with what the server has, and returns what is missing. What it will add must fit into the home: the
/// package is refused before any file is sent. Each upload reserves its own space. The inner error says that files are being
/// uploaded into it.
fn complete(
    files: &Files,
    storage: &Storage,
    caller: &Caller,
    manifest: &Manifest,
) -> Result<Result<Vec<Digest>, StorageError>, AppError> {
    let announced = match storage.announce(&caller.user, manifest) {
        Err(busy @ StorageError::Storage(RootError::Busy(_))) => return Ok(Err(busy)),
        announced => announced?,
    };
    let held = Amount::from(announced.held());
    let room =
        files.measured(|| files.room_for_package(caller, manifest.id(), room_of(manifest).minus(held)));
    let room = match room {
        Ok(room) => room,
        Err(refused) => {
            announced.refuse();
            return Err(refused.into());
        }
    };
    let completed = announced.complete();
    match (room, &completed) {
        (Some(room), Ok(completed)) => room.charge(completed.copied.into(), Amount::default()),
        // Only a measurement shows what was copied.
        (Some(_), Err(_)) => files.home_changed(caller),
        (None, _) => {}
    }
    Ok(Ok(completed?.missing))
}

/// The id under which an unfinished package is listed among unfinished uploads: the first half of its own id.
fn shown_id(package: PackageId) -> Option<StagedId> {
    package.to_string().get(..32)?.parse().ok()
}

/// The final size of a package: all its files, whether they are sent or copied from an earlier one.
fn room_of(manifest: &Manifest) -> Amount {
    let entries = manifest.entries().iter();
    let sizes = entries.filter_map(|entry| match &entry.node {
        Node::File { size, .. } => Some(*size),
        Node::Symlink { .. } => Some(0),
        Node::Dir => None,
    });
    sizes.fold(Amount::default(), |room, bytes| {
        room.plus(Amount { bytes, files: 1 })
    })
}

fn package_id(text: &str) -> Result<PackageId, AppError> {
    text.parse().map_err(|_| AppError::BadPackageId(text.to_owned()))
}
