//! Packages on their way up, and whether a job may use one.

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_pfs::Node;
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::quota::{Amount, Reservation};

use super::{App, chain_of, internal};
use crate::auth::Caller;
use crate::packages::{PackageError, Receiver};

impl App {
    /// Whether the caller's package is here, whole.
    pub async fn package_has(&self, caller: &Caller, id: &str) -> Result<bool, ErrorBody> {
        self.files_within_reach()?;
        let (user, id) = (caller.user.clone(), package_id(id)?);
        self.with_files(move |storage| storage.has_package(&user, id))
            .await
    }

    /// Remembers what a package consists of and says which files must be sent.
    pub async fn package_announce(
        &self,
        caller: &Caller,
        manifest: &[u8],
    ) -> Result<PackageReply, ErrorBody> {
        self.files_within_reach()?;
        let manifest: Manifest = serde_json::from_slice(manifest).map_err(|error| {
            ErrorBody::new(
                ErrorName::BadRequest,
                format!("the list of files cannot be read: {error}"),
            )
        })?;
        if !self.package_has(caller, &manifest.id().to_string()).await? {
            // Refused before anything is sent; it is set aside when the files come.
            drop(self.room_for(caller, room_of(&manifest)).await?);
        }
        let user = caller.user.clone();
        self.with_files(move |storage| {
            let id = manifest.id();
            let missing = storage.announce(&user, &manifest)?;
            Ok(PackageReply {
                id: id.to_string(),
                missing: missing.iter().map(ToString::to_string).collect(),
                stored: storage.has_package(&user, id)?,
            })
        })
        .await
    }

    /// Begins to take in the files of an announced package.
    pub async fn package_receive(&self, caller: &Caller, id: &str) -> Result<Upload, ErrorBody> {
        self.files_within_reach()?;
        let (user, package) = (caller.user.clone(), package_id(id)?);
        let receiver = self
            .with_files(move |storage| storage.receive(&user, package))
            .await?;
        let amount = room_of(receiver.manifest());
        let mut upload = Upload {
            id: package,
            receiver: Some(receiver),
            room: None,
            amount,
        };
        upload.room = self.room_for(caller, amount).await?;
        Ok(upload)
    }

    /// Sets room aside in the caller's home, where it has a limit.
    async fn room_for(&self, caller: &Caller, amount: Amount) -> Result<Option<Reservation>, ErrorBody> {
        self.with_store(caller, move |files, caller| files.room_at_home(caller, amount))
            .await
    }

    /// A path that leads to an uploaded package's latest run means that package, as it was uploaded.
    pub(super) async fn package_resolve(&self, user: &UserName, spec: &mut JobSpec) -> Result<(), ErrorBody> {
        let (None, Some(path)) = (&spec.snapshot, spec.package.clone()) else {
            return Ok(());
        };
        let owner = user.clone();
        let run = self
            .with_files(move |storage| storage.run_behind(&owner, &path))
            .await?;
        if let Some(run) = run {
            let job = self.store.get(&run).await.map_err(super::store_failed)?;
            spec.snapshot = job.and_then(|job| job.spec.snapshot.clone());
        }
        Ok(())
    }

    /// Checks that a job's package is there and the user's to run.
    pub(super) async fn package_check(&self, user: &UserName, spec: &JobSpec) -> Result<(), ErrorBody> {
        let user = user.clone();
        match (&spec.snapshot, &spec.package) {
            (Some(snapshot), Some(package)) => {
                let id = package_id(snapshot)?;
                let name = package.rsplit('/').next().unwrap_or_default().to_owned();
                self.with_files(move |storage| {
                    storage.upload_name(&user, &name)?;
                    storage.check_upload(&user, id)
                })
                .await
            }
            (None, Some(package)) => {
                let package = package.clone();
                self.with_files(move |storage| storage.check_folder(&user, &package).map(drop))
                    .await
            }
            (_, None) => Ok(()),
        }
    }
}

/// One upload. Pieces are taken in on a thread that may block; dropped unfinished, nothing of it stays.
pub struct Upload {
    id: PackageId,
    receiver: Option<Receiver>,
    /// Given back when the upload is given up.
    room: Option<Reservation>,
    amount: Amount,
}

impl Upload {
    /// Takes the next piece of the stream.
    pub async fn feed(&mut self, piece: bytes::Bytes) -> Result<(), ErrorBody> {
        let mut receiver = self.receiver.take().ok_or_else(internal)?;
        let work = tokio::task::spawn_blocking(move || {
            let result = receiver.feed(&piece);
            (receiver, result)
        });
        let (receiver, result) = work.await.map_err(|_| internal())?;
        self.receiver = Some(receiver);
        result.map_err(package_refused)
    }

    /// Checks everything and publishes the package. Durable when it returns.
    pub async fn finish(mut self) -> Result<PackageReply, ErrorBody> {
        let receiver = self.receiver.take().ok_or_else(internal)?;
        let done = tokio::task::spawn_blocking(move || receiver.finish()).await;
        done.map_err(|_| internal())?.map_err(package_refused)?;
        if let Some(room) = self.room.take() {
            room.settle(self.amount, Amount::default());
        }
        Ok(PackageReply {
            id: self.id.to_string(),
            missing: Vec::new(),
            stored: true,
        })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            // The thread outlives this future; what it removes is nobody's any more.
            drop(tokio::task::spawn_blocking(move || receiver.discard()));
        }
    }
}

/// What a package takes once it is here: all its files, whether they are sent or copied from an earlier one.
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

fn package_id(text: &str) -> Result<PackageId, ErrorBody> {
    let problem = || format!("`{}` is not a package's id", text.escape_default());
    text.parse()
        .map_err(|_| ErrorBody::new(ErrorName::BadRequest, problem()))
}

/// What the caller may know of a failure.
pub(super) fn package_refused(error: PackageError) -> ErrorBody {
    let problem = error.to_string();
    match &error {
        PackageError::NotFound(_) => ErrorBody::new(ErrorName::NotFound, problem),
        PackageError::NotAFolder(_)
        | PackageError::BadName(_)
        | PackageError::OutputIsAFile
        | PackageError::Ours(_) => ErrorBody::new(ErrorName::BadRequest, problem),
        PackageError::NotUploaded(_) => ErrorBody::new(ErrorName::PackageMissing, problem)
            .with_hint("announce it to `POST /api/v1/packages`, send its files, then submit again"),
        PackageError::NotAnnounced(_) => ErrorBody::new(ErrorName::Conflict, problem)
            .with_hint("send its list of files first, to `POST /api/v1/packages`"),
        PackageError::WrongId(_)
        | PackageError::Incomplete(..)
        | PackageError::Changed(_)
        | PackageError::Pack(_) => ErrorBody::new(ErrorName::Damaged, problem).with_hint("submit again"),
        PackageError::Storage(_) | PackageError::Disk(_) | PackageError::Manifest(_) => disk_failed(&error),
    }
}

fn disk_failed(error: &PackageError) -> ErrorBody {
    let full = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| {
        error.source()
    })
    .filter_map(|error| error.downcast_ref::<std::io::Error>())
    .any(|error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        )
    });
    tracing::error!(error = chain_of(error), "the storage failed");
    if full {
        return ErrorBody::new(ErrorName::StorageFull, "the server's disk is full")
            .with_hint("free some space on the server, for example with `paddlectl prune`");
    }
    ErrorBody::new(
        ErrorName::Internal,
        format!("the server's storage failed: {error}"),
    )
}
