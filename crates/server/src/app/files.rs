//! Use cases of the file service. Blocking work runs on blocking threads, one step at a time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{
    CommitRequest, CopyReply, FileMeta, FileView, MkdirRequest, MoveRequest, PackRequest, RemoveRequest,
    ReuseRequest, ShareRequest, ShareView, StatsRequest, StorageView, UnfinishedUpload, UploadReply,
    UploadRequest, UsageView, WirePath,
};
use paddlecloud_core::scheduler::StorageExcess;
use paddlecloud_files::locks::Key;
use paddlecloud_files::queue::Class;
use paddlecloud_files::{
    ChunkIn, DigestMode, Files, FilesError, Fsck, ListQuery, Lister, MEASURED_AGAIN, Opened, PackIn, PackOut,
    RangeIn, RemovedPath, RequestedBytes, StatOf,
};
use paddlecloud_pfs::content::ChunkName;
use paddlecloud_pfs::pack::PackTotals;
use paddlecloud_pfs::share::{Share, ShareError};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Made, PfsPath, Space};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinError;

use super::storage_limits::excess_of;
use super::{App, AppError, Taking};

impl App {
    /// Runs short work on users' files on a blocking thread.
    pub(super) async fn with_store<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&Files, &Caller) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, AppError> {
        let (files, caller) = (self.files.clone(), caller.clone());
        blocking(move || work(&files, &caller)).await
    }

    /// The same for work that may block its thread for a while: with a class, it waits for its turn, so short work has threads.
    async fn in_turn<T: Send + 'static>(
        &self,
        class: impl Into<Option<Class>>,
        caller: &Caller,
        work: impl FnOnce(&Files, &Caller) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, AppError> {
        let Some(class) = class.into() else {
            return self.with_store(caller, work).await;
        };
        let (files, caller, user) = (self.files.clone(), caller.clone(), &caller.user);
        joined(
            self.queue
                .blocking(class, user, move || work(&files, &caller))
                .await,
        )
    }

    /// Runs short work that the quota may refuse before it changes anything. A refusal is never based on an old measurement: the
    /// home is measured again first, and the work retried.
    pub(super) async fn with_room<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Fn(&Files, &Caller) -> Result<T, FilesError> + Clone + Send + 'static,
    ) -> Result<T, AppError> {
        for _ in 0..MEASURED_AGAIN {
            let work = work.clone();
            let tried = self.with_store(caller, move |files, caller| match work(files, caller) {
                Err(FilesError::Unmeasured(space)) => Ok(Err(space)),
                done => done.map(Ok),
            });
            match tried.await? {
                Ok(done) => return Ok(done),
                Err(space) => self.measure(caller, space).await?,
            }
        }
        self.with_store(caller, work).await
    }

    /// Measures a space that has a limit, unless that was just done. Concurrent callers share one measurement.
    async fn measure(&self, caller: &Caller, space: Space) -> Result<(), AppError> {
        let alone = self.locks.lock(Key::Space(space.clone())).await;
        if self.files.was_just_measured(&space) {
            return Ok(());
        }
        self.in_turn(Class::End, caller, move |files, _| {
            let _alone = alone;
            files.measure(&space)
        })
        .await
    }

    pub async fn file_stat(
        &self,
        caller: &Caller,
        path: &str,
        of: StatOf,
        digest: DigestMode,
    ) -> Result<FileMeta, AppError> {
        let path = parse(path)?;
        let class = (digest == DigestMode::Always).then_some(Class::Long);
        self.in_turn(class, caller, move |files, caller| {
            files.stat(caller, &path, of, digest)
        })
        .await
    }

    pub async fn file_stats(
        &self,
        caller: &Caller,
        request: StatsRequest,
    ) -> Result<Vec<Option<FileMeta>>, AppError> {
        let class = request.digest.then_some(Class::Long);
        self.in_turn(class, caller, move |files, caller| files.stats(caller, &request))
            .await
    }

    pub async fn file_list(&self, caller: &Caller, path: &str, query: ListQuery) -> Result<Lister, AppError> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| files.list(caller, &path, query))
            .await
    }

    pub async fn file_glob(&self, caller: &Caller, pattern: String) -> Result<Vec<FileView>, AppError> {
        self.with_store(caller, move |files, caller| files.glob(caller, &pattern))
            .await
    }

    pub async fn file_mkdir(&self, caller: &Caller, request: MkdirRequest) -> Result<Made, AppError> {
        self.with_store(caller, move |files, caller| files.mkdir(caller, &request))
            .await
    }

    pub async fn file_remove(
        &self,
        caller: &Caller,
        request: RemoveRequest,
    ) -> Result<Vec<RemovedPath>, AppError> {
        let live = self.live_runs(caller);
        let class = request.recursive.then_some(Class::Removal);
        self.in_turn(class, caller, move |files, caller| {
            Ok(files.remove(caller, &request, &live))
        })
        .await
    }

    /// The caller's unfinished jobs, whose files must stay. An ended job never resumes.
    fn live_runs(&self, caller: &Caller) -> HashSet<String> {
        let live = self.jobs.active().into_iter();
        live.filter(|job| job.user == caller.user)
            .map(|job| job.id.to_string())
            .collect()
    }

    pub async fn file_rename(&self, caller: &Caller, request: MoveRequest) -> Result<(), AppError> {
        let live = self.live_runs(caller);
        let class = self.files.is_copied(&request).then_some(Class::Long);
        self.in_turn(class, caller, move |files, caller| {
            files.rename(caller, &request, &live)
        })
        .await
    }

    pub async fn file_copy(&self, caller: &Caller, request: MoveRequest) -> Result<CopyReply, AppError> {
        self.in_turn(Class::Long, caller, move |files, caller| {
            files.copy(caller, &request)
        })
        .await
    }

    pub async fn file_usage(&self, caller: &Caller, path: &str) -> Result<UsageView, AppError> {
        let path = parse(path)?;
        self.in_turn(Class::Long, caller, move |files, caller| {
            files.usage(caller, &path)
        })
        .await
    }

    pub async fn file_storage(&self, caller: &Caller) -> Result<StorageView, AppError> {
        self.file_storage_since(caller, Instant::now()).await
    }

    /// The same, but a home measured after `asked` is not measured again.
    pub(super) async fn file_storage_since(
        &self,
        caller: &Caller,
        asked: Instant,
    ) -> Result<StorageView, AppError> {
        let home = Files::home_of(caller)?;
        let alone = self.locks.lock(Key::Space(home)).await;
        self.in_turn(Class::End, caller, move |files, caller| {
            let _alone = alone;
            files.storage(caller, asked)
        })
        .await
    }

    /// By how much the caller's home exceeds its limits now, and the processor time of the measurement.
    pub(super) async fn file_excess(
        &self,
        caller: &Caller,
    ) -> Result<(Option<StorageExcess>, Duration), AppError> {
        let asked = Instant::now();
        let home = Files::home_of(caller)?;
        let alone = self.locks.lock(Key::Space(home)).await;
        self.in_turn(Class::End, caller, move |files, caller| {
            let _alone = alone;
            let before = thread_time();
            let excess = files.excess(caller, asked)?.map(|error| excess_of(files, error));
            Ok((excess, thread_time().saturating_sub(before)))
        })
        .await
    }

    /// Refuses a caller whose home exceeds its limit.
    pub async fn file_check_room(&self, caller: &Caller) -> Result<(), AppError> {
        // The check itself only reads memory.
        match self.files.check_room(caller) {
            Err(FilesError::Unmeasured(_)) => {
                self.with_room(caller, |files, caller| files.check_room(caller))
                    .await
            }
            checked => Ok(checked?),
        }
    }

    pub async fn file_content(
        &self,
        caller: &Caller,
        path: &str,
        requested: RequestedBytes,
    ) -> Result<Opened, AppError> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            files.content(caller, &path, &requested)
        })
        .await
    }

    pub async fn file_signature(&self, caller: &Caller, path: &str) -> Result<Vec<u8>, AppError> {
        let path = parse(path)?;
        self.in_turn(Class::End, caller, move |files, caller| {
            files.signature(caller, &path)
        })
        .await
    }

    pub async fn pack_in(
        &self,
        caller: &Caller,
        path: &str,
        announced: PackTotals,
        no_overwrite: bool,
    ) -> Result<Taking<PackIn>, AppError> {
        let path = parse(path)?;
        let pack = self.with_room(caller, move |files, caller| {
            files.pack_in(caller, &path, announced, no_overwrite)
        });
        Ok(self.taking(caller, pack.await?))
    }

    pub async fn pack_out(&self, caller: &Caller, request: PackRequest) -> Result<PackOut, AppError> {
        self.with_store(caller, move |files, caller| files.pack_out(caller, request))
            .await
    }

    pub async fn upload_begin(
        &self,
        caller: &Caller,
        request: UploadRequest,
    ) -> Result<UploadReply, AppError> {
        self.with_room(caller, move |files, caller| files.upload_begin(caller, &request))
            .await
    }

    pub async fn upload_list(&self, caller: &Caller) -> Result<Vec<UnfinishedUpload>, AppError> {
        // It may take a while to check files that a job has placed beside the uploads.
        let list = self.in_turn(Class::End, caller, |files, caller| files.upload_list(caller));
        let mut list = list.await?;
        list.extend(self.packages_unfinished(caller).await?);
        list.sort_by_key(|upload| upload.touched);
        Ok(list)
    }

    pub async fn upload_show(&self, caller: &Caller, id: &str) -> Result<UploadReply, AppError> {
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
    ) -> Result<Taking<ChunkIn>, AppError> {
        let id = upload_id(id)?;
        let chunk = self.with_store(caller, move |files, caller| {
            files.upload_chunk(caller, &id, index, name)
        });
        Ok(self.taking(caller, chunk.await?))
    }

    pub async fn upload_range(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
        len: u64,
    ) -> Result<Taking<RangeIn>, AppError> {
        let id = upload_id(id)?;
        let range = self.with_store(caller, move |files, caller| {
            files.upload_range(caller, &id, offset, len)
        });
        Ok(self.taking(caller, range.await?))
    }

    pub async fn upload_reuse(
        &self,
        caller: &Caller,
        id: &str,
        request: ReuseRequest,
    ) -> Result<UploadReply, AppError> {
        let id = upload_id(id)?;
        self.in_turn(Class::End, caller, move |files, caller| {
            files.upload_reuse(caller, &id, &request)
        })
        .await
    }

    pub async fn upload_commit(
        &self,
        caller: &Caller,
        id: &str,
        request: CommitRequest,
    ) -> Result<FileMeta, AppError> {
        let id = upload_id(id)?;
        // A client that repeats a slow request waits without occupying a thread.
        let alone = self.locks.lock(Key::Upload(id.clone())).await;
        self.ending_upload(caller, move |files, caller| {
            let _alone = alone;
            files.upload_commit(caller, &id, &request)
        })
        .await
    }

    /// Runs what may publish an upload. With a remote store, the whole file is sent now.
    pub(super) async fn ending_upload<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&Files, &Caller) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, AppError> {
        let class = match self.files.is_remote() {
            true => Class::Long,
            false => Class::End,
        };
        self.in_turn(class, caller, work).await
    }

    pub async fn upload_discard(&self, caller: &Caller, id: &str) -> Result<(), AppError> {
        let id = upload_id(id)?;
        if self.package_give_up(caller, &id).await? {
            return Ok(());
        }
        let alone = self.locks.lock(Key::Upload(id.clone())).await;
        self.with_store(caller, move |files, caller| {
            let _alone = alone;
            files.upload_discard(caller, &id)
        })
        .await
    }

    pub async fn share_create(&self, caller: &Caller, request: ShareRequest) -> Result<ShareView, AppError> {
        if self.config.embedded {
            return Err(AppError::NoAddress);
        }
        self.with_store(caller, move |files, caller| files.share_create(caller, &request))
            .await
    }

    pub async fn share_list(&self, caller: &Caller) -> Result<Vec<ShareView>, AppError> {
        self.with_store(caller, |files, caller| files.share_list(caller))
            .await
    }

    pub async fn share_revoke(&self, caller: &Caller, id: String) -> Result<(), AppError> {
        self.with_store(caller, move |files, caller| files.share_revoke(caller, &id))
            .await
    }

    /// The file of a link. No login is needed: anyone with the link may read the file, but does not learn its path.
    pub async fn share_read(
        &self,
        token: String,
        requested: RequestedBytes,
    ) -> Result<(Opened, String), AppError> {
        let files = self.files.clone();
        blocking(move || {
            let share = files.share_open(&token)?;
            let name = share.place.path.name().map(String::from_utf8_lossy);
            let name = name.unwrap_or_default().into_owned();
            let opened = files.shared(&share, &requested);
            Ok((opened.map_err(|error| without_path(&share, &name, error))?, name))
        })
        .await
    }

    pub async fn file_fsck(&self, caller: &Caller) -> Result<Fsck, AppError> {
        self.with_store(caller, |files, caller| files.fsck(caller)).await
    }

    /// Removes abandoned uploads and leftovers of a killed server.
    pub async fn files_sweep(&self) {
        let accounts = self.storage.accounts().all();
        let homes = accounts
            .iter()
            .filter_map(|account| account.name.as_str().parse().ok());
        let spaces: Vec<Space> = homes.map(Space::Home).chain([Space::Public]).collect();
        let files = self.files.clone();
        let swept = tokio::task::spawn_blocking(move || files.sweep(&spaces)).await;
        if let Ok(expired @ 1..) = swept {
            tracing::info!(expired, "expired uploads were dropped");
        }
    }
}

/// The processor time that this thread has used.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// Why a link does not work, without the path, which only the server's own log contains.
fn without_path(share: &Share, name: &str, error: FilesError) -> FilesError {
    tracing::info!(link = %share.id, error = paddlecloud_core::error_chain::chain_of(&error), "a published file cannot be read");
    match error {
        // The file's name is sent with its bytes anyway.
        FilesError::DamagedOnDisk(_) => FilesError::DamagedShare(name.to_owned()),
        _ => ShareError::Empty.into(),
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, AppError> {
    joined(paddlecloud_files::lane::blocking(work).await)
}

/// Converts the result of work on another thread for the caller.
pub(super) fn joined<T>(done: Result<Result<T, FilesError>, JoinError>) -> Result<T, AppError> {
    Ok(done.map_err(|_| AppError::Internal)??)
}

/// Parses a path. Text that is not a path names nothing.
pub(super) fn parse(path: &str) -> Result<PfsPath, AppError> {
    let path = path.parse::<WirePath>();
    path.map(|path| path.0).map_err(AppError::NoSuchPath)
}

fn upload_id(id: &str) -> Result<StagedId, AppError> {
    Ok(id.parse()?)
}
