//! Uploads of large files: resumable after any restart, published as a whole.
//!
//! The received bytes are in the file's own space (`paddlecloud_pfs::content::Assembly`); this file only maps a sender's file to
//! its upload. `unfinished` keeps the reservations.

mod arriving;
mod full;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{
    COPY_AT_ONCE, CommitRequest, FileMeta, ReuseRequest, UploadReply, UploadRequest,
};
use paddlecloud_pfs::content::{Assembly, AssemblyError, AssemblyPlan, ChunkName, Op};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{Kind, Meta};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::store::OpenSpace;
use paddlecloud_pfs::{Digest, Existing, Mtime, Place, RelPath, RootError, Space};

pub use arriving::{ChunkIn, RangeIn};
pub(super) use full::Full;

use super::tree::existing;
use super::unfinished::{Rooms, is_over};
use super::{Files, FilesError, Reached, needs};
use crate::packages::shown_place;

/// The longest key a sender may use.
const LONGEST_KEY: usize = 128;
/// An upload that was idle this long is closed; a returning client reopens it.
const IDLE: Duration = Duration::from_secs(1800);

/// The open uploads, and all reservations.
#[derive(Default)]
pub(super) struct Uploads {
    live: Mutex<HashMap<StagedId, Arc<Live>>>,
    pub(super) rooms: Rooms,
}

/// An open upload.
pub(super) struct Live {
    reached: Reached,
    pub(super) assembly: Assembly,
    /// When its last request came.
    seen: Mutex<Instant>,
    /// Set when the upload ran out of space and was discarded. It stays in the list for a while: all its requests report that,
    /// not that the upload is gone.
    found_full: OnceLock<Full>,
}

impl Live {
    fn space(&self) -> &Space {
        &self.reached.place.space
    }

    fn seen(&self) -> MutexGuard<'_, Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a commit failed because the package is no longer staged: it was published or given up.
    fn is_without_package(&self, error: &FilesError) -> bool {
        self.reached.package().is_some() && error.storage().is_some_and(RootError::is_not_found)
    }

    /// Notes a request.
    fn record_request(&self) {
        *self.seen() = Instant::now();
    }

    /// Converts the result of a write. A full disk discards the upload, so that no partial file stays.
    pub(super) fn checked<T>(
        &self,
        files: &Files,
        result: Result<T, AssemblyError>,
    ) -> Result<T, FilesError> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => FilesError::from(error),
        };
        let is_over = matches!(
            error,
            FilesError::Assembly(AssemblyError::Finished(_) | AssemblyError::Ending(_))
        );
        if let (true, Some(full)) = (is_over, self.found_full.get()) {
            return Err(full.error_for(&self.reached.place));
        }
        if let Some(full) = Full::of(&error)
            && self.found_full.set(full).is_ok()
        {
            if let Err(error) = self.assembly.clone().discard() {
                tracing::warn!(%error, "an upload that does not fit could not be removed");
            }
            drop(files.0.uploads.rooms.take(self.assembly.id()));
        }
        Err(error)
    }
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<StagedId, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes uploads that are idle at the given time, so that they hold no open files. Their reservations stay.
    pub(super) fn close_idle(&self, then: Mtime) {
        let ahead = Mtime::from(SystemTime::now()).age(then);
        self.lock()
            .retain(|_, live| live.seen().elapsed().saturating_add(ahead) < IDLE);
    }

    /// Whether a request is in flight. Such an upload is left to expire when it is superseded.
    pub(super) fn is_sent_to(&self, id: &StagedId) -> bool {
        self.lock()
            .get(id)
            .is_some_and(|live| Arc::strong_count(live) > 1)
    }
}

impl Files {
    /// Begins an upload, or finds the one that the same key began.
    pub fn upload_begin(&self, caller: &Caller, request: &UploadRequest) -> Result<UploadReply, FilesError> {
        let reached = self.reach_upload(caller, &request.path.0)?;
        reached.not_the_space()?;
        // A path that the store cannot keep is refused before anything is sent.
        let kept = self.0.store.limits().check(&reached.place.path);
        kept.map_err(reached.failed())?;
        if request.key.is_empty() || request.key.len() > LONGEST_KEY {
            return Err(FilesError::BadRequest(
                "an upload needs a key of 1 to 128 bytes".to_owned(),
            ));
        }
        let plan = AssemblyPlan {
            path: reached.place.path.clone(),
            size: request.size,
            executable: request.executable,
            mtime: request.mtime,
        };
        let key = upload_key(&reached.place, &request.key);
        let known = self.keyed_upload(&reached.place, &request.key);
        let reply = self.begin_or_resume(reached, plan, known.as_ref(), request)?;
        if known.as_ref() != Some(&reply.id)
            && let Err(error) = self.index().record_upload(&key, &reply.id)
        {
            // Without its key the upload could not be found again.
            self.upload_discard(caller, &reply.id)?;
            return Err(FilesError::Disk(error, "record an upload"));
        }
        Ok(reply)
    }

    /// The upload that a key began. Without the index the upload starts over.
    pub(super) fn keyed_upload(&self, place: &Place, key: &str) -> Option<StagedId> {
        self.index().upload(&upload_key(place, key)).ok().flatten()
    }

    fn begin_or_resume(
        &self,
        reached: Reached,
        plan: AssemblyPlan,
        known: Option<&StagedId>,
        request: &UploadRequest,
    ) -> Result<UploadReply, FilesError> {
        let _acting = self.act(&reached.place.space)?;
        drop(reached.package_tree()?);
        let old = reached.stat_if_exists()?;
        let taken = |error: fn(RelPath) -> RootError| reached.failed()(error(plan.path.clone()));
        match &old {
            Some(old) if old.is_dir() => return Err(taken(RootError::IsAFolder)),
            Some(_) if request.no_overwrite => return Err(taken(RootError::Exists)),
            Some(old) if old.kind == Kind::Special => return Err(taken(RootError::NotAFile)),
            _ => {}
        }
        let is_old = |old: &Meta| old.is_file() && reached.package().is_none();
        let old_size = old.filter(is_old).map(|old| old.size);
        if let Some(id) = known
            && let Ok(live) = self.take_up(&reached.root, &reached.place.space, id)
            && *live.assembly.plan() == plan
        {
            return Ok(UploadReply {
                names: live.assembly.checked(),
                age_ms: live
                    .assembly
                    .age()
                    .and_then(|age| u64::try_from(age.as_millis()).ok()),
                ..reply(&live, old_size)
            });
        }
        self.give_up_superseded(&reached, None);
        Ok(reply(&*self.create(reached, plan)?, old_size))
    }

    fn create(&self, reached: Reached, plan: AssemblyPlan) -> Result<Arc<Live>, FilesError> {
        let room = self.reserve(&reached.place.space, amount(&plan))?;
        let staging = reached.root.staging();
        // A file system of size 0 does not report its free space: CephFS in its first seconds.
        let (free, size) = staging.free_space().map_err(reached.failed())?;
        if size > 0 && free < plan.size {
            return Err(reached.failed()(RootError::NoSpace(plan.path)));
        }
        let assembly = Assembly::create(staging, plan)?;
        if let Some(room) = room {
            self.0.uploads.rooms.keep(assembly.id(), room);
        }
        Ok(self.live(reached, assembly))
    }

    fn live(&self, reached: Reached, assembly: Assembly) -> Arc<Live> {
        let live = Arc::new(Live {
            reached,
            seen: Mutex::new(Instant::now()),
            found_full: OnceLock::new(),
            assembly,
        });
        let id = live.assembly.id().clone();
        // Two concurrent requests may open the same upload.
        self.0.uploads.lock().entry(id).or_insert(live).clone()
    }

    /// Finds an upload of the caller, also one from before a restart.
    fn upload(&self, caller: &Caller, id: &StagedId) -> Result<Arc<Live>, FilesError> {
        let spaces = self.writable(caller)?;
        for space in &spaces {
            let _acting = self.act(space)?;
            let root = self.space(space)?;
            match self.take_up(&root, space, id) {
                Err(FilesError::NoUpload(_)) => {}
                other => {
                    let live = other?;
                    needs(caller, live.reached.scope())?;
                    return Ok(live);
                }
            }
        }
        Err(FilesError::NoUpload(id.to_string()))
    }

    pub(super) fn take_up(
        &self,
        root: &OpenSpace,
        space: &Space,
        id: &StagedId,
    ) -> Result<Arc<Live>, FilesError> {
        let known = self.0.uploads.lock().get(id).cloned();
        if let Some(live) = known {
            if live.reached.place.space != *space {
                return Err(FilesError::NoUpload(id.to_string()));
            }
            live.record_request();
            return match live.found_full.get() {
                Some(full) => Err(full.error_for(&live.reached.place)),
                None => Ok(live),
            };
        }
        self.find_rooms(space, root)?;
        let assembly = match Assembly::open(root.staging(), id) {
            Err(AssemblyError::Storage(error)) if error.is_not_found() => {
                return Err(FilesError::NoUpload(id.to_string()));
            }
            Err(AssemblyError::State { .. }) => return Err(FilesError::NoUpload(id.to_string())),
            other => other?,
        };
        let path = assembly.plan().path.clone();
        let reached = Reached {
            root: root.clone(),
            shown: paddlecloud_api::files::below(&self.name_of(space), &shown_place(&path))
                .map_err(|_| FilesError::NoUpload(id.to_string()))?,
            place: Place {
                space: space.clone(),
                path,
            },
        };
        Ok(self.live(reached, assembly))
    }

    /// The ranges that are missing.
    pub fn upload_show(&self, caller: &Caller, id: &StagedId) -> Result<UploadReply, FilesError> {
        Ok(reply(&*self.upload(caller, id)?, None))
    }

    /// Starts to receive a chunk.
    pub fn upload_chunk(
        &self,
        caller: &Caller,
        id: &StagedId,
        index: u64,
        name: ChunkName,
    ) -> Result<ChunkIn, FilesError> {
        let live = self.upload(caller, id)?;
        let _acting = self.act(live.space())?;
        let writer = live.checked(self, live.assembly.chunk(index))?;
        Ok(ChunkIn {
            files: self.clone(),
            live,
            writer,
            name,
        })
    }

    /// Starts to receive bytes at any offset.
    pub fn upload_range(
        &self,
        caller: &Caller,
        id: &StagedId,
        offset: u64,
        len: u64,
    ) -> Result<RangeIn, FilesError> {
        let live = self.upload(caller, id)?;
        Ok(RangeIn {
            files: self.clone(),
            live,
            offset,
            left: len,
        })
    }

    /// Copies ranges of the old file to other offsets of the new one.
    pub fn upload_reuse(
        &self,
        caller: &Caller,
        id: &StagedId,
        request: &ReuseRequest,
    ) -> Result<UploadReply, FilesError> {
        let live = self.upload(caller, id)?;
        let copies = request.ops.iter().filter_map(|op| match *op {
            Op::Copy { to, from, len } => Some((to, from, len)),
            Op::Send { .. } => None,
        });
        let total = copies
            .clone()
            .fold(0_u64, |total, (_, _, len)| total.saturating_add(len));
        // The last copy may exceed the limit.
        if total > 2 * COPY_AT_ONCE {
            let problem = "these are too many bytes to copy at once";
            return Err(FilesError::BadRequest(problem.to_owned()));
        }
        let _acting = self.act(live.space())?;
        let (reached, assembly) = (&live.reached, &live.assembly);
        let old = reached.root.open_no_links(&reached.place.path);
        let old = old.map_err(reached.failed())?;
        for (to, from, len) in copies {
            live.checked(self, assembly.copy_from(to, &*old, from, len))?;
        }
        Ok(reply(&live, None))
    }

    /// Checks that everything arrived and publishes the file. Durable when it returns, except in a package, which is
    /// synced as a whole.
    pub fn upload_commit(
        &self,
        caller: &Caller,
        id: &StagedId,
        request: &CommitRequest,
    ) -> Result<FileMeta, FilesError> {
        self.end_upload(caller, id, Some(request.digest), request.no_overwrite)
    }

    /// The same; the bytes of a sender that gives no digest are not checked.
    pub(super) fn end_upload(
        &self,
        caller: &Caller,
        id: &StagedId,
        digest: Option<Digest>,
        no_overwrite: bool,
    ) -> Result<FileMeta, FilesError> {
        let live = self.upload(caller, id)?;
        let acting = self.act(live.space())?;
        let (meta, replaced) = match self.publish(&live, digest, existing(no_overwrite)) {
            Err(error) if is_over(&error) || live.is_without_package(&error) => {
                drop(acting);
                // The client gets the original error even if this fails.
                if let Err(error) = self.upload_discard(caller, id) {
                    tracing::warn!(%error, "an upload that was refused could not be removed");
                }
                return Err(match error {
                    FilesError::Assembly(AssemblyError::Storage(error)) => live.reached.failed()(error),
                    error => error,
                });
            }
            published => published?,
        };
        if let Some(room) = self.0.uploads.rooms.take(id) {
            room.charge(amount(live.assembly.plan()), replaced);
        }
        self.forget_upload(id);
        self.give_up_superseded(&live.reached, Some(id));
        let recorded = digest.filter(|_| live.assembly.plan().mtime.is_some());
        match (live.reached.package(), recorded) {
            // The package moves to its own place.
            (Some(_), _) => self.received(&live.reached, digest.map(|digest| (meta.stamp, digest))),
            (None, Some(digest)) => self.record(&live.reached.place, meta.stamp, digest),
            (None, None) => self.forget(&live.reached.place),
        }
        Ok(FileMeta {
            digest,
            version: Some(paddlecloud_api::files::version_of(&meta.stamp)),
            ..FileMeta::of(&meta)
        })
    }

    /// Publishes the file and returns what it replaced.
    fn publish(
        &self,
        live: &Live,
        digest: Option<Digest>,
        existing: Existing,
    ) -> Result<(Meta, Amount), FilesError> {
        let _package = live.reached.package_tree()?;
        let replaced = live.reached.replaced()?;
        let (reached, root) = (&live.reached, &live.reached.root);
        let parent = reached.place.path.parent().unwrap_or_default();
        root.make_dirs(&parent).map_err(reached.failed())?;
        let committed = root.commit(&live.assembly, digest, existing);
        Ok((live.checked(self, committed)?, replaced))
    }

    /// Discards an upload and all received bytes.
    pub fn upload_discard(&self, caller: &Caller, id: &StagedId) -> Result<(), FilesError> {
        let live = self.upload(caller, id)?;
        let _acting = self.act(live.space())?;
        let gone = live.assembly.clone().discard();
        self.forget_upload(id);
        Ok(gone?)
    }

    pub(super) fn forget_upload(&self, id: &StagedId) {
        self.0.uploads.lock().remove(id);
        drop(self.0.uploads.rooms.take(id));
    }
}

/// Identifies one state of one sender's file.
fn upload_key(place: &Place, key: &str) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in [
        place.space.folder().as_bytes(),
        place.path.as_bytes(),
        key.as_bytes(),
    ] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// What an upload takes of a quota, from its first byte.
pub(super) fn amount(plan: &AssemblyPlan) -> Amount {
    Amount {
        bytes: plan.size,
        files: 1,
    }
}

fn reply(live: &Live, old_size: Option<u64>) -> UploadReply {
    let missing = live.assembly.missing();
    UploadReply {
        id: live.assembly.id().clone(),
        missing: missing.into_iter().map(|gap| (gap.start, gap.end)).collect(),
        old_size,
        names: Vec::new(),
        age_ms: None,
    }
}
