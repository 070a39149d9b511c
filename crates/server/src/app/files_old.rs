//! Use cases of the original file protocol, on top of ours.

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{FileView, ListEntry, MkdirRequest, RemoveRequest, below};
use paddlecloud_files::locks::Key;
use paddlecloud_files::{ByteRange, Content, ListQuery, Opened, RangeSum, RequestedBytes};
use paddlecloud_pfs::PfsPath;

use super::files::{blocking, parse};
use super::{App, AppError};

impl App {
    /// The matching files, and the matching folders with their contents.
    pub async fn old_list(
        &self,
        caller: &Caller,
        pattern: &str,
        recursive: bool,
    ) -> Result<Vec<FileView>, AppError> {
        let found = self.file_glob(caller, pattern.to_owned()).await?;
        if found.is_empty() {
            return Err(AppError::NothingMatches);
        }
        let mut entries = Vec::new();
        for view in found {
            if !view.meta.is_folder() {
                entries.push(view);
                continue;
            }
            let query = ListQuery {
                recursive,
                ..ListQuery::default()
            };
            let folder = view.path.0;
            let lister = self.file_list(caller, &folder.to_string(), query).await?;
            for ListEntry { path, meta } in blocking(move || lister.collect()).await? {
                let path = below(&folder, &path).map_err(|_| AppError::Internal)?.into();
                entries.push(FileView { path, meta });
            }
        }
        Ok(entries)
    }

    pub async fn old_mkdir(&self, caller: &Caller, path: &str) -> Result<(), AppError> {
        let request = MkdirRequest {
            path: parse(path)?.into(),
            parents: true,
        };
        self.file_mkdir(caller, request).await.map(drop)
    }

    /// Removes the matching files and folders; returns what was removed.
    pub async fn old_remove(
        &self,
        caller: &Caller,
        pattern: &str,
        recursive: bool,
    ) -> Result<Vec<PfsPath>, AppError> {
        let found = self.file_glob(caller, pattern.to_owned()).await?;
        let request = RemoveRequest {
            paths: found.into_iter().map(|view| view.path).collect(),
            recursive,
            dry_run: false,
            empty_folders: false,
        };
        let removed = self.file_remove(caller, request).await?;
        let mut gone = Vec::new();
        for one in removed {
            one.removed?;
            gone.push(one.path);
        }
        Ok(gone)
    }

    pub async fn old_touch(&self, caller: &Caller, path: &str, size: u64) -> Result<(), AppError> {
        let path = parse(path)?;
        self.with_room(caller, move |files, caller| files.old_touch(caller, &path, size))
            .await
    }

    /// The checksum of a range.
    pub async fn old_range_sum(
        &self,
        caller: &Caller,
        path: &str,
        offset: u64,
        len: u64,
    ) -> Result<RangeSum, AppError> {
        let path = parse(path)?;
        self.with_store(caller, move |files, caller| {
            files.old_range_sum(caller, &path, offset, len)
        })
        .await
    }

    pub async fn old_read(
        &self,
        caller: &Caller,
        path: &str,
        offset: u64,
        len: u64,
    ) -> Result<Content, AppError> {
        let last = offset.saturating_add(len).saturating_sub(1);
        let requested = RequestedBytes {
            range: ByteRange::From(offset, Some(last)),
            ..RequestedBytes::default()
        };
        match self.file_content(caller, path, requested).await? {
            Opened::Content(content) => Ok(*content),
            Opened::Outside { .. } => Err(AppError::OutsideFile(path.to_owned())),
        }
    }

    /// Stores a range. Ranges of one file are stored one after the other, and the last one publishes it.
    pub async fn old_post(
        &self,
        caller: &Caller,
        path: &str,
        offset: u64,
        range: Vec<u8>,
    ) -> Result<(), AppError> {
        let path = parse(path)?;
        let announced = path.clone();
        let id = self.with_store(caller, move |files, caller| files.old_upload(caller, &announced));
        let id = id.await?;
        let alone = self.locks.lock(Key::Upload(id.clone())).await;
        self.ending_upload(caller, move |files, caller| {
            let _alone = alone;
            files.old_post(caller, (&path, &id), offset, &range)
        })
        .await
    }
}
