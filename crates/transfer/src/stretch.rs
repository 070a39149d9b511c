//! A stretch of a file's plain bytes, for whoever reads here and there: no more travels than is asked for.
//!
//! Nobody checks the bytes; [`FileClient::cat`] does. A connection that breaks is only a pause: the rest is asked for, of
//! the same version of the file.

use std::ops::Range;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, ETAG, HeaderValue, IF_MATCH, RANGE};
use paddlecloud_api::client::{Call, Client, ClientError, Opened};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_pfs::PfsPath;

use super::FileClient;
use super::patience::Patience;

/// Bytes on their way.
pub struct Stretch<'a> {
    client: &'a Client,
    path: PfsPath,
    /// What has not come; to the end of the file where nobody said how long it is.
    rest: Range<u64>,
    /// All bytes are of it, once it is known.
    version: Option<HeaderValue>,
    reply: Option<Opened>,
    patience: Patience<'a>,
}

impl<'a> FileClient<'a> {
    /// Reads a stretch of a file; its end may lie beyond the file's. One that holds no byte of the file is read as nothing.
    ///
    /// All bytes are of one version of the file, unless somebody writes into it while a reply is on its way: whoever minds
    /// looks at its version again. A reply that is cut is gone on with; one that stays cut is an error, never
    /// a short one.
    pub async fn stretch(&self, path: &PfsPath, range: Range<u64>) -> Result<Stretch<'a>, ClientError> {
        let meta = self.stat(path).await?;
        if meta.is_file() && (range.is_empty() || range.start >= meta.size) {
            return Ok(self.no_bytes(path, 0..0));
        }
        self.stretch_of_version(path, range, None).await
    }

    /// Reads a stretch of the version of a file that [`FileClient::stat`] told; refused when the file
    /// is another by now. Without a version any will do.
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
            // Nobody was ever there.
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
    /// The next bytes; `None` at the end. A server that goes away meanwhile is waited for.
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
            // The connection is free again once its reply was read to the end. Nothing is missing if it is not.
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

    /// Asks for what has not come. How much that is and of which version, the first reply says.
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

    /// Waits before the next try; gives the error back when there is no point in another one.
    async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.reply = None;
        // Without a version what would come now could be another file's.
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
            // What the disk there has made of a file stays so.
            Some(ErrorName::Damaged) => Err(error),
            _ => self.patience.after(error).await,
        }
    }
}

fn range_value(range: &Range<u64>) -> HeaderValue {
    let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    HeaderValue::try_from(text).expect("digits and a dash")
}
