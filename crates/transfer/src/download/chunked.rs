//! Downloads one large file in parts, several at a time; received bytes are kept when something breaks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, RANGE};
use paddlecloud_api::client::{Call, Client, ClientError, Target};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{DIGEST_HEADER, FileMeta};
use paddlecloud_pfs::content::{Assembly, AssemblyError, AssemblyPlan, CHUNK, ChunkName};
use paddlecloud_pfs::{Digest, PfsPath, Root, RootError};

use super::parts::PartReceiver;
use super::source;
use crate::engine::{Arrivals, Engine, blocking};
use crate::item::Item;
use crate::patience::Patience;
use crate::{FileClient, Outcome, TransferError};

/// How often a download starts over because the file changed on the server.
const ATTEMPTS: usize = 3;
/// Chunks per request.
const CHUNKS_AT_ONCE: u64 = 4;
/// After this many failed attempts, plain bytes are requested, each of which is kept.
const TRIES_AS_PARTS: u32 = 2;

/// A download of one state of a file.
pub(super) struct Fetching {
    pub(super) remote: PfsPath,
    version: HeaderValue,
    pub(super) assembly: Assembly,
    names: Mutex<BTreeMap<u64, ChunkName>>,
    /// The digest of the whole file, if the server knows it.
    pub(super) digest: Mutex<Option<Digest>>,
    /// Whether chunks arrive with their names, which the server computes from what it reads. Chunks without names are checked
    /// against the digest that the server recorded earlier.
    pub(super) is_named: bool,
}

impl Fetching {
    /// Requests the parts that a receiver lacks and feeds them to it. Blocks on the disk.
    async fn receive(
        &self,
        client: &Client,
        arrivals: &Arrivals,
        receiver: &mut PartReceiver,
    ) -> Result<(), TransferError> {
        let (first, count) = receiver.missing();
        let call = match self.is_named {
            true => self.call(
                FileClient::at("parts", &self.remote)
                    .pair("first", first)
                    .pair("count", count),
            ),
            false => {
                let end = self.assembly.plan().size.min((first + count) * CHUNK);
                self.bytes(first * CHUNK..end)
            }
        };
        let mut reply = client.open(&call).await?;
        if let Some(digest) = reply.headers().get(HeaderName::from_static(DIGEST_HEADER)) {
            let digest = digest.to_str().ok().and_then(|text| text.parse().ok());
            *self.digest.lock().expect("nobody panics with it") = digest;
        }
        while let Some(piece) = arrivals.piece(&mut reply, client).await? {
            receiver.feed(&piece)?;
        }
        match receiver.is_complete() {
            true => Ok(()),
            false => Err(client.broken("cut a file off").into()),
        }
    }
}

impl Fetching {
    /// A request for this version.
    pub(super) fn call(&self, target: Target) -> Call {
        let mut call = Call::get(target);
        call.headers.push((IF_MATCH, self.version.clone()));
        call
    }

    /// Fails if the file has another version now.
    fn must_be(&self, meta: &FileMeta) -> Result<(), TransferError> {
        let version = meta.version.as_ref().map(|version| format!("\"{version}\""));
        match version.is_some_and(|version| version.as_bytes() == self.version.as_bytes()) {
            true => Ok(()),
            false => Err(TransferError::ChangedThere),
        }
    }

    /// A request for plain bytes.
    fn bytes(&self, range: Range<u64>) -> Call {
        let mut call = self.call(FileClient::at("content", &self.remote));
        let range = HeaderValue::try_from(format!("bytes={}-{}", range.start, range.end - 1));
        call.headers.push((RANGE, range.expect("digits and a dash")));
        call
    }
}

impl Engine<'_> {
    /// Downloads one file and reports the outcome.
    pub(crate) async fn fetch_chunked(&self, item: Item) {
        if self.tally.is_over() {
            return self.give_up([&item], source);
        }
        let mut result = Err(TransferError::ChangedThere);
        for attempt in 0..ATTEMPTS {
            result = self.fetch_once(&item, attempt > 0).await;
            let again = matches!(
                result,
                Err(TransferError::ChangedThere | TransferError::Assembly(AssemblyError::WrongDigest { .. }))
            );
            if !again {
                break;
            }
        }
        match result {
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

    /// One attempt; with `is_careful`, every chunk arrives with its name, so that a damaged one is found at once.
    async fn fetch_once(&self, item: &Item, is_careful: bool) -> Result<(), TransferError> {
        let remote = item.remote_path().map_err(|error| TransferError::Io {
            action: "name the file",
            source: std::io::Error::other(error),
        })?;
        let permit = self.permit().await;
        let meta = self.files.stat_known(&remote).await?;
        drop(permit);
        let version = meta.version.as_ref().filter(|_| meta.is_file());
        let version = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
        let fetching = Arc::new(Fetching {
            version: version.ok_or(TransferError::NotAFile)?,
            assembly: self.assembly(item, &meta).await?,
            remote,
            names: Mutex::default(),
            is_named: is_careful || meta.digest.is_none(),
            digest: Mutex::new(meta.digest),
        });
        let wanted = missing_in(&fetching.assembly, 0..meta.size);
        let fetched = self.fetch_into(&fetching).await;
        if matches!(
            fetched,
            Err(TransferError::ChangedThere | TransferError::Assembly(AssemblyError::WrongDigest { .. }))
        ) {
            self.tally
                .again(wanted.saturating_sub(missing_in(&fetching.assembly, 0..meta.size)));
        }
        if fetched.as_ref().is_err_and(TransferError::spoils_what_arrived) {
            let assembly = fetching.assembly.clone();
            // Report the original error; a staged file that cannot be removed expires.
            let _ = blocking(move || assembly.discard()).await;
        }
        fetched
    }

    async fn fetch_into(&self, fetching: &Arc<Fetching>) -> Result<(), TransferError> {
        self.fetch_missing(fetching).await?;
        self.mend(fetching).await?;
        let digest = self.digest(fetching).await?;
        let (assembly, existing) = (fetching.assembly.clone(), self.existing());
        blocking(move || assembly.commit(digest, existing)).await?;
        Ok(())
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
        let assembly = blocking(move || go_on_or_begin(&root, plan)).await?;
        self.tally.spared(meta.size - missing_in(&assembly, 0..meta.size));
        Ok(assembly)
    }

    async fn fetch_missing(&self, fetching: &Arc<Fetching>) -> Result<(), TransferError> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for gap in fetching.assembly.missing() {
            let (mut first, end) = (gap.start / CHUNK, gap.end.div_ceil(CHUNK));
            first = runs.last().map_or(first, |(last, count)| first.max(last + count));
            while first < end {
                let count = CHUNKS_AT_ONCE.min(end - first);
                runs.push((first, count));
                first += count;
            }
        }
        futures_util::stream::iter(runs)
            .map(|(first, count)| self.fetch_run(fetching, first, count))
            .buffer_unordered(self.options.transfers.get())
            .try_collect::<()>()
            .await
    }

    async fn fetch_run(&self, fetching: &Arc<Fetching>, first: u64, count: u64) -> Result<(), TransferError> {
        let _permit = self.permit().await;
        let mut patience = Patience::new(self.files.client);
        let (mut next, end) = (first, first + count);
        while next < end {
            let before = next;
            let fetched = if patience.tries() <= TRIES_AS_PARTS {
                self.fetch_parts(fetching, &mut next, end).await
            } else {
                self.fetch_ranges(fetching, &mut next, end, &mut patience).await
            };
            if next > before {
                patience.renew();
            }
            match fetched {
                Ok(()) => {}
                Err(TransferError::Server(ClientError::Refused(body)))
                    if body.error == ErrorName::Conflict =>
                {
                    return Err(TransferError::ChangedThere);
                }
                // The server refuses to serve a damaged file, however often it is asked.
                Err(TransferError::Server(ClientError::Refused(body)))
                    if body.error == ErrorName::Damaged =>
                {
                    return Err(TransferError::Damaged);
                }
                Err(TransferError::Server(error)) => patience.after(error).await?,
                Err(TransferError::Assembly(error @ AssemblyError::DamagedChunk { .. })) => {
                    let error = self.files.client.broken(error.to_string());
                    patience.after(error).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn fetch_parts(
        &self,
        fetching: &Arc<Fetching>,
        next: &mut u64,
        end: u64,
    ) -> Result<(), TransferError> {
        let (fetching, first) = (fetching.clone(), *next);
        let bytes_of = |chunks: Range<u64>| chunks.start * CHUNK..chunks.end * CHUNK;
        let assembly = fetching.assembly.clone();
        let wanted = missing_in(&assembly, bytes_of(first..end));
        let mut flow = self.tally.flow(wanted);
        let (arrived, fetched) = self
            .receiving(&mut flow, async move |client, arrivals| {
                let assembly = fetching.assembly.clone();
                let mut receiver = PartReceiver::new(assembly, first, end - first, fetching.is_named);
                let fetched = fetching.receive(client, arrivals, &mut receiver).await;
                let names = std::mem::take(&mut receiver.names);
                let arrived = names.len() as u64;
                fetching
                    .names
                    .lock()
                    .expect("nobody panics with it")
                    .extend(names);
                (arrived, fetched)
            })
            .await?;
        *next += arrived;
        if fetched.is_err() {
            flow.broke_but(wanted.saturating_sub(missing_in(&assembly, bytes_of(first..end))));
        }
        fetched
    }

    /// Fetches plain bytes. Each piece counts as soon as it arrives; the file is checked as a whole.
    async fn fetch_ranges(
        &self,
        fetching: &Fetching,
        next: &mut u64,
        end: u64,
        patience: &mut Patience<'_>,
    ) -> Result<(), TransferError> {
        let (from, to) = (*next * CHUNK, end * CHUNK);
        for gap in fetching.assembly.missing() {
            let (mut offset, gap_end) = (gap.start.max(from), gap.end.min(to));
            if offset >= gap_end {
                continue;
            }
            let mut reply = self.files.client.open(&fetching.bytes(offset..gap_end)).await?;
            let mut flow = self.tally.flow(gap_end - offset);
            loop {
                let batch = self.receive(&mut reply, &mut flow).await;
                let assembly = fetching.assembly.clone();
                let before = offset;
                offset = blocking(move || put_ranges(&assembly, before, &batch.pieces)).await?;
                if offset > before {
                    patience.renew();
                }
                match batch.end {
                    None => {}
                    Some(end) => break end?,
                }
            }
            if offset < gap_end {
                return Err(self.files.client.broken("cut a file off").into());
            }
        }
        *next = end;
        Ok(())
    }

    /// The digest of the whole file: from the names of all chunks, or the server's, if some chunks have none.
    ///
    /// The last name of each reply is only sent if the file was not modified meanwhile.
    async fn digest(&self, fetching: &Fetching) -> Result<Digest, TransferError> {
        let layout = fetching.assembly.layout();
        let names: Vec<ChunkName> = {
            let names = fetching.names.lock().expect("nobody panics with it");
            names.values().copied().collect()
        };
        let said = *fetching.digest.lock().expect("nobody panics with it");
        match (layout.combine(&names), said) {
            // Names computed here prove nothing; a wrong byte is found at commit.
            (_, Some(said)) if !fetching.is_named => Ok(said),
            (None, Some(said)) => Ok(said),
            (Some(found), None) => Ok(found),
            (Some(found), Some(said)) if found == said => Ok(found),
            (Some(_), Some(_)) => {
                let _permit = self.permit().await;
                fetching.must_be(&self.files.stat(&fetching.remote).await?)?;
                Err(TransferError::Damaged)
            }
            (None, None) => {
                let _permit = self.permit().await;
                let meta = self.files.stat_digest(&fetching.remote).await?;
                fetching.must_be(&meta)?;
                meta.digest.ok_or(TransferError::ChangedThere)
            }
        }
    }
}

/// Writes consecutive pieces; returns the offset of the next one.
fn put_ranges(assembly: &Assembly, mut offset: u64, pieces: &[Bytes]) -> Result<u64, AssemblyError> {
    for piece in pieces {
        assembly.put_range(offset, piece)?;
        offset += piece.len() as u64;
    }
    Ok(offset)
}

/// The staged file of an earlier attempt, or a new one.
fn go_on_or_begin(root: &Root, plan: AssemblyPlan) -> Result<Assembly, TransferError> {
    if let Some(parent) = plan.path.parent() {
        root.make_dirs(&parent)?;
    }
    Ok(Assembly::resume_or_create(root, plan)?)
}

/// The number of missing bytes in a range.
fn missing_in(assembly: &Assembly, stretch: Range<u64>) -> u64 {
    let gaps = assembly.missing().into_iter();
    gaps.map(|gap| {
        gap.end
            .min(stretch.end)
            .saturating_sub(gap.start.max(stretch.start))
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_is_gone_on_with_unless_another_process_is_at_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let plan = AssemblyPlan {
            path: "d/file".parse().unwrap(),
            size: 10,
            executable: false,
            mtime: None,
        };
        let begun = go_on_or_begin(&root, plan.clone()).unwrap();
        let id = begun.id().clone();
        begun.put_range(2, b"234").unwrap();
        assert_eq!(missing_in(&begun, 1..6), 2);
        drop(begun);
        let again = go_on_or_begin(&root, plan.clone()).unwrap();
        assert_eq!((again.id(), missing_in(&again, 0..10)), (&id, 7));
        drop(again);
        let journal = folder.path().join(format!(".pfs-staging/{id}/journal"));
        let theirs = std::fs::File::open(journal).unwrap();
        theirs.lock().unwrap();
        let own = go_on_or_begin(&root, plan).unwrap();
        assert_ne!(own.id(), &id);
        assert!(folder.path().join("d").is_dir(), "its place is there");
    }
}
