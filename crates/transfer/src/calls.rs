//! Single calls: one request, one reply.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use paddlecloud_api::Envelope;
use paddlecloud_api::client::{AS_LONG_AS_ANY, Call, ClientError, OnAbsence, Replay, TREES, Target};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{
    CopyReply, FILES, FileMeta, FileView, MkdirReply, MkdirRequest, MoveRequest, RemoveRequest, Removed,
    ShareRequest, ShareView, StorageView, UnfinishedUpload, UsageView, WirePath,
};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Existing, Made, PfsPath};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FileClient;
use super::listing::Listing;

/// The most paths in one removal request; more need further requests.
const REMOVED_AT_ONCE: usize = 1000;

/// How a folder is listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions {
    /// List everything below, not only direct entries.
    pub recursive: bool,
    /// With digests; the server computes those it does not know.
    pub digests: bool,
}

/// How paths are removed.
#[derive(Debug, Clone, Copy, Default)]
pub struct RemoveOptions {
    /// Remove folders with everything below them.
    pub recursive: bool,
    /// Only report what would be removed.
    pub dry_run: bool,
}

impl<'a> FileClient<'a> {
    /// The metadata of a path; links are followed if they stay inside.
    pub async fn stat(&self, path: &PfsPath) -> Result<FileMeta, ClientError> {
        self.get(Self::at("stat", path)).await
    }

    /// The metadata of a path itself: a link is not followed.
    pub async fn stat_link(&self, path: &PfsPath) -> Result<FileMeta, ClientError> {
        self.get(Self::at("stat", path).pair("link", true)).await
    }

    /// Like [`FileClient::stat`], with the digest of a file's content.
    pub async fn stat_digest(&self, path: &PfsPath) -> Result<FileMeta, ClientError> {
        let call = Call::get(Self::at("stat", path).pair("digest", true));
        self.message(&call.lasting(TREES)).await
    }

    /// Like [`FileClient::stat`], with the digest of a file's content if the server knows it without reading.
    pub(super) async fn stat_known(&self, path: &PfsPath) -> Result<FileMeta, ClientError> {
        self.get(Self::at("stat", path).pair("known", true)).await
    }

    /// The entries of a folder, as a stream: sorted, each folder before its content. An unreachable server is retried.
    pub async fn list(&self, path: &PfsPath, options: ListOptions) -> Result<Listing<'a>, ClientError> {
        Listing::open(*self, path.clone(), options).await
    }

    /// Everything that matches a pattern such as `/pfs/dc/home/me/*.txt`, in order.
    pub async fn glob(&self, pattern: &str) -> Result<Vec<FileView>, ClientError> {
        self.get(Target::new(FILES).word("glob").pair("pattern", pattern))
            .await
    }

    /// Creates a folder; with `parents`, also missing parents, and an existing folder is not an error. A folder that a request
    /// with a lost reply created counts as existing.
    pub async fn mkdir(&self, path: &PfsPath, parents: bool) -> Result<Made, ClientError> {
        let body = MkdirRequest {
            path: path.into(),
            parents,
        };
        // Without `parents`, a repeated request would fail because of its own folder.
        let replay = if parents { Replay::Safe } else { Replay::Never };
        let reply = self.bytes(&post("mkdir", &body, replay)).await?;
        let reply: MkdirReply = self.client.read(&reply)?;
        Ok(match reply.created {
            true => Made::New,
            false => Made::Existed,
        })
    }

    /// Removes files, links and folders. A failure does not stop the others.
    ///
    /// A patient client retries when a reply was lost; paths that are missing then count as removed.
    pub async fn remove(
        &self,
        paths: &[PfsPath],
        options: RemoveOptions,
    ) -> Result<Vec<Removed>, ClientError> {
        let mut removed = Vec::with_capacity(paths.len());
        for some in paths.chunks(REMOVED_AT_ONCE) {
            let body = RemoveRequest {
                paths: some.iter().map(WirePath::from).collect(),
                recursive: options.recursive,
                dry_run: options.dry_run,
                empty_folders: false,
            };
            let call = post("remove", &body, self.replay(body.dry_run));
            let mut some: Vec<Removed> = self.message(&call).await?;
            if call.was_lost() {
                some.iter_mut().for_each(forgive_absence);
            }
            removed.extend(some);
        }
        Ok(removed)
    }

    /// A request that is not harmless is only repeated in long transfers: a removal may hit a file that another client created
    /// between the two, and a copy with `Keep` may find its own first result.
    fn replay(&self, is_harmless: bool) -> Replay {
        match self.absence {
            OnAbsence::Fail if !is_harmless => Replay::Never,
            OnAbsence::Fail | OnAbsence::Wait => Replay::Safe,
        }
    }

    /// Renames a file or folder.
    pub async fn rename(&self, from: &PfsPath, to: &PfsPath, existing: Existing) -> Result<(), ClientError> {
        let _: String = self
            .post("rename", &move_request(from, to, existing), Replay::Never)
            .await?;
        Ok(())
    }

    /// Copies a file or a whole folder on the server.
    pub async fn copy(
        &self,
        from: &PfsPath,
        to: &PfsPath,
        existing: Existing,
    ) -> Result<CopyReply, ClientError> {
        let replay = self.replay(existing == Existing::Replace);
        self.post("copy", &move_request(from, to, existing), replay).await
    }

    /// Copies a link as a link.
    pub async fn copy_link(
        &self,
        from: &PfsPath,
        to: &PfsPath,
        existing: Existing,
    ) -> Result<CopyReply, ClientError> {
        let request = MoveRequest {
            keep_link: true,
            ..move_request(from, to, existing)
        };
        let replay = self.replay(existing == Existing::Replace);
        self.post("copy", &request, replay).await
    }

    /// Bytes and files below a path.
    pub async fn du(&self, path: &PfsPath) -> Result<UsageView, ClientError> {
        let call = Call::get(Self::at("usage", path));
        self.message(&call.lasting(TREES)).await
    }

    /// The caller's limits and usage, which the server measures.
    pub async fn quota(&self) -> Result<StorageView, ClientError> {
        let call = Call::get(Target::new(FILES).word("quota"));
        self.message(&call.lasting(TREES)).await
    }

    /// The caller's unfinished uploads, the one that was idle longest first.
    pub async fn unfinished(&self) -> Result<Vec<UnfinishedUpload>, ClientError> {
        let call = Call::get(Target::new(FILES).word("uploads"));
        self.message(&call.lasting(AS_LONG_AS_ANY)).await
    }

    /// Discards an unfinished upload with all received bytes.
    pub async fn give_up(&self, upload: &StagedId) -> Result<(), ClientError> {
        let target = Target::new(FILES).word("uploads").word(&upload.to_string());
        let call = Call::new(Method::DELETE, target.into_string());
        self.bytes(&call.lasting(AS_LONG_AS_ANY)).await.map(drop)
    }

    /// Publishes a link by which anybody can read one of the caller's files, for a limited time.
    pub async fn publish(&self, path: &PfsPath, lifetime: Duration) -> Result<ShareView, ClientError> {
        let body = ShareRequest {
            path: path.into(),
            seconds: lifetime.as_secs(),
        };
        let mut share: ShareView = self.post("shares", &body, Replay::Never).await?;
        let base = self.client.endpoint().to_string();
        share.link = share.link.map(|link| format!("{base}{link}"));
        Ok(share)
    }

    /// The caller's valid links.
    pub async fn published(&self) -> Result<Vec<ShareView>, ClientError> {
        self.get(Target::new(FILES).word("shares")).await
    }

    /// Revokes a link.
    pub async fn unpublish(&self, id: &str) -> Result<(), ClientError> {
        let target = Target::new(FILES).word("shares").word(id).into_string();
        self.bytes(&Call::new(Method::DELETE, target)).await.map(drop)
    }

    pub(super) fn at(word: &str, path: &PfsPath) -> Target {
        Target::new(FILES).word(word).pair("path", path)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, target: Target) -> Result<T, ClientError> {
        self.message(&Call::get(target)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        word: &str,
        body: &impl Serialize,
        replay: Replay,
    ) -> Result<T, ClientError> {
        self.message(&post(word, body, replay)).await
    }

    pub(super) async fn message<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        self.parse(&self.bytes(call).await?)
    }

    /// The whole reply to a call.
    pub(super) async fn bytes(&self, call: &Call) -> Result<Bytes, ClientError> {
        self.client.tried(call, self.absence).await
    }

    /// Parses the data of a reply.
    pub(super) fn parse<T: DeserializeOwned>(&self, bytes: &Bytes) -> Result<T, ClientError> {
        let envelope: Envelope<T> = self.client.read(bytes)?;
        Ok(envelope.msg)
    }
}

/// A path that an earlier request removed is missing for this one.
fn forgive_absence(removed: &mut Removed) {
    let name = removed.error.as_ref().map(|body| body.error);
    if name == Some(ErrorName::NotFound) {
        removed.error = None;
    }
}

fn post(word: &str, body: &impl Serialize, replay: Replay) -> Call {
    let call = Call::post(Target::new(FILES).word(word), body);
    call.replay(replay).lasting(TREES)
}

fn move_request(from: &PfsPath, to: &PfsPath, existing: Existing) -> MoveRequest {
    MoveRequest {
        from: from.into(),
        to: to.into(),
        no_overwrite: existing == Existing::Keep,
        keep_link: false,
    }
}
