//! Single calls: one request, one reply.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use paddlecloud_api::Envelope;
use paddlecloud_api::client::{AS_LONG_AS_ANY, Absence, Call, ClientError, Replay, TREES, Target};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{
    CopyReply, FILES, FileMeta, FileView, MkdirRequest, MoveRequest, RemoveRequest, Removed, ShareRequest,
    ShareView, StorageView, UnfinishedUpload, UsageView, WirePath,
};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Existing, PfsPath};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FileClient;
use super::listing::Listing;

/// How many paths one removal names; more go in further requests.
const REMOVED_AT_ONCE: usize = 1000;

/// How a folder is listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions {
    /// Everything below, not only what lies directly in it.
    pub recursive: bool,
    /// With digests; the server reads what it does not know.
    pub digests: bool,
}

/// How things are removed.
#[derive(Debug, Clone, Copy, Default)]
pub struct RemoveOptions {
    /// Folders go with all they hold.
    pub recursive: bool,
    /// Only find out what would go.
    pub dry_run: bool,
}

impl<'a> FileClient<'a> {
    /// What is at a path; links are followed as far as they stay inside.
    pub async fn stat(&self, path: &PfsPath) -> Result<FileMeta, ClientError> {
        self.get(Self::at("stat", path)).await
    }

    /// What a path itself is: a link is told as a link.
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

    /// What is in a folder, as a stream: in order, folders before what they hold. A server that goes away is waited for.
    pub async fn list(&self, path: &PfsPath, options: ListOptions) -> Result<Listing<'a>, ClientError> {
        Listing::open(*self, path.clone(), options).await
    }

    /// Everything that matches a pattern such as `/pfs/dc/home/me/*.txt`, in order.
    pub async fn glob(&self, pattern: &str) -> Result<Vec<FileView>, ClientError> {
        self.get(Target::new(FILES).word("glob").pair("pattern", pattern))
            .await
    }

    /// Makes a folder; with `parents` also those on the way, and one that is there is fine.
    pub async fn mkdir(&self, path: &PfsPath, parents: bool) -> Result<(), ClientError> {
        let body = MkdirRequest {
            path: path.into(),
            parents,
        };
        // Without `parents` a repeated request would find its own folder in the way.
        let replay = if parents { Replay::Safe } else { Replay::Never };
        let _: String = self.post("mkdir", &body, replay).await?;
        Ok(())
    }

    /// Removes files, links and folders. One that cannot go does not stop the others.
    ///
    /// Patient work asks again when a reply was lost, and what is gone then counts as removed.
    pub async fn remove(
        &self,
        paths: &[PfsPath],
        options: RemoveOptions,
    ) -> Result<Vec<Removed>, ClientError> {
        self.remove_in_parts(paths, |paths| RemoveRequest {
            paths,
            recursive: options.recursive,
            dry_run: options.dry_run,
            empty_folders: false,
        })
        .await
    }

    async fn remove_in_parts(
        &self,
        paths: &[PfsPath],
        request: impl Fn(Vec<WirePath>) -> RemoveRequest,
    ) -> Result<Vec<Removed>, ClientError> {
        let mut removed = Vec::with_capacity(paths.len());
        for some in paths.chunks(REMOVED_AT_ONCE) {
            let body = request(some.iter().map(WirePath::from).collect());
            let call = post("remove", &body, self.remove_replay(body.dry_run));
            let mut some: Vec<Removed> = self.message(&call).await?;
            if call.was_lost() {
                some.iter_mut().for_each(forgive_absence);
            }
            removed.extend(some);
        }
        Ok(removed)
    }

    /// Somebody may have made another file of the name between two requests: a risk worth taking only where much else is
    /// to be done.
    fn remove_replay(&self, dry_run: bool) -> Replay {
        match (dry_run, self.absence) {
            (true, _) | (_, Absence::IsWaitedOut) => Replay::Safe,
            (false, Absence::IsTold) => Replay::Never,
        }
    }

    /// Removes folders that are really empty, whatever a listing said of them; everything else is refused.
    pub async fn remove_empty_folders(&self, paths: &[PfsPath]) -> Result<Vec<Removed>, ClientError> {
        self.remove_in_parts(paths, |paths| RemoveRequest {
            paths,
            recursive: false,
            dry_run: false,
            empty_folders: true,
        })
        .await
    }

    /// Gives a file or folder another place, in one step.
    pub async fn rename(&self, from: &PfsPath, to: &PfsPath, existing: Existing) -> Result<(), ClientError> {
        let _: String = self
            .post("rename", &move_request(from, to, existing), Replay::Never)
            .await?;
        Ok(())
    }

    /// Copies a file or a whole folder inside the storage.
    pub async fn copy(
        &self,
        from: &PfsPath,
        to: &PfsPath,
        existing: Existing,
    ) -> Result<CopyReply, ClientError> {
        self.post(
            "copy",
            &move_request(from, to, existing),
            self.copy_replay(existing),
        )
        .await
    }

    /// Copies one link as a link.
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
        self.post("copy", &request, self.copy_replay(existing)).await
    }

    /// A repeated copy that must keep what is there may find what the first one made, and says that it was there: worth
    /// it where much else is to be done.
    fn copy_replay(&self, existing: Existing) -> Replay {
        match (existing, self.absence) {
            (Existing::Replace, _) | (_, Absence::IsWaitedOut) => Replay::Safe,
            (Existing::Keep, Absence::IsTold) => Replay::Never,
        }
    }

    /// Bytes and files below a path.
    pub async fn du(&self, path: &PfsPath) -> Result<UsageView, ClientError> {
        let call = Call::get(Self::at("usage", path));
        self.message(&call.lasting(TREES)).await
    }

    /// What the caller may store and stores: the server measures all of it.
    pub async fn quota(&self) -> Result<StorageView, ClientError> {
        let call = Call::get(Target::new(FILES).word("quota"));
        self.message(&call.lasting(TREES)).await
    }

    /// The caller's uploads that were begun and not ended, the one that was longest left alone first.
    pub async fn unfinished(&self) -> Result<Vec<UnfinishedUpload>, ClientError> {
        let call = Call::get(Target::new(FILES).word("uploads"));
        self.message(&call.lasting(AS_LONG_AS_ANY)).await
    }

    /// Gives an unfinished upload up, with all that arrived.
    pub async fn give_up(&self, upload: &StagedId) -> Result<(), ClientError> {
        let target = Target::new(FILES).word("uploads").word(&upload.to_string());
        let call = Call::new(Method::DELETE, target.into_string());
        self.bytes(&call.lasting(AS_LONG_AS_ANY)).await.map(drop)
    }

    /// Makes a link that anybody can read one of the caller's files by, for a while.
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

    /// The links that were made and still work.
    pub async fn published(&self) -> Result<Vec<ShareView>, ClientError> {
        self.get(Target::new(FILES).word("shares")).await
    }

    /// Takes a link back.
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

    /// The data of a reply that was read elsewhere.
    pub(super) fn parse<T: DeserializeOwned>(&self, bytes: &Bytes) -> Result<T, ClientError> {
        let envelope: Envelope<T> = self.client.read(bytes)?;
        Ok(envelope.msg)
    }
}

/// What an earlier request has removed is not there for this one.
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
