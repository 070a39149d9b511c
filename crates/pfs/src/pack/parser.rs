//! Parses and checks a pack stream incrementally.
//!
//! Stores nothing itself: a [`PackSink`] does. The parser never buffers more than one path.

use super::head::{self, HEAD, Head, HeadKind};
use super::{MAGIC, PackError, PackTotals};
use crate::digest::Digest;
use crate::entry::{Entry, LinkTarget, Mtime, Node};
use crate::links::Links;
use crate::order::TreeOrder;
use crate::relpath::RelPath;
use crate::root::RootError;

/// Receives the contents of a stream, in order.
///
/// Nothing is trustworthy before the parser's `finish` succeeded.
pub trait PackSink {
    /// A folder, a link, or the beginning of a file (whose digest is not known yet).
    fn begin(&mut self, entry: &Entry) -> Result<(), RootError>;
    /// The next bytes of the current file.
    fn content(&mut self, bytes: &[u8]) -> Result<(), RootError>;
    /// The current file is complete and has this digest.
    fn end(&mut self, entry: &Entry, digest: Digest) -> Result<(), RootError>;
}

/// Limits for a stream. Parsing stops at the first one exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackLimits {
    pub entries: u64,
    /// Bytes of file content.
    pub bytes: u64,
    /// Links, the only entries kept in memory until the end.
    pub links: u64,
    /// Bytes of their paths and targets.
    pub link_bytes: u64,
}

impl Default for PackLimits {
    fn default() -> Self {
        Self {
            entries: 10_000_000,
            bytes: 1 << 50,
            links: 100_000,
            link_bytes: 8 << 20,
        }
    }
}

/// Parses a stream.
pub struct PackParser<S> {
    sink: S,
    limits: PackLimits,
    state: State,
    /// The bytes of the current piece so far; never longer than a path.
    pending: Vec<u8>,
    order: TreeOrder,
    links: Links,
    seal: blake3::Hasher,
    content: blake3::Hasher,
    found: PackTotals,
    consumed: u64,
}

enum State {
    Magic,
    Head,
    Path {
        kind: HeadKind,
        len: usize,
        mtime: Mtime,
    },
    Target {
        path: RelPath,
        len: usize,
        mtime: Mtime,
    },
    Content {
        file: Entry,
        left: u64,
    },
    Digest {
        file: Entry,
    },
    Seal {
        said: PackTotals,
    },
    End,
    /// After an error nothing is accepted.
    Broken,
}

impl<S: PackSink> PackParser<S> {
    /// A parser at the start of a stream.
    pub fn new(sink: S, limits: PackLimits) -> Self {
        Self {
            sink,
            limits,
            state: State::Magic,
            pending: Vec::new(),
            order: TreeOrder::default(),
            links: Links::default(),
            seal: blake3::Hasher::new(),
            content: blake3::Hasher::new(),
            found: PackTotals::default(),
            consumed: 0,
        }
    }

    /// Parses the next bytes of the stream, split at any point.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), PackError> {
        while !bytes.is_empty() {
            let before = bytes.len();
            let state = std::mem::replace(&mut self.state, State::Broken);
            self.state = self.step(state, &mut bytes)?;
            self.consumed += (before - bytes.len()) as u64;
        }
        Ok(())
    }

    /// Whether the end mark was parsed and verified.
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Accepts the stream if it is complete, and returns the sink.
    pub fn finish(self) -> Result<(S, PackTotals), PackError> {
        if !self.is_complete() {
            return Err(PackError::Cut(self.consumed));
        }
        Ok((self.sink, self.found))
    }

    fn step(&mut self, state: State, bytes: &mut &[u8]) -> Result<State, PackError> {
        if let State::Content { file, left } = state {
            return self.take_content(file, left, bytes);
        }
        let Some(piece) = self.take_piece(piece_len(&state), bytes) else {
            return Ok(state);
        };
        if !matches!(state, State::Seal { .. }) {
            self.seal.update(&piece);
        }
        let next = match state {
            State::Magic if piece == MAGIC => State::Head,
            State::Magic => return Err(PackError::Magic),
            State::Head => self.on_head(&piece)?,
            State::Path { kind, mtime, .. } => self.on_path(kind, mtime, &piece)?,
            State::Target { path, mtime, .. } => self.on_target(path, mtime, &piece)?,
            State::Digest { file } => self.on_digest(&file, &piece)?,
            State::Seal { said } => self.on_seal(said, &piece)?,
            State::End => return Err(PackError::Trailing),
            State::Broken | State::Content { .. } => return Err(PackError::Refused),
        };
        self.pending = piece;
        self.pending.clear();
        Ok(next)
    }

    /// Collects a piece of known length; `None` until it is complete.
    fn take_piece(&mut self, len: usize, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let take = (len - self.pending.len()).min(bytes.len());
        self.pending.extend_from_slice(&bytes[..take]);
        *bytes = &bytes[take..];
        (self.pending.len() == len).then(|| std::mem::take(&mut self.pending))
    }

    fn on_head(&mut self, piece: &[u8]) -> Result<State, PackError> {
        let head: &[u8; HEAD] = piece.try_into().expect("the piece has the length of a head");
        match head::decode(head)? {
            Head::End(said) => Ok(State::Seal { said }),
            Head::Entry {
                kind,
                path_len,
                mtime,
            } => {
                self.found.entries += 1;
                within("entries", self.found.entries, self.limits.entries)?;
                Ok(State::Path {
                    kind,
                    len: path_len,
                    mtime,
                })
            }
        }
    }

    fn on_path(&mut self, kind: HeadKind, mtime: Mtime, piece: &[u8]) -> Result<State, PackError> {
        let path = RelPath::from_bytes(piece)?;
        match kind {
            HeadKind::Link { len } => Ok(State::Target { path, len, mtime }),
            HeadKind::Dir => {
                self.begin(&Entry {
                    path,
                    node: Node::Dir,
                    mtime,
                })?;
                Ok(State::Head)
            }
            HeadKind::File { size, executable } => {
                self.found.bytes = self.found.bytes.saturating_add(size);
                within("bytes", self.found.bytes, self.limits.bytes)?;
                let node = Node::file(size, executable);
                let file = Entry { path, node, mtime };
                self.begin(&file)?;
                self.content.reset();
                Ok(after_content(file, size))
            }
        }
    }

    fn on_target(&mut self, path: RelPath, mtime: Mtime, piece: &[u8]) -> Result<State, PackError> {
        let target = LinkTarget::from_bytes(piece)?;
        let entry = Entry {
            path,
            node: Node::Symlink {
                target: target.clone(),
            },
            mtime,
        };
        self.links.insert(entry.path.clone(), target);
        within("links", self.links.len() as u64, self.limits.links)?;
        within("bytes of links", self.links.bytes(), self.limits.link_bytes)?;
        self.begin(&entry)?;
        Ok(State::Head)
    }

    fn begin(&mut self, entry: &Entry) -> Result<(), PackError> {
        self.order.accept(entry)?;
        Ok(self.sink.begin(entry)?)
    }

    fn take_content(&mut self, file: Entry, left: u64, bytes: &mut &[u8]) -> Result<State, PackError> {
        let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (content, rest) = bytes.split_at(take);
        self.content.update(content);
        self.sink.content(content)?;
        *bytes = rest;
        Ok(after_content(file, left - take as u64))
    }

    fn on_digest(&mut self, file: &Entry, piece: &[u8]) -> Result<State, PackError> {
        let digest: Digest = self.content.finalize().into();
        if digest.as_bytes() != piece {
            return Err(PackError::Damaged(file.path.clone()));
        }
        self.sink.end(file, digest)?;
        Ok(State::Head)
    }

    fn on_seal(&mut self, said: PackTotals, piece: &[u8]) -> Result<State, PackError> {
        if self.seal.finalize().as_bytes() != piece {
            return Err(PackError::Seal);
        }
        if said != self.found {
            return Err(PackError::Totals {
                said,
                found: self.found,
            });
        }
        self.links.check()?;
        Ok(State::End)
    }
}

fn piece_len(state: &State) -> usize {
    match state {
        State::Magic => MAGIC.len(),
        State::Head => HEAD,
        State::Path { len, .. } | State::Target { len, .. } => *len,
        State::Digest { .. } | State::Seal { .. } => Digest::LEN,
        State::Content { .. } | State::End | State::Broken => 0,
    }
}

fn after_content(file: Entry, left: u64) -> State {
    if left == 0 {
        State::Digest { file }
    } else {
        State::Content { file, left }
    }
}

fn within(what: &'static str, found: u64, limit: u64) -> Result<(), PackError> {
    if found > limit {
        Err(PackError::Limit { what, limit })
    } else {
        Ok(())
    }
}
