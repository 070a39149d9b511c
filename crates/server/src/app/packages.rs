//! Uploads of packages, and whether a job may use a package.

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
use tokio::time::{Instant, timeout, timeout_at};

use super::{App, internal};
use crate::auth::Caller;
use crate::error_chain::chain_of;
use crate::files::HomeRoom;
use crate::homes::StorageError;
use crate::locks::{Key, Lock};
use crate::packages::{Receiver, SHORT_LIST};
use crate::queue::{Class, Queue, Turn};

impl App {
    /// Whether the caller's package is complete.
    pub async fn package_has(&self, caller: &Caller, id: &str) -> Result<bool, ErrorBody> {
        self.files_within_reach()?;
        let (user, id) = (caller.user.clone(), package_id(id)?);
        self.with_files(move |storage| storage.has_package(&user, id))
            .await
    }

    /// Stores a package's manifest and returns which files must be sent, and from which offset. A long manifest holds a queue
    /// turn while it is in memory.
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
        let alone = match timeout(PUT_DOWN_WITHIN, self.lock_package(caller, id)).await {
            Ok(alone) => alone,
            Err(_) if turn.is_none() => self.alone_at(caller, id).await?,
            Err(_) => {
                // A long manifest is not kept in memory while it waits for another client; its own client sends it again.
                drop((manifest, turn));
                drop(self.alone_at(caller, id).await?);
                return Err(being_sent());
            }
        };
        // The previous holder of the lock may have completed the package.
        if self.package_has(caller, &id.to_string()).await? {
            return Ok(stored(id));
        }
        let alone = self.check_room_for(caller, &manifest, alone).await?;
        let (user, storage) = (caller.user.clone(), self.storage.clone());
        // Files already received are read, as at the end of an upload.
        let turn = self.queue.turn(Class::End, &caller.user).await;
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

    /// Refuses a package that does not fit before any file is sent. Space is reserved when the files arrive.
    async fn check_room_for(
        &self,
        caller: &Caller,
        manifest: &Arc<Manifest>,
        alone: Lock,
    ) -> Result<Lock, ErrorBody> {
        let (user, list) = (caller.user.clone(), Arc::clone(manifest));
        // A job may have put many files there.
        let (storage, turn) = (
            self.storage.clone(),
            self.queue.turn(Class::End, &caller.user).await,
        );
        // The lock moves along: the caller may disconnect before this is done.
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

    /// Starts or resumes receiving the files of an announced package.
    pub async fn package_receive(&self, caller: &Caller, id: &str) -> Result<Upload, ErrorBody> {
        self.files_within_reach()?;
        let (user, package) = (caller.user.clone(), package_id(id)?);
        let (alone, list) = self.turns_to_send(caller, package).await?;
        if self.package_has(caller, id).await? {
            // Another client has just uploaded it. The client repeats its request and learns that the package is complete.
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
            queue: self.queue.clone(),
            user: caller.user.clone(),
        };
        let room = self.room_for(caller, package, amount, held).await?;
        if let Some(sending) = &mut upload.sending {
            sending.room = room.map(|room| (room, amount));
        }
        Ok(upload)
    }

    /// Locks a package. If its manifest is long, first waits for a turn to hold the manifest in memory.
    async fn turns_to_send(&self, caller: &Caller, id: PackageId) -> Result<(Lock, Option<Turn>), ErrorBody> {
        let user = caller.user.clone();
        let list = self.with_files(move |storage| storage.awaited_list(&user, id));
        let until = Instant::now() + SENT_WITHIN;
        let list = match list.await? > SHORT_LIST as u64 {
            true => {
                let turn = timeout_at(until, self.queue.turn(Class::List, &caller.user)).await;
                Some(turn.map_err(|_| others_being_sent())?)
            }
            false => None,
        };
        let alone = timeout_at(until, self.lock_package(caller, id)).await;
        Ok((alone.map_err(|_| being_sent())?, list))
    }

    async fn lock_package(&self, caller: &Caller, id: PackageId) -> Lock {
        self.locks.lock(Key::Package(caller.user.clone(), id)).await
    }

    /// Locks a package, or gives up after a while. After a broken connection, a client is often back before the server notices
    /// the break, and two concurrent submits of the same package need only one upload.
    async fn alone_at(&self, caller: &Caller, id: PackageId) -> Result<Lock, ErrorBody> {
        let locked = timeout(BACK_WITHIN, self.lock_package(caller, id));
        locked.await.map_err(|_| being_sent())
    }

    /// Reserves space in the caller's home, if it has a limit, for a package of which `held` has arrived. Unfinished data of
    /// other packages is dropped if necessary.
    async fn room_for(
        &self,
        caller: &Caller,
        id: PackageId,
        amount: Amount,
        held: Amount,
    ) -> Result<Option<HomeRoom>, ErrorBody> {
        let reserve = || {
            self.with_room(Some(Class::End), caller, move |files, caller| {
                files.room_at_home(caller, amount, held)
            })
        };
        let refused = match reserve().await {
            Err(refused) if refused.error == ErrorName::QuotaExceeded => refused,
            other => return other,
        };
        let others = self.left_beside(caller, id).await?;
        // Nothing is dropped in vain: the package must fit afterwards.
        let fits = self.with_room(Some(Class::End), caller, move |files, caller| {
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

    /// Unfinished packages of the caller, listed like unfinished uploads of files.
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
            found.map(with_whole).collect::<Result<Vec<_>, StorageError>>()
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

    /// Drops an unfinished package; returns whether the id belongs to one.
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
            let problem = "the package is already being uploaded";
            return Err(ErrorBody::new(ErrorName::Conflict, problem).with_hint("stop that `submit` first"));
        }
        Ok(gone > 0)
    }

    /// The size of the caller's other unfinished packages that no client is sending.
    async fn left_beside(&self, caller: &Caller, id: PackageId) -> Result<Amount, ErrorBody> {
        let mut free = HashSet::new();
        for other in self.unfinished_ids(caller).await? {
            // An upload that was just cut off releases its lock in a moment, and one that is just finishing disappears.
            let locked = timeout(PUT_DOWN_WITHIN, self.lock_package(caller, other));
            if other != id && locked.await.is_ok() {
                free.insert(other);
            }
        }
        let (user, storage) = (caller.user.clone(), self.storage.clone());
        let turn = self.queue.turn(Class::End, &caller.user).await;
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

    /// Drops unfinished packages that no client is sending; returns how many.
    async fn give_up_packages(
        &self,
        caller: &Caller,
        is_meant: impl Fn(&PackageId) -> bool,
    ) -> Result<usize, ErrorBody> {
        let mut gone = 0;
        for id in self.unfinished_ids(caller).await?.into_iter().filter(is_meant) {
            let Ok(alone) = timeout(PUT_DOWN_WITHIN, self.lock_package(caller, id)).await else {
                continue;
            };
            let (user, storage) = (caller.user.clone(), self.storage.clone());
            let turn = self.queue.turn(Class::Removal, &caller.user).await;
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

    /// Resolves a path to an uploaded package's latest run to that package, as it was uploaded.
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

    /// Checks that a job's package exists and that the user may run it.
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

/// How long an announcement waits for another client that works on the package, before its client is asked to retry.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// The same for a client that starts to send: it has announced the package, and other announcements must not delay it repeatedly.
/// Nothing is sent meanwhile; clients and proxies wait longer than this.
const SENT_WITHIN: Duration = Duration::from_secs(100);
/// How long to wait for an upload that may just be finishing before it is dropped.
const PUT_DOWN_WITHIN: Duration = Duration::from_secs(2);

/// One upload. Pieces are received on a blocking thread. If it is dropped unfinished, received data stays for the next one.
pub struct Upload {
    id: PackageId,
    sending: Option<Sending>,
    queue: Queue,
    user: UserName,
}

/// The receiver, the reserved space if the home has a limit, and the package's lock. They move between threads together and are
/// dropped in this order.
struct Sending {
    receiver: Receiver,
    room: Option<(HomeRoom, Amount)>,
    alone: Lock,
    /// The turn to hold a long manifest in memory.
    list: Option<Turn>,
}

impl Sending {
    /// Ends the upload without publishing. From then on, received data counts like other files.
    fn end(self, how: impl FnOnce(Receiver)) {
        how(self.receiver);
        drop(self.room);
        drop((self.alone, self.list));
    }

    fn finish(self) -> Result<(), StorageError> {
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
    /// Receives the next piece of the stream.
    pub async fn feed(&mut self, piece: bytes::Bytes) -> Result<(), ErrorBody> {
        let mut sending = self.sending.take().ok_or_else(internal)?;
        let work = tokio::task::spawn_blocking(move || match sending.receiver.feed(&piece) {
            Ok(()) => Ok(sending),
            Err(error) if error.is_full() => {
                // The reply does not wait for the removal.
                drop(tokio::task::spawn_blocking(|| sending.end(Receiver::discard)));
                Err(error)
            }
            Err(error) => {
                // Before the reply, so that the next client finds the space free.
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
        // The whole package is read and synced.
        let turn = self.queue.turn(Class::End, &self.user).await;
        let sending = self.sending.take().ok_or_else(internal)?;
        // It is completed even if the caller has disconnected, and keeps its reserved space until then.
        let done = turn.blocking(|| sending.finish());
        done.await.map_err(|_| internal())?.map_err(package_refused)?;
        Ok(stored(self.id))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(sending) = self.sending.take() {
            // The thread outlives the request.
            drop(tokio::task::spawn_blocking(|| sending.end(Receiver::put_down)));
        }
    }
}

fn being_sent() -> ErrorBody {
    let problem = "the package is already being uploaded";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for that `submit`, or stop it")
}

fn others_being_sent() -> ErrorBody {
    let problem = "other packages of yours with very many files are being uploaded";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for those `submit`s, or stop them")
}

/// The reply for a complete package.
fn stored(id: PackageId) -> PackageReply {
    PackageReply {
        id: id.to_string(),
        missing: Vec::new(),
        parts: Vec::new(),
        stored: true,
    }
}

/// The id under which an unfinished package is listed among unfinished uploads: the first half of its own id.
fn shown_id(package: PackageId) -> Option<StagedId> {
    package.to_string().get(..32)?.parse().ok()
}

fn read_list(manifest: &[u8]) -> Result<Manifest, ErrorBody> {
    serde_json::from_slice(manifest).map_err(|error| {
        let problem = format!("the list of files cannot be read: {error}");
        ErrorBody::new(ErrorName::BadRequest, problem)
    })
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

fn package_id(text: &str) -> Result<PackageId, ErrorBody> {
    let problem = || format!("`{}` is not a package id", text.escape_default());
    text.parse()
        .map_err(|_| ErrorBody::new(ErrorName::BadRequest, problem()))
}

/// Converts a failure to the error that the caller may see.
pub(super) fn package_refused(error: StorageError) -> ErrorBody {
    if error.is_full() {
        return disk_failed(&error);
    }
    let problem = error.to_string();
    match &error {
        StorageError::NotFound(_) => ErrorBody::new(ErrorName::NotFound, problem),
        StorageError::NotAFolder(_)
        | StorageError::BadName(_)
        | StorageError::OutputIsAFile
        | StorageError::Ours(_) => ErrorBody::new(ErrorName::BadRequest, problem),
        StorageError::NotUploaded(_) => ErrorBody::new(ErrorName::PackageMissing, problem)
            .with_hint("announce it to `POST /api/v1/packages`, send its files, then submit again"),
        StorageError::NotAnnounced(_) => ErrorBody::new(ErrorName::Conflict, problem)
            .with_hint("send its list of files first, to `POST /api/v1/packages`"),
        StorageError::WrongId(_)
        | StorageError::Incomplete(..)
        | StorageError::Changed(_)
        | StorageError::Pack(_) => ErrorBody::new(ErrorName::Damaged, problem).with_hint("submit again"),
        StorageError::Storage(RootError::Busy(_)) => ErrorBody::new(ErrorName::Unavailable, problem),
        StorageError::Storage(_) | StorageError::Disk(_) | StorageError::Manifest(_) => disk_failed(&error),
    }
}

fn disk_failed(error: &StorageError) -> ErrorBody {
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
