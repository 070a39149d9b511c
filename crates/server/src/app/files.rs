//! Use cases of the file service: what blocks runs on threads that may block, one step at a time.

use std::collections::HashSet;

use bytes::Bytes;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{
    CommitRequest, CopyReply, FileMeta, FileView, MkdirRequest, MoveRequest, PackReply, PackRequest,
    RemoveRequest, Removed, ReuseRequest, ShareRequest, ShareView, StatsRequest, StorageView, TakeRequest,
    UnfinishedUpload, UploadReply, UploadRequest, UsageView, WirePath,
};
use paddlecloud_pfs::content::ChunkName;
use paddlecloud_pfs::pack::PackTotals;
use paddlecloud_pfs::share::{Share, ShareError};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{PfsPath, RelPath, Space};

use super::{App, internal};
use crate::auth::Caller;
use crate::files::{
    ByteRange, ChunkIn, Content, DigestWanted, Files, FilesError, Fsck, Lister, PackIn, PackOut, Parts,
    PartsAsked, RangeIn,
};

/// What a request asks for a listing.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub recursive: bool,
    pub digests: bool,
    /// Only what comes behind this path.
    pub after: Option<RelPath>,
}

impl App {
    /// Does something with users' files on a thread that may block.
    pub(super) async fn with_store<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&Files, &Caller) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, ErrorBody> {
        let (files, caller) = (self.files.clone(), caller.clone());
        blocking(move || work(&files, &caller)).await
    }

    pub async fn file_stat(
        &self,
        caller: &Caller,
        path: &str,
        link: bool,
        digest: DigestWanted,
    ) -> Result<FileMeta, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            files.stat(caller, &path, link, digest)
        })
        .await
    }

    pub async fn file_stats(
        &self,
        caller: &Caller,
        request: StatsRequest,
    ) -> Result<Vec<Option<FileMeta>>, ErrorBody> {
        self.with_store(caller, move |files, caller| files.stats(caller, &request))
            .await
    }

    pub async fn file_list(
        &self,
        caller: &Caller,
        path: &str,
        query: ListQuery,
    ) -> Result<Lister, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            let lister = files.list(caller, &path, query.recursive, query.digests)?;
            Ok(lister.after(query.after))
        })
        .await
    }

    pub async fn file_glob(&self, caller: &Caller, pattern: String) -> Result<Vec<FileView>, ErrorBody> {
        self.with_store(caller, move |files, caller| files.glob(caller, &pattern))
            .await
    }

    pub async fn file_mkdir(&self, caller: &Caller, request: MkdirRequest) -> Result<(), ErrorBody> {
        self.with_store(caller, move |files, caller| files.mkdir(caller, &request))
            .await
    }

    pub async fn file_remove(
        &self,
        caller: &Caller,
        request: RemoveRequest,
    ) -> Result<Vec<Removed>, ErrorBody> {
        let live = self.live_runs(caller);
        self.with_store(caller, move |files, caller| {
            Ok(files.remove(caller, &request, &live))
        })
        .await
    }

    /// The caller's jobs that are not over: what their runs hold must stay. One that is over never goes on.
    fn live_runs(&self, caller: &Caller) -> HashSet<String> {
        let live = self.jobs.active().into_iter();
        live.filter(|job| job.user == caller.user)
            .map(|job| job.id.to_string())
            .collect()
    }

    pub async fn file_rename(&self, caller: &Caller, request: MoveRequest) -> Result<(), ErrorBody> {
        let live = self.live_runs(caller);
        self.with_store(caller, move |files, caller| files.rename(caller, &request, &live))
            .await
    }

    pub async fn file_copy(&self, caller: &Caller, request: MoveRequest) -> Result<CopyReply, ErrorBody> {
        self.with_store(caller, move |files, caller| files.copy(caller, &request))
            .await
    }

    pub async fn file_usage(&self, caller: &Caller, path: &str) -> Result<UsageView, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| files.usage(caller, &path))
            .await
    }

    pub async fn file_storage(&self, caller: &Caller) -> Result<StorageView, ErrorBody> {
        self.with_store(caller, |files, caller| files.storage(caller))
            .await
    }

    /// Refuses a caller whose home holds more than it may.
    pub async fn file_check_room(&self, caller: &Caller) -> Result<(), ErrorBody> {
        self.with_store(caller, |files, caller| files.check_room(caller))
            .await
    }

    pub async fn file_content(
        &self,
        caller: &Caller,
        path: &str,
        range: ByteRange,
        version: Option<String>,
    ) -> Result<Content, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            files.content(caller, &path, range, version.as_deref())
        })
        .await
    }

    pub async fn file_parts(
        &self,
        caller: &Caller,
        path: &str,
        asked: PartsAsked,
        version: Option<String>,
    ) -> Result<Parts, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            files.parts(caller, &path, asked, version.as_deref())
        })
        .await
    }

    pub async fn file_signature(&self, caller: &Caller, path: &str) -> Result<Vec<u8>, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| files.signature(caller, &path))
            .await
    }

    pub async fn pack_in(
        &self,
        caller: &Caller,
        path: &str,
        announced: PackTotals,
        no_overwrite: bool,
    ) -> Result<Taking<PackIn>, ErrorBody> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            files
                .pack_in(caller, &path, announced, no_overwrite)
                .map(Taking::new)
        })
        .await
    }

    pub async fn pack_out(&self, caller: &Caller, request: PackRequest) -> Result<PackOut, ErrorBody> {
        self.with_store(caller, move |files, caller| files.pack_out(caller, request))
            .await
    }

    pub async fn upload_begin(
        &self,
        caller: &Caller,
        request: UploadRequest,
    ) -> Result<UploadReply, ErrorBody> {
        self.with_store(caller, move |files, caller| files.upload_begin(caller, &request))
            .await
    }

    pub async fn upload_list(&self, caller: &Caller) -> Result<Vec<UnfinishedUpload>, ErrorBody> {
        self.with_store(caller, |files, caller| files.upload_list(caller))
            .await
    }

    pub async fn upload_show(&self, caller: &Caller, id: &str) -> Result<UploadReply, ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| files.upload_show(caller, &id))
            .await
    }

    pub async fn upload_chunk(
        &self,
        caller: &Caller,
        id: &str,
        index: u64,
        name: ChunkName,
    ) -> Result<Taking<ChunkIn>, ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| {
            files.upload_chunk(caller, &id, index, name)
        })
        .await
        .map(Taking::new)
    }

    pub async fn upload_range(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        len: u64,
    ) -> Result<Taking<RangeIn>, ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| {
            files.upload_range(caller, &id, offset, len)
        })
        .await
        .map(Taking::new)
    }

    pub async fn upload_take(
        &self,
        caller: &Caller,
        id: &str,
        request: TakeRequest,
    ) -> Result<UploadReply, ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| {
            files.upload_take(caller, &id, &request)
        })
        .await
    }

    pub async fn upload_reuse(
        &self,
        caller: &Caller,
        id: &str,
        request: ReuseRequest,
    ) -> Result<UploadReply, ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| {
            files.upload_reuse(caller, &id, &request)
        })
        .await
    }

    pub async fn upload_commit(
        &self,
        caller: &Caller,
        id: &str,
        request: CommitRequest,
    ) -> Result<FileMeta, ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| {
            files.upload_commit(caller, &id, &request)
        })
        .await
    }

    pub async fn upload_discard(&self, caller: &Caller, id: &str) -> Result<(), ErrorBody> {
        let id = upload_id(id)?;
        self.with_store(caller, move |files, caller| files.upload_discard(caller, &id))
            .await
    }

    pub async fn share_create(&self, caller: &Caller, request: ShareRequest) -> Result<ShareView, ErrorBody> {
        if self.config.embedded {
            return Err(nobody_could_read_it());
        }
        self.with_store(caller, move |files, caller| files.share_create(caller, &request))
            .await
    }

    pub async fn share_list(&self, caller: &Caller) -> Result<Vec<ShareView>, ErrorBody> {
        self.with_store(caller, |files, caller| files.share_list(caller))
            .await
    }

    pub async fn share_revoke(&self, caller: &Caller, id: String) -> Result<(), ErrorBody> {
        self.with_store(caller, move |files, caller| files.share_revoke(caller, &id))
            .await
    }

    /// What a link leads to. It asks for no login: whoever has it may read, and hears nothing of where the file lies.
    pub async fn share_read(&self, token: String, range: ByteRange) -> Result<(Content, String), ErrorBody> {
        let files = self.files.clone();
        blocking(move || {
            let share = files.share_open(&token)?;
            let name = share.place.path.name().map(String::from_utf8_lossy);
            let name = name.unwrap_or_default().into_owned();
            let opened = files.shared(&share, range);
            Ok((opened.map_err(|error| untold(&share, error))?, name))
        })
        .await
    }

    pub async fn file_fsck(&self, caller: &Caller) -> Result<Fsck, ErrorBody> {
        self.with_store(caller, |files, caller| files.fsck(caller)).await
    }

    pub async fn file_fsck_told(&self, caller: &Caller, id: String) -> Result<(), ErrorBody> {
        self.with_store(caller, move |files, caller| files.fsck_told(caller, &id))
            .await
    }

    /// Keeps what is known of files for the next start.
    pub async fn files_save(&self) {
        let files = self.files.clone();
        // It fails only when the runtime is about to end.
        drop(tokio::task::spawn_blocking(move || files.save()).await);
    }

    /// Removes uploads nobody returned to, and what a killed server left.
    pub async fn files_sweep(&self) {
        let homes = self
            .config
            .users
            .iter()
            .filter_map(|user| user.name.as_str().parse().ok());
        let spaces: Vec<Space> = homes.map(Space::Home).chain([Space::Public]).collect();
        let files = self.files.clone();
        let swept = tokio::task::spawn_blocking(move || files.sweep(&spaces)).await;
        if let Ok(swept) = swept
            && swept.expired > 0
        {
            tracing::info!(expired = swept.expired, "unfinished uploads were given up");
        }
    }
}

/// Why a link does not work, without the path: that is for the server's own log.
fn untold(share: &Share, error: FilesError) -> FilesError {
    if matches!(error, FilesError::BadRequest(_)) {
        return FilesError::BadRequest("the file does not have the bytes that were asked for".to_owned());
    }
    tracing::info!(link = %share.id, error = super::chain_of(&error), "a published file cannot be read");
    ShareError::Empty.into()
}

/// The embedded server has a socket of this machine and no address.
fn nobody_could_read_it() -> ErrorBody {
    let msg = "cannot publish: the embedded server has no address that others could reach";
    ErrorBody::new(ErrorName::Forbidden, msg)
        .with_hint("`paddlectl cp` brings the file to this machine; send it from here")
        .with_hint("links work on a shared server: docs/guide/configuration.md")
}

/// Something that takes bytes, blocking.
pub trait Takes: Send + 'static {
    type Done: Send + 'static;

    /// Takes the next bytes.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError>;
    /// Accepts what came.
    fn finish(self) -> Result<Self::Done, FilesError>;
    /// Gives up.
    fn discard(self);
}

/// Bytes on their way in. Dropped unfinished, the rest is given up on a thread that may block.
pub struct Taking<T: Takes>(Option<T>);

impl<T: Takes> Taking<T> {
    pub(super) fn new(taker: T) -> Taking<T> {
        Taking(Some(taker))
    }

    /// Takes the next bytes. What it refuses is given up before it says so: nothing half-written stays.
    pub async fn feed(&mut self, pieces: Vec<Bytes>) -> Result<(), ErrorBody> {
        let mut taker = self.0.take().ok_or_else(internal)?;
        let fed = blocking(
            move || match pieces.iter().try_for_each(|piece| taker.feed(piece)) {
                // As something that gives itself up: whoever sent the bytes may be gone, and this future with them.
                Ok(()) => Ok(Taking(Some(taker))),
                Err(error) => {
                    taker.discard();
                    Err(error)
                }
            },
        );
        *self = fed.await?;
        Ok(())
    }

    /// Accepts what came.
    pub async fn finish(mut self) -> Result<T::Done, ErrorBody> {
        let taker = self.0.take().ok_or_else(internal)?;
        blocking(move || taker.finish()).await
    }
}

impl<T: Takes> Drop for Taking<T> {
    fn drop(&mut self) {
        if let Some(taker) = self.0.take() {
            // The thread outlives this future; what it removes is nobody's any more.
            drop(tokio::task::spawn_blocking(move || taker.discard()));
        }
    }
}

impl Takes for PackIn {
    type Done = PackReply;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        PackIn::feed(self, bytes)
    }

    fn finish(self) -> Result<PackReply, FilesError> {
        PackIn::finish(self)
    }

    fn discard(self) {
        PackIn::discard(self);
    }
}

impl Takes for ChunkIn {
    type Done = ();

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        ChunkIn::feed(self, bytes)
    }

    fn finish(self) -> Result<(), FilesError> {
        ChunkIn::finish(self)
    }

    /// A chunk that is not whole does not count; there is nothing to remove.
    fn discard(self) {}
}

impl Takes for RangeIn {
    type Done = ();

    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        RangeIn::feed(self, bytes)
    }

    fn finish(self) -> Result<(), FilesError> {
        RangeIn::finish(self)
    }

    /// What came counts.
    fn discard(self) {}
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, ErrorBody> {
    let done = crate::lane::blocking(work).await;
    done.map_err(|_| internal())?.map_err(|error| error.refusal())
}

/// A text that is no path names nothing.
pub(super) fn parse(path: &str) -> Result<PfsPath, ErrorBody> {
    let path = path.parse::<WirePath>();
    path.map(|path| path.0)
        .map_err(|problem| ErrorBody::new(ErrorName::NotFound, format!("there is no such path: {problem}")))
}

fn upload_id(id: &str) -> Result<StagedId, ErrorBody> {
    id.parse()
        .map_err(|error| ErrorBody::new(ErrorName::NotFound, format!("{error}")))
}
