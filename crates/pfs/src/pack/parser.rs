//! Parses and checks a pack stream incrementally.
//!
//! Stores nothing itself: a [`PackSink`] does. The parser never buffers more than one path.

use std::sync::Arc;

use super::head::{self, HEAD, Head, HeadKind};
use super::{MAGIC, PackError, PackTotals};
use crate::digest::Digest;
use crate::entry::{Entry, LinkTarget, Mtime, Node};
use crate::links::Links;
use crate::order::TreeOrder;
use crate::package::Manifest;
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
    /// Resumes a file whose first `from` bytes were received before, and adds them to `so_far`. A sink that lacks them still
    /// accepts the rest; [`Self::spoiled`] follows.
    fn go_on(&mut self, entry: &Entry, _from: u64, _so_far: &mut blake3::Hasher) -> Result<(), RootError> {
        Err(RootError::Denied(entry.path.clone()))
    }
    /// The resumed file has the wrong digest: none of it may stay.
    fn spoiled(&mut self, entry: &Entry) -> Result<(), RootError> {
        Err(RootError::Denied(entry.path.clone()))
    }
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
    takes_rests: bool,
    /// The allowed entries, if they were announced.
    list: Option<Arc<Manifest>>,
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
    /// The offset at which a resumed file continues.
    Offset {
        entry: Entry,
    },
    Content {
        file: Incoming,
        left: u64,
    },
    Digest {
        file: Incoming,
    },
    Seal {
        said: PackTotals,
    },
    End,
    /// After an error nothing is accepted.
    Broken,
}

/// The file being received.
struct Incoming {
    entry: Entry,
    /// Whether its beginning was received before.
    is_rest: bool,
}

impl<S: PackSink> PackParser<S> {
    /// A parser at the start of a stream.
    pub fn new(sink: S, limits: PackLimits) -> Self {
        Self {
            sink,
            limits,
            takes_rests: false,
            list: None,
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

    /// Also accepts the rest of a file whose beginning the sink has.
    pub fn taking_rests(mut self) -> Self {
        self.takes_rests = true;
        self
    }

    /// Accepts only entries that match the manifest. Because duplicates are refused, the total is bounded by the manifest.
    pub fn taking_only(mut self, list: Arc<Manifest>) -> Self {
        self.list = Some(list);
        self
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

    /// The sink, which may know why it refused an entry.
    pub fn sink(&self) -> &S {
        &self.sink
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
            State::Offset { entry } => self.on_offset(entry, &piece)?,
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
                kind: HeadKind::Rest { .. },
                ..
            } if !self.takes_rests => Err(PackError::Tag(head::REST)),
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
                self.expect(size)?;
                let entry = file_entry(path, size, executable, mtime);
                self.begin(&entry)?;
                self.content.reset();
                let is_rest = false;
                Ok(after_content(Incoming { entry, is_rest }, size))
            }
            HeadKind::Rest { size, executable } => Ok(State::Offset {
                entry: file_entry(path, size, executable, mtime),
            }),
        }
    }

    /// Adds announced content to the total and checks the limit.
    fn expect(&mut self, bytes: u64) -> Result<(), PackError> {
        self.found.bytes = self.found.bytes.saturating_add(bytes);
        within("bytes", self.found.bytes, self.limits.bytes)
    }

    fn on_offset(&mut self, entry: Entry, piece: &[u8]) -> Result<State, PackError> {
        let from = u64::from_le_bytes(piece.try_into().expect("the piece has eight bytes"));
        if from == 0 || from >= entry.size() {
            return Err(PackError::Malformed(entry.path));
        }
        let left = entry.size() - from;
        self.expect(left)?;
        self.accept(&entry)?;
        self.content.reset();
        self.sink.go_on(&entry, from, &mut self.content)?;
        let is_rest = true;
        Ok(after_content(Incoming { entry, is_rest }, left))
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
        self.begin(&entry)?;
        self.links.insert(entry.path, target);
        within("links", self.links.len() as u64, self.limits.links)?;
        within("bytes of links", self.links.bytes(), self.limits.link_bytes)?;
        Ok(State::Head)
    }

    fn begin(&mut self, entry: &Entry) -> Result<(), PackError> {
        self.accept(entry)?;
        Ok(self.sink.begin(entry)?)
    }

    /// Checks whether an entry may come next, before any of it is written.
    fn accept(&mut self, entry: &Entry) -> Result<(), PackError> {
        self.order.accept(entry)?;
        let Some(list) = &self.list else {
            return Ok(());
        };
        match list.get(&entry.path) {
            Some(listed) if is_meant(listed, entry) => Ok(()),
            _ => Err(PackError::NotListed(entry.path.clone())),
        }
    }

    fn take_content(&mut self, file: Incoming, left: u64, bytes: &mut &[u8]) -> Result<State, PackError> {
        let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (content, rest) = bytes.split_at(take);
        self.content.update(content);
        self.sink.content(content)?;
        *bytes = rest;
        Ok(after_content(file, left - take as u64))
    }

    /// A resumed file may have been damaged before this stream, so a wrong digest does not break the stream.
    fn on_digest(&mut self, file: &Incoming, piece: &[u8]) -> Result<State, PackError> {
        let digest: Digest = self.content.finalize().into();
        match (digest.as_bytes() == piece, file.is_rest) {
            (true, _) => self.sink.end(&file.entry, digest)?,
            (false, true) => self.sink.spoiled(&file.entry)?,
            (false, false) => return Err(PackError::Damaged(file.entry.path.clone())),
        }
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
        State::Offset { .. } => size_of::<u64>(),
        State::Digest { .. } | State::Seal { .. } => Digest::LEN,
        State::Content { .. } | State::End | State::Broken => 0,
    }
}

fn file_entry(path: RelPath, size: u64, executable: bool, mtime: Mtime) -> Entry {
    let node = Node::File {
        size,
        executable,
        digest: None,
    };
    Entry { path, node, mtime }
}

/// Whether an incoming entry matches the manifest, as far as is known before its content.
fn is_meant(listed: &Entry, coming: &Entry) -> bool {
    let file = |entry: &Entry| match entry.node {
        Node::File { size, executable, .. } => Some((size, executable)),
        _ => None,
    };
    match (file(listed), file(coming)) {
        (None, None) => listed.node == coming.node,
        (listed, coming) => listed == coming,
    }
}

fn after_content(file: Incoming, left: u64) -> State {
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
