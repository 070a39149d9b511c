//! Downloads one large file in ranges, several at a time; received bytes are kept when something breaks.

use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use hyper::header::{HeaderValue, IF_MATCH, RANGE};
use paddlecloud_api::client::{Call, Client, ClientError};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::FileMeta;
use paddlecloud_pfs::content::{Assembly, AssemblyError, AssemblyPlan, CHUNK};
use paddlecloud_pfs::{Digest, PfsPath, Root, RootError};

use super::receiver::Receiver;
use super::source;
use crate::item::Item;
use crate::mover::{Arrivals, Mover, attempts, blocking};
use crate::patience::Patience;
use crate::range_reader::{OTHER_BYTES, begins_at, range_value};
use crate::{FileClient, Outcome, TransferError};

/// Chunks per request.
const CHUNKS_AT_ONCE: u64 = 4;

/// A download of one state of a file.
struct Fetching {
    remote: PfsPath,
    version: HeaderValue,
    assembly: Assembly,
    /// The digest of the whole file, if the server knows it without reading.
    digest: Option<Digest>,
}

impl Fetching {
    /// Requests the bytes that a receiver lacks and feeds them to it. Blocks on the disk.
    async fn receive(
        &self,
        client: &Client,
        arrivals: &Arrivals,
        receiver: &mut Receiver,
    ) -> Result<(), TransferError> {
        let mut call = Call::get(FileClient::at("content", &self.remote));
        call.headers.push((IF_MATCH, self.version.clone()));
        call.headers.push((RANGE, range_value(&receiver.rest())));
        let mut reply = client.open(&call).await?;
        if !begins_at(&reply, receiver.rest().start) {
            return Err(client.broken(OTHER_BYTES).into());
        }
        while let Some(piece) = arrivals.piece(&mut reply, client).await? {
            receiver.feed(&piece)?;
        }
        match receiver.rest().is_empty() {
            true => Ok(()),
            false => Err(client.broken("sent a truncated file").into()),
        }
    }

    /// Fails if the file has another version now.
    fn must_be(&self, meta: &FileMeta) -> Result<(), TransferError> {
        let version = meta.version.as_ref().map(|version| format!("\"{version}\""));
        match version.is_some_and(|version| version.as_bytes() == self.version.as_bytes()) {
            true => Ok(()),
            false => Err(TransferError::ChangedOnServer),
        }
    }
}

impl Mover<'_> {
    /// Downloads one file and reports the outcome.
    pub(crate) async fn fetch_chunked(&self, item: Item) {
        if self.tally.is_over() {
            return self.give_up([&item], source);
        }
        match attempts(|| self.fetch_once(&item), should_restart).await {
            Ok(()) => self
                .tally
                .finished(&source(&item), Outcome::Transferred, item.size()),
            Err(TransferError::Assembly(AssemblyError::Storage(RootError::Exists(_))))
                if self.options.no_overwrite =>
            {
                self.tally.finished(&source(&item), Outcome::Kept, item.size());
            }
            Err(error) => self.tally.failed(source(&item), error),
        }
    }

    async fn fetch_once(&self, item: &Item) -> Result<(), TransferError> {
        let remote = item.remote_path()?;
        let permit = self.permit().await;
        let meta = self.files.stat_known(&remote).await?;
        drop(permit);
        let version = meta.version.as_ref().filter(|_| meta.is_file());
        let version = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
        let fetching = Arc::new(Fetching {
            version: version.ok_or(TransferError::NotAFile)?,
            assembly: self.assembly(item, &meta).await?,
            remote,
            digest: meta.digest,
        });
        let missing = missing_in(&fetching.assembly, 0..meta.size);
        let fetched = self.fetch_into(&fetching).await;
        if fetched.as_ref().is_err_and(should_restart) {
            self.tally
                .again(missing.saturating_sub(missing_in(&fetching.assembly, 0..meta.size)));
        }
        if fetched.as_ref().is_err_and(TransferError::spoils_what_arrived) {
            let assembly = fetching.assembly.clone();
            // Report the original error; a staged file that cannot be removed expires.
            let _ = blocking(move || assembly.discard()).await;
        }
        fetched
    }

    async fn fetch_into(&self, fetching: &Arc<Fetching>) -> Result<(), TransferError> {
        let missing = missing_in(&fetching.assembly, 0..u64::MAX);
        let is_resumed = missing < fetching.assembly.plan().size;
        self.fetch_missing(fetching).await?;
        let mut digest = fetching.digest;
        if digest.is_none() {
            // Only its version shows whether a job wrote to the file meanwhile, and only its digest whether it did so since
            // an earlier run.
            let _permit = self.permit().await;
            let meta = match is_resumed {
                true => self.files.stat_digest(&fetching.remote).await.map_err(refused)?,
                false => self.files.stat(&fetching.remote).await?,
            };
            fetching.must_be(&meta)?;
            digest = meta.digest.filter(|_| is_resumed);
        }
        let (assembly, existing) = (fetching.assembly.clone(), self.options.existing());
        match blocking(move || assembly.commit(digest, existing)).await {
            Ok(_) => Ok(()),
            Err(error @ AssemblyError::WrongDigest { .. }) => {
                self.tally.again(missing);
                Err(self.why_wrong(fetching, error).await)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Why a file arrived with another digest: it was modified meanwhile, the server's disk is damaged, or the network is.
    async fn why_wrong(&self, fetching: &Fetching, error: AssemblyError) -> TransferError {
        let _permit = self.permit().await;
        match self.files.stat_digest(&fetching.remote).await {
            Err(refusal) if refusal.refusal() == Some(ErrorName::Damaged) => TransferError::Damaged,
            Ok(meta) => fetching.must_be(&meta).err().unwrap_or(error.into()),
            Err(_) => error.into(),
        }
    }

    /// The staged file of an earlier attempt, or a new one.
    async fn assembly(&self, item: &Item, meta: &FileMeta) -> Result<Assembly, TransferError> {
        let plan = AssemblyPlan {
            path: item.local.clone(),
            size: meta.size,
            executable: meta.executable,
            mtime: Some(meta.mtime),
        };
        let root = item.tree.local.clone();
        let assembly = blocking(move || resume_or_create(&root, plan)).await?;
        self.tally.reused(meta.size - missing_in(&assembly, 0..meta.size));
        Ok(assembly)
    }

    async fn fetch_missing(&self, fetching: &Arc<Fetching>) -> Result<(), TransferError> {
        futures_util::stream::iter(runs(fetching.assembly.missing()))
            .map(|run| self.fetch_run(fetching, run))
            .buffer_unordered(self.options.transfers.get())
            .try_collect::<()>()
            .await
    }

    async fn fetch_run(&self, fetching: &Arc<Fetching>, mut run: Range<u64>) -> Result<(), TransferError> {
        let _permit = self.permit().await;
        let mut patience = Patience::new(self.files.client);
        while !run.is_empty() {
            let before = run.start;
            let fetched = self.fetch_bytes(fetching, &mut run).await;
            if run.start > before {
                patience.renew();
            }
            match fetched {
                Err(TransferError::Server(error)) => match refused(error) {
                    TransferError::Server(error) => patience.after(error).await?,
                    over => return Err(over),
                },
                fetched => fetched?,
            }
        }
        Ok(())
    }

    /// Fetches a range once, and moves its start to the first byte that did not arrive.
    async fn fetch_bytes(&self, fetching: &Arc<Fetching>, run: &mut Range<u64>) -> Result<(), TransferError> {
        let (fetching, range) = (fetching.clone(), run.clone());
        let mut flow = self.tally.flow(run.end - run.start);
        let received = self.receiving(&mut flow, async move |client, arrivals| {
            let mut receiver = Receiver::new(fetching.assembly.clone(), range);
            let fetched = fetching.receive(client, arrivals, &mut receiver).await;
            let rest = receiver.rest();
            (rest, fetched.and(receiver.keep().map_err(TransferError::from)))
        });
        let (rest, fetched) = received.await?;
        if fetched.is_err() {
            flow.broke_but(rest.start - run.start);
        }
        *run = rest;
        fetched
    }
}

/// Whether another attempt may succeed.
fn should_restart(error: &TransferError) -> bool {
    matches!(
        error,
        TransferError::ChangedOnServer | TransferError::Assembly(AssemblyError::WrongDigest { .. })
    )
}

/// What a refusal says about the file on the server.
fn refused(error: ClientError) -> TransferError {
    match error.refusal() {
        Some(ErrorName::Conflict | ErrorName::Changing) => TransferError::ChangedOnServer,
        // The server refuses to serve a damaged file, however often it is asked.
        Some(ErrorName::Damaged) => TransferError::Damaged,
        _ => error.into(),
    }
}

/// Splits the missing bytes into requests. No chunk is part of two requests, because a chunk has one writer at a time.
fn runs(missing: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for gap in missing {
        let mut start = gap.start;
        if let Some(last) = runs.last_mut().filter(|last| last.end > start / CHUNK * CHUNK) {
            last.end = gap.end.min((start / CHUNK + 1) * CHUNK);
            start = last.end;
        }
        while start < gap.end {
            let end = gap.end.min((start / CHUNK + CHUNKS_AT_ONCE) * CHUNK);
            runs.push(start..end);
            start = end;
        }
    }
    runs
}

/// The staged file of an earlier attempt, or a new one.
fn resume_or_create(root: &Root, plan: AssemblyPlan) -> Result<Assembly, TransferError> {
    if let Some(parent) = plan.path.parent() {
        root.make_dirs(&parent)?;
    }
    Ok(Assembly::resume_or_create(root, plan)?)
}

/// The number of missing bytes in a range.
fn missing_in(assembly: &Assembly, range: Range<u64>) -> u64 {
    let gaps = assembly.missing().into_iter();
    gaps.map(|gap| gap.end.min(range.end).saturating_sub(gap.start.max(range.start)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_download_is_resumed_unless_another_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let plan = AssemblyPlan {
            path: "d/file".parse().unwrap(),
            size: 10,
            executable: false,
            mtime: None,
        };
        let created = resume_or_create(&root, plan.clone()).unwrap();
        let id = created.id().clone();
        created.put_range(2, b"234").unwrap();
        assert_eq!(missing_in(&created, 1..6), 2);
        drop(created);
        let again = resume_or_create(&root, plan.clone()).unwrap();
        assert_eq!((again.id(), missing_in(&again, 0..10)), (&id, 7));
        drop(again);
        let journal = folder.path().join(format!(".pfs-staging/{id}/journal"));
        let theirs = std::fs::File::open(journal).unwrap();
        theirs.lock().unwrap();
        let own = resume_or_create(&root, plan).unwrap();
        assert_ne!(own.id(), &id);
        assert!(folder.path().join("d").is_dir(), "its place is there");
    }
}
