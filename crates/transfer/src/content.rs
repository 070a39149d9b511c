//! A file's bytes in order, for pipes: each chunk is checked before it is returned, and a broken connection is retried.
//!
//! One request returns many chunks of the file that the server opened for it, so that concurrent writes and replacements do not
//! disturb the reader.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::header::{ETAG, HeaderValue, IF_MATCH};
use paddlecloud_api::client::{Call, ClientError, Opened};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{DIGEST_HEADER, SIZE_HEADER};
use paddlecloud_pfs::content::{CHUNK, ChunkName, Layout};
use paddlecloud_pfs::{Digest, PfsPath};

use super::FileClient;
use super::patience::Patience;

/// Chunks per request, which is also the server's limit.
const AT_ONCE: u64 = 64;
/// How often one chunk may arrive damaged.
const MOST_DAMAGED: u32 = 5;

/// The content of a file that is being read.
pub struct Content<'a> {
    files: FileClient<'a>,
    path: PfsPath,
    /// The requested bytes.
    range: Range<u64>,
    /// The chunks that have not arrived.
    chunks: Range<u64>,
    /// The state of the file that all bytes must have, from the first reply.
    state: Option<State>,
    reply: Option<Asked>,
    /// The received part of the next chunk.
    buffer: BytesMut,
    /// Names of the received chunks, if they start at the beginning of the file.
    names: Vec<ChunkName>,
    damaged: u32,
    patience: Patience<'a>,
}

/// A reply in flight.
struct Asked {
    reply: Opened,
    /// The chunk after its last.
    end: u64,
}

/// One state of a file.
struct State {
    version: HeaderValue,
    layout: Layout,
    /// The digest of the whole file, if the server knows it.
    digest: Option<Digest>,
}

impl State {
    fn told_by(headers: &HeaderMap) -> Option<State> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        Some(State {
            version: headers.get(ETAG)?.clone(),
            layout: Layout::of(text(SIZE_HEADER)?.parse().ok()?),
            digest: text(DIGEST_HEADER).and_then(|digest| digest.parse().ok()),
        })
    }
}

impl<'a> FileClient<'a> {
    /// Reads a file, or a range of it, which may end beyond the file. A range without any byte of the file yields nothing.
    ///
    /// All bytes come from one file, the one that was opened first; concurrent writes into it may be among them. If the server
    /// knows the file's digest and the whole file is read, it is verified before the last chunk is returned.
    pub async fn cat(&self, path: &PfsPath, range: Option<Range<u64>>) -> Result<Content<'a>, ClientError> {
        let range = range.unwrap_or(0..u64::MAX);
        let chunks = self.chunks_now(path, &range).await?;
        let mut content = Content {
            files: *self,
            path: path.clone(),
            range,
            chunks,
            state: None,
            reply: None,
            buffer: BytesMut::new(),
            names: Vec::new(),
            damaged: 0,
            patience: Patience::new(self.client),
        };
        while let Err(error) = content.ask().await {
            if error.refusal() != Some(ErrorName::BadRequest) {
                content.pause(error).await?;
                continue;
            }
            // A file that was truncated or replaced since then has other chunks.
            let chunks = self.chunks_now(path, &content.range).await?;
            if chunks == content.chunks {
                return Err(error);
            }
            content.chunks = chunks;
        }
        Ok(content)
    }

    /// The chunks that contain a range of the file as it is now.
    async fn chunks_now(&self, path: &PfsPath, range: &Range<u64>) -> Result<Range<u64>, ClientError> {
        let meta = self.stat(path).await?;
        // For anything but a file, request no chunks: the server's reply says why it cannot be read.
        Ok(match meta.is_file() {
            true => chunks_of(range, meta.size),
            false => 0..0,
        })
    }
}

impl Content<'_> {
    /// The next bytes; `None` at the end. An unreachable server is retried.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while !self.chunks.is_empty() {
            match self.next_chunk().await {
                Ok((offset, bytes)) => {
                    self.patience.renew();
                    let wanted = self.wanted(offset, bytes);
                    if !wanted.is_empty() {
                        return Ok(Some(wanted));
                    }
                }
                Err(error) => self.pause(error).await?,
            }
        }
        if let Some(mut asked) = self.reply.take() {
            // Reading a reply to its end frees the connection. An error here loses nothing.
            drop(asked.reply.piece(self.files.client).await);
        }
        Ok(None)
    }

    /// The part of a chunk that is inside the range.
    fn wanted(&self, offset: u64, bytes: Bytes) -> Bytes {
        let within = |at: u64| {
            let at = at.saturating_sub(offset).min(bytes.len() as u64);
            usize::try_from(at).expect("a chunk fits into memory")
        };
        let (from, to) = (within(self.range.start), within(self.range.end));
        bytes.slice(from.min(to)..to)
    }

    /// The next chunk, complete and verified, and its offset.
    async fn next_chunk(&mut self) -> Result<(u64, Bytes), ClientError> {
        let client = self.files.client;
        loop {
            if let Some(chunk) = self.take_chunk()? {
                return Ok(chunk);
            }
            let Some(Asked { reply, end }) = &mut self.reply else {
                self.ask().await?;
                continue;
            };
            match reply.piece(client).await? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None if self.chunks.start == *end => self.reply = None,
                None => return Err(client.broken("cut a file off")),
            }
        }
    }

    /// Requests the chunks that have not arrived, up to the limit of one request.
    async fn ask(&mut self) -> Result<(), ClientError> {
        let client = self.files.client;
        let first = self.chunks.start;
        let end = self.chunks.end.min(first + AT_ONCE);
        let skip = self.keep_arrived() as u64;
        let target = FileClient::at("parts", &self.path)
            .pair("first", first)
            .pair("count", end - first)
            .maybe("skip", (skip > 0).then_some(skip));
        let mut call = Call::get(target);
        if let Some(state) = &self.state {
            call.headers.push((IF_MATCH, state.version.clone()));
        }
        let reply = client.open(&call).await?;
        if self.state.is_none() {
            let state = State::told_by(reply.headers());
            let state = state.ok_or_else(|| client.broken("sent parts and does not say of what"))?;
            // Only the reply says which file was opened: it may not be the one that `stat` saw.
            self.chunks = chunks_of(&self.range, state.layout.size());
            self.state = Some(state);
        }
        self.reply = (self.chunks.start == first).then_some(Asked { reply, end });
        Ok(())
    }

    /// Truncates a partial chunk so that at least one byte is left to send. Returns the bytes that are kept.
    fn keep_arrived(&mut self) -> usize {
        let layout = self.state.as_ref().map(|state| state.layout);
        let len = layout.and_then(|layout| layout.range(self.chunks.start));
        let most = len.map_or(0, |(_, len)| bytes_of(len).saturating_sub(1));
        self.buffer.truncate(most);
        self.buffer.len()
    }

    /// The next chunk, once all of it has arrived.
    fn take_chunk(&mut self) -> Result<Option<(u64, Bytes)>, ClientError> {
        let Some(state) = &self.state else {
            return Ok(None);
        };
        let index = self.chunks.start;
        let Some((offset, len)) = state.layout.range(index) else {
            return Err(self.changed());
        };
        let len = bytes_of(len);
        if self.buffer.len() < len + Digest::LEN {
            return Ok(None);
        }
        let bytes = self.buffer.split_to(len).freeze();
        let name = self.buffer[..Digest::LEN].try_into().expect("as long as a name");
        let name = ChunkName::from_bytes(name);
        self.buffer.advance(Digest::LEN);
        let mut hasher = state.layout.hasher(index);
        hasher.update(&bytes);
        if hasher.finish() != name {
            return Err(self.damaged_on_the_way());
        }
        (self.damaged, self.chunks.start) = (0, index + 1);
        if self.names.len() as u64 == index {
            self.names.push(name);
        }
        match (state.layout.combine(&self.names), state.digest) {
            (Some(found), Some(stored)) if found != stored => Err(self.damaged_there()),
            _ => Ok(Some((offset, bytes))),
        }
    }

    /// Waits before the next attempt; returns the error if a retry is pointless.
    async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.reply = None;
        match error.refusal() {
            Some(ErrorName::Conflict) => Err(self.changed()),
            Some(name) if !name.is_temporary() => Err(error),
            _ => self.patience.after(error).await,
        }
    }

    fn damaged_on_the_way(&mut self) -> ClientError {
        self.buffer.clear();
        self.damaged += 1;
        let problem = format!("`{}` arrives damaged again and again", self.path);
        match self.damaged < MOST_DAMAGED {
            true => self.files.client.broken(problem),
            false => ClientError::Refused(ErrorBody::new(ErrorName::Damaged, problem)),
        }
    }

    fn damaged_there(&self) -> ClientError {
        let problem = "its bytes on the server's disk are not what the server stored: the disk is damaged";
        ClientError::Refused(ErrorBody::new(ErrorName::Damaged, problem))
    }

    fn changed(&self) -> ClientError {
        let problem = format!("`{}` changed while it was being read", self.path);
        ClientError::Refused(ErrorBody::new(ErrorName::Conflict, problem))
    }
}

/// The chunks that contain a range of a file of `size` bytes.
fn chunks_of(range: &Range<u64>, size: u64) -> Range<u64> {
    let end = range.end.min(size);
    match range.start < end {
        true => range.start / CHUNK..end.div_ceil(CHUNK),
        false => 0..0,
    }
}

fn bytes_of(len: u64) -> usize {
    usize::try_from(len).expect("a chunk fits into memory")
}
