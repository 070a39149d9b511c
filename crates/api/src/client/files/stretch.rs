//! A stretch of a file's plain bytes, for whoever reads here and there: no more travels than is asked for.
//!
//! Nobody checks the bytes; [`FileClient::cat`] does.

use std::ops::Range;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, HeaderValue, IF_MATCH, RANGE};
use paddlecloud_pfs::PfsPath;

use super::FileClient;
use crate::client::call::{Call, Opened};
use crate::client::{Client, ClientError};

/// Bytes on their way.
pub struct Stretch<'a> {
    client: &'a Client,
    /// Absent when there is nothing to read.
    reply: Option<Opened>,
    left: Option<u64>,
}

impl<'a> FileClient<'a> {
    /// Reads a stretch of a file; its end may lie beyond the file's. One that holds no byte of the file is read as nothing.
    ///
    /// All bytes are of one version of the file. A reply that is cut is an error, never a short one.
    pub async fn stretch(&self, path: &PfsPath, range: Range<u64>) -> Result<Stretch<'a>, ClientError> {
        let meta = self.stat(path).await?;
        if meta.is_file() && (range.is_empty() || range.start >= meta.size) {
            return Ok(Stretch {
                client: self.client,
                reply: None,
                left: Some(0),
            });
        }
        self.stretch_of_version(path, range, None).await
    }

    /// Reads a stretch that is not empty, of the version of a file that [`FileClient::stat`] told; refused when the file
    /// is another by now. Without a version any will do.
    pub async fn stretch_of_version(
        &self,
        path: &PfsPath,
        range: Range<u64>,
        version: Option<&str>,
    ) -> Result<Stretch<'a>, ClientError> {
        let mut call = Call::get(Self::at("content", path));
        if !range.is_empty() {
            call.headers.push((RANGE, range_value(&range)));
        }
        if let Some(Ok(version)) = version.map(|version| HeaderValue::try_from(format!("\"{version}\""))) {
            call.headers.push((IF_MATCH, version));
        }
        let reply = self.client.open(&call).await?;
        let length = reply.headers().get(CONTENT_LENGTH);
        let left = length.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Stretch {
            client: self.client,
            reply: Some(reply),
            left,
        })
    }
}

fn range_value(range: &Range<u64>) -> HeaderValue {
    let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    HeaderValue::try_from(text).expect("digits and a dash")
}

impl Stretch<'_> {
    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Some(reply) = &mut self.reply else {
            return Ok(None);
        };
        let piece = reply.piece(self.client).await?;
        let read = piece.as_ref().map_or(0, |piece| piece.len() as u64);
        self.left = self.left.map(|left| left.saturating_sub(read));
        if piece.is_none() && self.left.is_some_and(|left| left > 0) {
            return Err(self.client.broken("cut a file off"));
        }
        Ok(piece)
    }
}
