//! Packages on their way up, and whether a job may use one.

use std::sync::Arc;
use std::time::Duration;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{OURS, UnfinishedUpload};
use paddlecloud_api::jobs::{PackagePart, PackageReply};
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_pfs::Node;
use paddlecloud_pfs::pack::KeptTree;
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::quota::{Amount, Reservation};
use paddlecloud_pfs::staging::StagedId;

use super::{App, chain_of, internal};
use crate::auth::Caller;
use crate::files::Files;
use crate::long::Long;
use crate::packages::{PackageError, Receiver};

impl App {
    /// Whether the caller's package is here, whole.
    pub async fn package_has(&self, caller: &Caller, id: &str) -> Result<bool, ErrorBody> {
        self.files_within_reach()?;
        let (user, id) = (caller.user.clone(), package_id(id)?);
        self.with_files(move |storage| storage.has_package(&user, id))
            .await
    }

    /// Remembers what a package consists of and says which files must be sent, and from where on.
    pub async fn package_announce(
        &self,
        caller: &Caller,
        manifest: bytes::Bytes,
    ) -> Result<PackageReply, ErrorBody> {
        self.files_within_reach()?;
        let manifest = tokio::task::spawn_blocking(move || read_list(&manifest)).await;
        let manifest = Arc::new(manifest.map_err(|_| internal())??);
        let id = manifest.id();
        if self.package_has(caller, &id.to_string()).await? {
            return Ok(stored(id));
        }
        self.check_room_for(caller, &manifest).await?;
        let user = caller.user.clone();
        // What is there is read, and held meanwhile: whoever asks again would hear that nothing is there.
        let alone = self.long.ending(&StagedId::of_package(id)).await;
        let announced = self.with_files_at_length(&caller.user, move |storage| {
            let wanted = storage.announce(&user, &manifest)?;
            drop(alone);
            Ok((wanted, storage.has_package(&user, id)?))
        });
        let (wanted, stored) = announced.await?;
        let parts = wanted.parts.into_iter().map(|part| PackagePart {
            path: part.path,
            have: part.len,
        });
        Ok(PackageReply {
            id: id.to_string(),
            missing: wanted.missing.iter().map(ToString::to_string).collect(),
            parts: parts.collect(),
            stored,
        })
    }

    /// Refuses a package that does not fit before anything of it is sent. Room is set aside when the files come.
    async fn check_room_for(&self, caller: &Caller, manifest: &Arc<Manifest>) -> Result<(), ErrorBody> {
        let id = manifest.id();
        self.wait_for_other(caller, id).await?;
        let (user, list) = (caller.user.clone(), Arc::clone(manifest));
        let held = self.with_files(move |storage| storage.unfinished_usage(&user, &list));
        let held = Amount::from(held.await?);
        let room = self.room_for(caller, id, room_of(manifest), held).await;
        // What is there was left out when it was measured, as it had room of its own just then.
        self.files.home_changed(caller);
        room.map(drop)
    }

    /// Begins to take in the files of an announced package, or goes on.
    pub async fn package_receive(&self, caller: &Caller, id: &str) -> Result<Upload, ErrorBody> {
        self.files_within_reach()?;
        let (user, package) = (caller.user.clone(), package_id(id)?);
        self.wait_for_other(caller, package).await?;
        let receiver = self
            .with_files(move |storage| storage.receive(&user, package))
            .await?;
        let (amount, held) = (room_of(receiver.manifest()), Amount::from(receiver.held()));
        let mut upload = Upload {
            id: package,
            receiver: Some(receiver),
            room: None,
            amount,
            files: self.files.clone(),
            long: self.long.clone(),
            caller: caller.clone(),
        };
        upload.room = self.room_for(caller, package, amount, held).await?;
        Ok(upload)
    }

    /// A client whose connection broke is often back before the server has heard of the break.
    async fn wait_for_other(&self, caller: &Caller, id: PackageId) -> Result<(), ErrorBody> {
        let until = tokio::time::Instant::now() + PUT_DOWN_WITHIN;
        loop {
            let user = caller.user.clone();
            let taken = self.with_files(move |storage| storage.is_being_sent(&user, id));
            if !taken.await? || tokio::time::Instant::now() > until {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sets room aside in the caller's home, where it has a limit, for a package of which so much is there. What came of
    /// other packages gives way to one that comes.
    async fn room_for(
        &self,
        caller: &Caller,
        id: PackageId,
        amount: Amount,
        held: Amount,
    ) -> Result<Option<Reservation>, ErrorBody> {
        let reserve = || {
            self.at_the_end(caller, move |files, caller| match held {
                Amount { bytes: 0, files: 0 } => files.room_at_home(caller, amount),
                held => files.room_to_go_on(caller, amount, held),
            })
        };
        let refused = match reserve().await {
            Err(refused) if refused.error == ErrorName::QuotaExceeded => refused,
            other => return other,
        };
        let others = self.kept_beside(caller, id).await?;
        let beyond = amount.minus(held).minus(others);
        // Nothing is given up in vain: without it there must be room.
        let fits = self.at_the_end(caller, move |files, caller| files.room_at_home(caller, beyond));
        if others.bytes == 0 || fits.await.map(drop).is_err() {
            return Err(refused);
        }
        if self.give_up_packages(caller, |other| *other != id).await? == 0 {
            return Err(refused);
        }
        self.files.home_changed(caller);
        reserve().await
    }

    /// What came of the caller's packages before the stream broke, shown like unfinished uploads of files.
    pub(super) async fn packages_unfinished(
        &self,
        caller: &Caller,
    ) -> Result<Vec<UnfinishedUpload>, ErrorBody> {
        if self.files_within_reach().is_err() {
            return Ok(Vec::new());
        }
        let (user, home) = (caller.user.clone(), self.storage.home_name(&caller.user));
        let found = self.with_files(move |storage| storage.unfinished_packages(&user));
        let view = |(kept, whole): (KeptTree, Option<u64>)| {
            let (seconds, nanos) = kept.touched.parts();
            Some(UnfinishedUpload {
                id: shown_id(kept.id)?,
                path: format!("{home}/{OURS}/packages/{}", kept.id).parse().ok()?,
                size: whole.unwrap_or(kept.bytes),
                arrived: kept.bytes,
                touched: jiff::Timestamp::new(seconds, nanos as i32).unwrap_or(jiff::Timestamp::MAX),
            })
        };
        Ok(found.await?.into_iter().filter_map(view).collect())
    }

    /// Gives up what came of a package; answers whether the id is that of one.
    pub(super) async fn package_give_up(&self, caller: &Caller, id: &StagedId) -> Result<bool, ErrorBody> {
        if self.files_within_reach().is_err() {
            return Ok(false);
        }
        let is_meant = |package: &PackageId| shown_id(*package).as_ref() == Some(id);
        if !self.unfinished_ids(caller).await?.iter().any(is_meant) {
            return Ok(false);
        }
        let gone = self.give_up_packages(caller, is_meant).await?;
        self.files.home_changed(caller);
        if gone == 0 && self.unfinished_ids(caller).await?.iter().any(is_meant) {
            let problem = "the package is just being sent";
            return Err(ErrorBody::new(ErrorName::Conflict, problem).with_hint("end that `submit` first"));
        }
        Ok(gone > 0)
    }

    /// What came of the caller's other packages; of their number of files only that it does not matter here.
    async fn kept_beside(&self, caller: &Caller, id: PackageId) -> Result<Amount, ErrorBody> {
        let user = caller.user.clone();
        let found = self
            .with_files(move |storage| storage.unfinished_packages(&user))
            .await?;
        let others = found.iter().filter(|(kept, _)| kept.id != id);
        Ok(Amount {
            bytes: others.map(|(kept, _)| kept.bytes).sum(),
            files: u64::MAX,
        })
    }

    async fn unfinished_ids(&self, caller: &Caller) -> Result<Vec<PackageId>, ErrorBody> {
        let user = caller.user.clone();
        self.with_files(move |storage| storage.unfinished_ids(&user))
            .await
    }

    /// Gives up what came of packages that nobody is sending; answers how many.
    async fn give_up_packages(
        &self,
        caller: &Caller,
        is_meant: impl Fn(&PackageId) -> bool,
    ) -> Result<usize, ErrorBody> {
        let mut gone = 0;
        for id in self.unfinished_ids(caller).await?.into_iter().filter(is_meant) {
            self.wait_for_other(caller, id).await?;
            let user = caller.user.clone();
            let given_up = self.with_files(move |storage| storage.give_up_unfinished(&user, id));
            gone += usize::from(given_up.await?);
        }
        Ok(gone)
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

/// How long a new upload of a package waits for one that may just be ending.
const PUT_DOWN_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One upload. Pieces are taken in on a thread that may block; dropped unfinished, what came stays for the next one.
pub struct Upload {
    id: PackageId,
    receiver: Option<Receiver>,
    /// Given back when the upload ends.
    room: Option<Reservation>,
    amount: Amount,
    files: Files,
    long: Long,
    caller: Caller,
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
        match result.as_ref().is_err_and(PackageError::is_full) {
            true => drop(tokio::task::spawn_blocking(move || receiver.discard())),
            false => self.receiver = Some(receiver),
        }
        result.map_err(package_refused)
    }

    /// Checks everything and publishes the package. Durable when it returns.
    pub async fn finish(mut self) -> Result<PackageReply, ErrorBody> {
        let receiver = self.receiver.take().ok_or_else(internal)?;
        // All of it is read and synced.
        let turn = self.long.end_turn(&self.caller.user).await;
        let done = turn.blocking(move || receiver.finish());
        done.await.map_err(|_| internal())?.map_err(package_refused)?;
        if let Some(room) = self.room.take() {
            room.settle(self.amount, Amount::default());
        }
        Ok(stored(self.id))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            // What stays counts from now on as whatever lies there.
            drop(room);
            self.files.home_changed(&self.caller);
        }
        if let Some(receiver) = self.receiver.take() {
            // The thread outlives whoever asked for the upload.
            drop(tokio::task::spawn_blocking(move || receiver.put_down()));
        }
    }
}

/// Nothing of the package is missing.
fn stored(id: PackageId) -> PackageReply {
    PackageReply {
        id: id.to_string(),
        missing: Vec::new(),
        parts: Vec::new(),
        stored: true,
    }
}

/// What an unfinished package is called among unfinished uploads: the first half of its own id.
fn shown_id(package: PackageId) -> Option<StagedId> {
    package.to_string().get(..32)?.parse().ok()
}

fn read_list(manifest: &[u8]) -> Result<Manifest, ErrorBody> {
    serde_json::from_slice(manifest).map_err(|error| {
        let problem = format!("the list of files cannot be read: {error}");
        ErrorBody::new(ErrorName::BadRequest, problem)
    })
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
    if error.is_full() {
        return disk_failed(&error);
    }
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
    tracing::error!(error = chain_of(error), "the storage failed");
    if error.is_full() {
        return ErrorBody::new(ErrorName::StorageFull, "the server's disk is full")
            .with_hint("free some space on the server, for example with `paddlectl prune`");
    }
    ErrorBody::new(
        ErrorName::Internal,
        format!("the server's storage failed: {error}"),
    )
}
