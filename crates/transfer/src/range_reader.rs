//! The bytes of a file in order, or of a range of it: only the requested bytes are transferred.
//!
//! After a broken connection, the rest is requested from the same version of the file. A whole file is verified at its end.

use std::ops::Range;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderValue, IF_MATCH, RANGE};
use paddlecloud_api::client::{Call, ClientError, Opened};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::DIGEST_HEADER;
use paddlecloud_pfs::{Digest, PfsPath};

use super::FileClient;
use super::patience::Patience;

/// What is wrong with a reply to a request for a range.
pub(super) const OTHER_BYTES: &str = "sent bytes of a file that were not requested";

/// A file, or a range of it, that is being read.
pub struct RangeReader<'a> {
    files: FileClient<'a>,
    path: PfsPath,
    /// The bytes that have not arrived; the first reply corrects the end.
    rest: Range<u64>,
    /// The version of all bytes, once it is known.
    version: Option<HeaderValue>,
    reply: Option<Opened>,
    /// The hash of all bytes so far, and the digest that the server stored; for a whole file only.
    check: Option<(blake3::Hasher, Option<Digest>)>,
    patience: Patience<'a>,
}

impl<'a> FileClient<'a> {
    /// Reads a whole file. If the server knows its digest and another one arrived, the end is an error.
    pub async fn cat(&self, path: &PfsPath) -> Result<RangeReader<'a>, ClientError> {
        let mut reader = self.no_bytes(path, 0..u64::MAX);
        reader.check = Some(Default::default());
        reader.begin().await?;
        Ok(reader)
    }

    /// Reads a range of a file, which may end beyond the file. A range without any byte of the file yields nothing.
    ///
    /// All bytes belong to one version of the file, unless it is modified in place during a reply: to detect that, compare its
    /// version afterwards. A broken reply is resumed; if that fails, the result is an error, never a short read.
    pub async fn read_range(
        &self,
        path: &PfsPath,
        range: Range<u64>,
    ) -> Result<RangeReader<'a>, ClientError> {
        let meta = self.stat(path).await?;
        if meta.is_file() && (range.is_empty() || range.start >= meta.size) {
            return Ok(self.no_bytes(path, 0..0));
        }
        // The reply says why anything but a file cannot be read.
        let range = if range.is_empty() { 0..1 } else { range };
        self.read_range_of_version(path, range, None).await
    }

    /// Reads a range of the version that [`FileClient::stat`] returned; fails if the file has changed since. Without a version,
    /// any is accepted.
    pub async fn read_range_of_version(
        &self,
        path: &PfsPath,
        range: Range<u64>,
        version: Option<&str>,
    ) -> Result<RangeReader<'a>, ClientError> {
        let mut reader = self.no_bytes(path, range);
        if reader.rest.is_empty() {
            return Ok(reader);
        }
        reader.version = version.and_then(quoted);
        reader.begin().await?;
        Ok(reader)
    }

    fn no_bytes(&self, path: &PfsPath, rest: Range<u64>) -> RangeReader<'a> {
        RangeReader {
            files: *self,
            path: path.clone(),
            rest,
            version: None,
            reply: None,
            check: None,
            patience: Patience::new(self.client),
        }
    }
}

impl RangeReader<'_> {
    async fn begin(&mut self) -> Result<(), ClientError> {
        while let Err(error) = self.ask().await {
            // The server was not reachable in the first place.
            if matches!(error, ClientError::Unreachable { .. }) {
                return Err(error);
            }
            self.pause_once_more(error).await?;
        }
        Ok(())
    }

    /// The next bytes; `None` at the end. An unreachable server is retried.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while !self.rest.is_empty() {
            match self.next_piece().await {
                Ok(piece) => {
                    self.rest.start += piece.len() as u64;
                    if let Some((hasher, _)) = &mut self.check {
                        hasher.update(&piece);
                    }
                    self.patience.renew();
                    return Ok(Some(piece));
                }
                Err(error) => self.pause(error).await?,
            }
        }
        if let Some(mut reply) = self.reply.take() {
            // Reading a reply to its end frees the connection. An error here loses nothing.
            drop(reply.piece(self.files.client).await);
        }
        match self.check.take() {
            Some((hasher, Some(stored))) if stored != hasher.finalize().into() => self.why_wrong().await,
            _ => Ok(None),
        }
    }

    /// Why other bytes arrived than were stored. A file that was modified while it was read is as it is.
    async fn why_wrong(&self) -> Result<Option<Bytes>, ClientError> {
        let meta = self.files.stat_digest(&self.path).await?;
        let version = meta.version.and_then(|version| quoted(&version));
        if version != self.version {
            return Ok(None);
        }
        let problem = format!("`{}` arrived damaged", self.path);
        Err(ClientError::Refused(ErrorBody::new(ErrorName::Damaged, problem)))
    }

    async fn next_piece(&mut self) -> Result<Bytes, ClientError> {
        if self.reply.is_none() {
            self.ask().await?;
        }
        let reply = self.reply.as_mut().expect("just asked for");
        let piece = reply.piece(self.files.client).await?;
        piece.ok_or_else(|| self.files.client.broken("sent a truncated file"))
    }

    /// Requests the missing bytes. The first reply gives their number and version.
    async fn ask(&mut self) -> Result<(), ClientError> {
        let mut call = Call::get(FileClient::at("content", &self.path));
        let is_range = self.rest != (0..u64::MAX);
        if is_range {
            call.headers.push((RANGE, range_value(&self.rest)));
        }
        if let Some(version) = &self.version {
            call.headers.push((IF_MATCH, version.clone()));
        }
        let client = self.files.client;
        let reply = client.open(&call).await?;
        if is_range && !begins_at(&reply, self.rest.start) {
            return Err(client.broken(OTHER_BYTES));
        }
        let length = reply.headers().get(CONTENT_LENGTH);
        let length: Option<u64> = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let length = length.ok_or_else(|| client.broken("sent no file length"))?;
        self.rest.end = self.rest.start.saturating_add(length);
        if let Some((_, stored)) = &mut self.check
            && self.version.is_none()
        {
            let header = reply.headers().get(DIGEST_HEADER);
            *stored = header.and_then(|value| value.to_str().ok()?.parse().ok());
        }
        self.version = reply.headers().get(ETAG).cloned().or(self.version.take());
        self.reply = Some(reply);
        Ok(())
    }

    /// Waits before the next attempt; returns the error if a retry is pointless.
    async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.reply = None;
        // Without a version, the next reply could belong to another file.
        if self.version.is_none() {
            return Err(error);
        }
        if error.refusal() == Some(ErrorName::Conflict) {
            let problem = format!("`{}` changed while it was being read", self.path);
            return Err(ClientError::Refused(ErrorBody::new(ErrorName::Conflict, problem)));
        }
        self.pause_once_more(error).await
    }

    async fn pause_once_more(&mut self, error: ClientError) -> Result<(), ClientError> {
        match error.refusal() {
            // A damaged file on the server's disk stays damaged.
            Some(ErrorName::Damaged) => Err(error),
            _ => self.patience.after(error).await,
        }
    }
}

/// Whether a reply says that its bytes begin at this offset of the file. The server says so to every request for a range.
pub(super) fn begins_at(reply: &Opened, offset: u64) -> bool {
    let range = reply.headers().get(CONTENT_RANGE);
    let range = range.and_then(|value| value.to_str().ok()?.strip_prefix("bytes "));
    let first = range.and_then(|range| range.split_once('-')?.0.parse().ok());
    first == Some(offset)
}

/// A version as a header has it.
fn quoted(version: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("\"{version}\"")).ok()
}

/// The value of a `Range` header.
pub(super) fn range_value(range: &Range<u64>) -> HeaderValue {
    let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    HeaderValue::try_from(text).expect("digits and a dash")
}
