//! A range of a file's plain bytes, for random access: only the requested bytes are transferred.
//!
//! The bytes are not verified; [`FileClient::cat`] does that. After a broken connection, the rest is requested from the same
//! version of the file.

use std::ops::Range;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, ETAG, HeaderValue, IF_MATCH, RANGE};
use paddlecloud_api::client::{Call, Client, ClientError, Opened};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_pfs::PfsPath;

use super::FileClient;
use super::patience::Patience;

/// A range that is being read.
pub struct Stretch<'a> {
    client: &'a Client,
    path: PfsPath,
    /// The bytes that have not arrived; the first reply corrects the end.
    rest: Range<u64>,
    /// The version of all bytes, once it is known.
    version: Option<HeaderValue>,
    reply: Option<Opened>,
    patience: Patience<'a>,
}

impl<'a> FileClient<'a> {
    /// Reads a range of a file, which may end beyond the file. A range without any byte of the file yields nothing.
    ///
    /// All bytes belong to one version of the file, unless it is modified in place during a reply: to detect that, compare its
    /// version afterwards. A broken reply is resumed; if that fails, the result is an error, never a short read.
    pub async fn stretch(&self, path: &PfsPath, range: Range<u64>) -> Result<Stretch<'a>, ClientError> {
        let meta = self.stat(path).await?;
        if meta.is_file() && (range.is_empty() || range.start >= meta.size) {
            return Ok(self.no_bytes(path, 0..0));
        }
        self.stretch_of_version(path, range, None).await
    }

    /// Reads a range of the version that [`FileClient::stat`] returned; fails if the file has changed since. Without a version,
    /// any is accepted.
    pub async fn stretch_of_version(
        &self,
        path: &PfsPath,
        range: Range<u64>,
        version: Option<&str>,
    ) -> Result<Stretch<'a>, ClientError> {
        let mut stretch = self.no_bytes(path, range);
        if stretch.rest.is_empty() {
            return Ok(stretch);
        }
        stretch.version = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
        while let Err(error) = stretch.ask().await {
            // The server was not reachable in the first place.
            if matches!(error, ClientError::Unreachable { .. }) {
                return Err(error);
            }
            stretch.pause_once_more(error).await?;
        }
        Ok(stretch)
    }

    fn no_bytes(&self, path: &PfsPath, rest: Range<u64>) -> Stretch<'a> {
        Stretch {
            client: self.client,
            path: path.clone(),
            rest,
            version: None,
            reply: None,
            patience: Patience::new(self.client),
        }
    }
}

impl Stretch<'_> {
    /// The next bytes; `None` at the end. An unreachable server is retried.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while !self.rest.is_empty() {
            match self.next_piece().await {
                Ok(piece) => {
                    self.rest.start += piece.len() as u64;
                    self.patience.renew();
                    return Ok(Some(piece));
                }
                Err(error) => self.pause(error).await?,
            }
        }
        if let Some(mut reply) = self.reply.take() {
            // Reading a reply to its end frees the connection. An error here loses nothing.
            drop(reply.piece(self.client).await);
        }
        Ok(None)
    }

    async fn next_piece(&mut self) -> Result<Bytes, ClientError> {
        if self.reply.is_none() {
            self.ask().await?;
        }
        let reply = self.reply.as_mut().expect("just asked for");
        let piece = reply.piece(self.client).await?;
        piece.ok_or_else(|| self.client.broken("cut a file off"))
    }

    /// Requests the missing bytes. The first reply tells their number and version.
    async fn ask(&mut self) -> Result<(), ClientError> {
        let mut call = Call::get(FileClient::at("content", &self.path));
        call.headers.push((RANGE, range_value(&self.rest)));
        if let Some(version) = &self.version {
            call.headers.push((IF_MATCH, version.clone()));
        }
        let reply = self.client.open(&call).await?;
        let length = reply.headers().get(CONTENT_LENGTH);
        let length: Option<u64> = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let length = length.ok_or_else(|| self.client.broken("does not say how long a file is"))?;
        self.rest.end = self.rest.start.saturating_add(length);
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

fn range_value(range: &Range<u64>) -> HeaderValue {
    let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    HeaderValue::try_from(text).expect("digits and a dash")
}
