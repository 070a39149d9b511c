//! A file's bytes in order, for pipes: no byte is handed out before its chunk was checked, and a connection that breaks
//! is only a pause.
//!
//! One request carries many chunks of the file as it was when it was opened for it: what others write meanwhile, or put
//! in its place, does not disturb the reader.

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

/// Chunks one request asks for; the server gives no more.
const AT_ONCE: u64 = 64;
/// How often one chunk may arrive damaged.
const MOST_DAMAGED: u32 = 5;

/// The bytes of a file on their way.
pub struct Content<'a> {
    files: FileClient<'a>,
    path: PfsPath,
    /// Bytes that are wanted.
    range: Range<u64>,
    /// Chunks that have not come.
    chunks: Range<u64>,
    /// All bytes are of this state of the file, told by the first reply.
    state: Option<State>,
    reply: Option<Asked>,
    /// What has come of the first of them.
    buffer: BytesMut,
    /// Those that have, from the file's beginning; nothing where others were not asked for.
    names: Vec<ChunkName>,
    damaged: u32,
    patience: Patience<'a>,
}

/// A reply on its way.
struct Asked {
    reply: Opened,
    /// The chunk behind its last.
    end: u64,
}

/// One state of a file.
struct State {
    version: HeaderValue,
    layout: Layout,
    /// The server's own word on the whole file, where it gave it.
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
    /// Reads a file, or a range of it; the end may lie beyond the file's. A range that holds no byte of the file, or none
    /// at all, is read as nothing.
    ///
    /// All bytes are of one file, as it was when it was opened and as the server sent them; what somebody writes over in it
    /// meanwhile may be among them. Where the server knows the digest of the file, all of it is checked by that before its
    /// last chunk is handed out.
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
            // A file that was cut or replaced since has no such chunks, but others.
            let chunks = self.chunks_now(path, &content.range).await?;
            if chunks == content.chunks {
                return Err(error);
            }
            content.chunks = chunks;
        }
        Ok(content)
    }

    /// The chunks that a range lies in, of the file as it is now.
    async fn chunks_now(&self, path: &PfsPath, range: &Range<u64>) -> Result<Range<u64>, ClientError> {
        let meta = self.stat(path).await?;
        // What is no file is asked for nothing: the server says why not even that can be had.
        Ok(match meta.is_file() {
            true => chunks_of(range, meta.size),
            false => 0..0,
        })
    }
}

impl Content<'_> {
    /// The next bytes; `None` at the end. A server that goes away meanwhile is waited for.
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
            // The connection is free again once its reply was read to the end. Nothing is missing if it is not.
            drop(asked.reply.piece(self.files.client).await);
        }
        Ok(None)
    }

    /// The part of a chunk that lies in the range.
    fn wanted(&self, offset: u64, bytes: Bytes) -> Bytes {
        let within = |at: u64| {
            let at = at.saturating_sub(offset).min(bytes.len() as u64);
            usize::try_from(at).expect("a chunk fits into memory")
        };
        let (from, to) = (within(self.range.start), within(self.range.end));
        bytes.slice(from.min(to)..to)
    }

    /// The next chunk, whole and right, and where it lies.
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

    /// Asks for the chunks that have not come, as many as one request may carry.
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
            // Only now it is known which file is read: it may be another than the one that was looked at before.
            self.chunks = chunks_of(&self.range, state.layout.size());
            self.state = Some(state);
        }
        self.reply = (self.chunks.start == first).then_some(Asked { reply, end });
        Ok(())
    }

    /// Drops what of a chunk cannot be gone on from: there must be something left to send. Says how much stays.
    fn keep_arrived(&mut self) -> usize {
        let layout = self.state.as_ref().map(|state| state.layout);
        let len = layout.and_then(|layout| layout.range(self.chunks.start));
        let most = len.map_or(0, |(_, len)| bytes_of(len).saturating_sub(1));
        self.buffer.truncate(most);
        self.buffer.len()
    }

    /// The first chunk that has not been handed out, once all of it has come.
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

    /// Waits before the next try; gives the error back when there is no point in another one.
    async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.reply = None;
        match error.refusal() {
            Some(ErrorName::Conflict) => Err(self.changed()),
            Some(name) if name != ErrorName::Unavailable => Err(error),
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

/// The chunks that a range of a file of `size` bytes lies in.
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
