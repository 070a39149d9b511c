//! Packages on their way up, and whether a job may use one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{OURS, UnfinishedUpload};
use paddlecloud_api::jobs::{PackagePart, PackageReply};
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::staging::{StagedId, UnfinishedPackage};
use paddlecloud_pfs::{Node, RootError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::{App, chain_of, internal};
use crate::auth::Caller;
use crate::files::HomeRoom;
use crate::long::{Length, Long, SHORT_LIST, Turn};
use crate::packages::{PackageError, Receiver};

impl App {
    /// Whether the caller's package is here, whole.
    pub async fn package_has(&self, caller: &Caller, id: &str) -> Result<bool, ErrorBody> {
        self.files_within_reach()?;
        let (user, id) = (caller.user.clone(), package_id(id)?);
        self.with_files(move |storage| storage.has_package(&user, id))
            .await
    }

    /// Remembers what a package consists of and says which files must be sent, and from where on. A long list has a turn
    /// as long as it is in memory.
    pub async fn package_announce(
        &self,
        caller: &Caller,
        manifest: bytes::Bytes,
        turn: Option<Turn>,
    ) -> Result<PackageReply, ErrorBody> {
        self.files_within_reach()?;
        let manifest = tokio::task::spawn_blocking(move || read_list(&manifest)).await;
        let manifest = Arc::new(manifest.map_err(|_| internal())??);
        let id = manifest.id();
        if self.package_has(caller, &id.to_string()).await? {
            return Ok(stored(id));
        }
        let alone = match timeout(PUT_DOWN_WITHIN, self.long.package(&caller.user, id)).await {
            Ok(alone) => alone,
            Err(_) if turn.is_none() => self.alone_at(caller, id).await?,
            Err(_) => {
                // A long list is not kept in memory for somebody else's sake; it comes again.
                drop((manifest, turn));
                drop(self.alone_at(caller, id).await?);
                return Err(being_sent());
            }
        };
        // Whoever was at it before may have ended it.
        if self.package_has(caller, &id.to_string()).await? {
            return Ok(stored(id));
        }
        let alone = self.check_room_for(caller, &manifest, alone).await?;
        let (user, storage) = (caller.user.clone(), self.storage.clone());
        // What is there is read, as at the end of an upload.
        let turn = self.long.end_turn(&caller.user).await;
        let announced = turn.blocking(move || {
            let wanted = storage.announce(&user, &manifest);
            drop(alone);
            wanted
        });
        let wanted = announced
            .await
            .map_err(|_| internal())?
            .map_err(package_refused)?;
        let parts = wanted.parts.into_iter().map(|part| PackagePart {
            path: part.path,
            have: part.len,
        });
        Ok(PackageReply {
            id: id.to_string(),
            missing: wanted.missing.iter().map(ToString::to_string).collect(),
            parts: parts.collect(),
            stored: false,
        })
    }

    /// Refuses a package that does not fit before anything of it is sent. Room is set aside when the files come.
    async fn check_room_for(
        &self,
        caller: &Caller,
        manifest: &Arc<Manifest>,
        alone: OwnedSemaphorePermit,
    ) -> Result<OwnedSemaphorePermit, ErrorBody> {
        let (user, list) = (caller.user.clone(), Arc::clone(manifest));
        // A job may have put very much there.
        let (storage, turn) = (self.storage.clone(), self.long.end_turn(&caller.user).await);
        // The right goes along: whoever asked may be gone before this is done.
        let held = turn.blocking(move || Ok((storage.tidy_unfinished(&user, &list)?, alone)));
        let held = held.await.map_err(|_| internal())?;
        let (held, alone) = held.map_err(package_refused)?;
        let held = Amount::from(held);
        let room = self.room_for(caller, manifest.id(), room_of(manifest), held);
        if let Some(room) = room.await? {
            room.not_needed();
        }
        Ok(alone)
    }

    /// Begins to take in the files of an announced package, or goes on.
    pub async fn package_receive(&self, caller: &Caller, id: &str) -> Result<Upload, ErrorBody> {
        self.files_within_reach()?;
        let (user, package) = (caller.user.clone(), package_id(id)?);
        let (alone, list) = self.turns_to_send(caller, package).await?;
        if self.package_has(caller, id).await? {
            // Another one has just brought it: whoever asks again hears that.
            return Err(being_sent());
        }
        let receiver = self.with_files(move |storage| Ok((storage.receive(&user, package)?, alone)));
        let (receiver, alone) = receiver.await?;
        let (amount, held) = (room_of(receiver.manifest()), Amount::from(receiver.held()));
        let mut upload = Upload {
            id: package,
            sending: Some(Sending {
                receiver,
                room: None,
                alone,
                list,
            }),
            long: self.long.clone(),
            user: caller.user.clone(),
        };
        let room = self.room_for(caller, package, amount, held).await?;
        if let Some(sending) = &mut upload.sending {
            sending.room = room.map(|room| (room, amount));
        }
        Ok(upload)
    }

    /// The right to be at a package, and before that the one to have its list in memory meanwhile, if it is long.
    async fn turns_to_send(
        &self,
        caller: &Caller,
        id: PackageId,
    ) -> Result<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>), ErrorBody> {
        let user = caller.user.clone();
        let list = self.with_files(move |storage| storage.awaited_list(&user, id));
        let until = Instant::now() + SENT_WITHIN;
        let list = match list.await? > SHORT_LIST as u64 {
            true => {
                let turn = timeout_at(until, self.long.long_package(&caller.user)).await;
                Some(turn.map_err(|_| others_being_sent())?)
            }
            false => None,
        };
        let alone = timeout_at(until, self.long.package(&caller.user, id)).await;
        Ok((alone.map_err(|_| being_sent())?, list))
    }

    /// The right to be at a package. A client whose connection broke is often back before the server has heard of the
    /// break, and who submits the same twice need not send it twice.
    async fn alone_at(&self, caller: &Caller, id: PackageId) -> Result<OwnedSemaphorePermit, ErrorBody> {
        let turn = timeout(BACK_WITHIN, self.long.package(&caller.user, id));
        turn.await.map_err(|_| being_sent())
    }

    /// Sets room aside in the caller's home, where it has a limit, for a package of which so much is there. What came of
    /// other packages gives way to one that comes.
    async fn room_for(
        &self,
        caller: &Caller,
        id: PackageId,
        amount: Amount,
        held: Amount,
    ) -> Result<Option<HomeRoom>, ErrorBody> {
        let reserve = || {
            self.with_room(Length::End, caller, move |files, caller| {
                files.room_at_home(caller, amount, held)
            })
        };
        let refused = match reserve().await {
            Err(refused) if refused.error == ErrorName::QuotaExceeded => refused,
            other => return other,
        };
        let others = self.left_beside(caller, id).await?;
        // Nothing is given up in vain: without it there must be room.
        let fits = self.with_room(Length::End, caller, move |files, caller| {
            files.would_fit(caller, amount.minus(held), others)
        });
        if others == Amount::default() || fits.await.is_err() {
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
        let found = self.with_files(move |storage| {
            let found = storage.unfinished_packages(&user)?.into_iter();
            let with_whole = |package: UnfinishedPackage| {
                let whole = storage.awaited_bytes(&user, package.id)?;
                Ok((package, whole.unwrap_or(package.usage.bytes)))
            };
            found.map(with_whole).collect::<Result<Vec<_>, PackageError>>()
        });
        let view = |(package, size): (UnfinishedPackage, u64)| {
            let (seconds, nanos) = package.touched.parts();
            Some(UnfinishedUpload {
                id: shown_id(package.id)?,
                path: format!("{home}/{OURS}/packages/{}", package.id).parse().ok()?,
                size,
                arrived: package.usage.bytes,
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

    /// What came of the caller's other packages that nobody is sending.
    async fn left_beside(&self, caller: &Caller, id: PackageId) -> Result<Amount, ErrorBody> {
        let mut free = HashSet::new();
        for other in self.unfinished_ids(caller).await? {
            // One that was just cut off is put down in a moment, and one that is just ending is gone then.
            let turn = timeout(PUT_DOWN_WITHIN, self.long.package(&caller.user, other));
            if other != id && turn.await.is_ok() {
                free.insert(other);
            }
        }
        let (user, storage) = (caller.user.clone(), self.storage.clone());
        let turn = self.long.end_turn(&caller.user).await;
        let found = turn.blocking(move || storage.unfinished_packages(&user)).await;
        let found = found.map_err(|_| internal())?.map_err(package_refused)?;
        let found = found.into_iter().filter(|other| free.contains(&other.id));
        Ok(found.fold(Amount::default(), |all, other| all.plus(other.usage.into())))
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
            let Ok(alone) = timeout(PUT_DOWN_WITHIN, self.long.package(&caller.user, id)).await else {
                continue;
            };
            let (user, storage) = (caller.user.clone(), self.storage.clone());
            let turn = self.long.removal_turn(&caller.user).await;
            let given_up = turn.blocking(move || {
                let gone = storage.give_up_unfinished(&user, id);
                drop(alone);
                gone
            });
            let given_up = given_up.await.map_err(|_| internal())?;
            gone += usize::from(given_up.map_err(package_refused)?);
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

/// How long whoever announces a package waits for somebody who is at it, before they are asked to come again.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// The same for whoever begins to send it: it was announced, and others who announce it too must not send them back again
/// and again. It is silent meanwhile: clients wait longer, and so do proxies.
const SENT_WITHIN: Duration = Duration::from_secs(100);
/// How long one that may just be ending is waited for before it is given up.
const PUT_DOWN_WITHIN: Duration = Duration::from_secs(2);

/// One upload. Pieces are taken in on a thread that may block; dropped unfinished, what came stays for the next one.
pub struct Upload {
    id: PackageId,
    sending: Option<Sending>,
    long: Long,
    user: UserName,
}

/// What is taken in, its room where the home has a limit, and the right to be at that package: all go together, on
/// whatever thread, and in this order.
struct Sending {
    receiver: Receiver,
    room: Option<(HomeRoom, Amount)>,
    alone: OwnedSemaphorePermit,
    /// The right to have a long list in memory.
    list: Option<OwnedSemaphorePermit>,
}

impl Sending {
    /// Nothing is published. What stays counts from then on as whatever lies there.
    fn end(self, how: impl FnOnce(Receiver)) {
        how(self.receiver);
        drop(self.room);
        drop((self.alone, self.list));
    }

    fn finish(self) -> Result<(), PackageError> {
        let finished = self.receiver.finish();
        match self.room {
            Some((room, amount)) if finished.is_ok() => room.settle(amount),
            room => drop(room),
        }
        drop((self.alone, self.list));
        finished
    }
}

impl Upload {
    /// Takes the next piece of the stream.
    pub async fn feed(&mut self, piece: bytes::Bytes) -> Result<(), ErrorBody> {
        let mut sending = self.sending.take().ok_or_else(internal)?;
        let work = tokio::task::spawn_blocking(move || match sending.receiver.feed(&piece) {
            Ok(()) => Ok(sending),
            Err(error) if error.is_full() => {
                // Nobody waits for that.
                drop(tokio::task::spawn_blocking(|| sending.end(Receiver::discard)));
                Err(error)
            }
            Err(error) => {
                // Before it is said: who comes then finds its room free.
                sending.end(Receiver::put_down);
                Err(error)
            }
        });
        let fed = work.await.map_err(|_| internal())?;
        self.sending = Some(fed.map_err(package_refused)?);
        Ok(())
    }

    /// Checks everything and publishes the package. Durable when it returns.
    pub async fn finish(mut self) -> Result<PackageReply, ErrorBody> {
        // All of it is read and synced.
        let turn = self.long.end_turn(&self.user).await;
        let sending = self.sending.take().ok_or_else(internal)?;
        // It is done to its end, also when nobody waits for it any more, and has its room until then.
        let done = turn.blocking(|| sending.finish());
        done.await.map_err(|_| internal())?.map_err(package_refused)?;
        Ok(stored(self.id))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(sending) = self.sending.take() {
            // The thread outlives whoever asked for the upload.
            drop(tokio::task::spawn_blocking(|| sending.end(Receiver::put_down)));
        }
    }
}

fn being_sent() -> ErrorBody {
    let problem = "the package is just being sent";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for that `submit`, or end it")
}

fn others_being_sent() -> ErrorBody {
    let problem = "other packages of yours that have very many files are just being sent";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for those `submit`s, or end them")
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
        PackageError::Storage(RootError::Busy(_)) => ErrorBody::new(ErrorName::Unavailable, problem),
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
