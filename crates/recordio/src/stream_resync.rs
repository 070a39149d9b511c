//! Finds where a stream resumes after damage, although it cannot be rewound.
//!
//! Bytes are kept until the position is certain, so there are limits: the damaged chunk and the next one, each within
//! the reader's limits, or else the next [`WINDOW`] bytes. If the stream ends among them, everything is known that a
//! file would show, and the same rules apply (see `resync`). If it does not, only its rules 1 and 2 apply, which need
//! no end; if they find nothing, the reader stops instead of guessing.

use std::io::Read;
use std::path::Path;

use crate::chunk::Limits;
use crate::error::ReadError;
use crate::layout::{HEADER_LEN, Header, Layout, RawHeader};
use crate::lookahead::Lookahead;
use crate::resync::{Horizon, Memory, Resume, Resync};
use crate::source::SizedSource;

/// How far to search for a chunk whose position the damaged one does not show.
const WINDOW: usize = 64 << 20;
/// Bytes that may be examined without success, per byte of the stream. Real damage needs few.
const MAX_WASTED: u64 = 8;

pub(crate) struct StreamResync {
    limits: Limits,
    memory: Memory,
    /// bytes of damaged chunks that were read
    wasted: u64,
    events: u64,
}

/// The position of the damage.
pub(crate) struct Damaged<'a> {
    pub(crate) name: &'a Path,
    pub(crate) offset: u64,
    pub(crate) layout: Option<Layout>,
    /// bytes that were read before it was noticed
    pub(crate) read: u64,
    /// bytes that may still be lost
    pub(crate) allowed: u64,
}

/// How far to search.
enum Search {
    /// only where the damaged chunk itself says that it ends
    Declared,
    Everywhere,
}

impl StreamResync {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            memory: Memory::default(),
            wasted: 0,
            events: 0,
        }
    }

    /// How many bytes of `input`, which is positioned at the damage, are lost.
    pub(crate) fn lost_len<R: Read>(
        &mut self,
        input: &mut Lookahead<R>,
        damage: &Damaged<'_>,
    ) -> Result<usize, ReadError> {
        let io = |e| ReadError::io(damage.name, e);
        self.check_effort(damage)?;
        for layout in damage.layout.map_or(Layout::ALL.to_vec(), |known| vec![known]) {
            see_neighbour(input, layout, &self.limits).map_err(io)?;
        }
        if input.left().is_none() {
            if let Resume::At(end) = self.resume(input, damage, Search::Declared)? {
                return Ok(end);
            }
            input.see(WINDOW).map_err(io)?;
        }
        let seen = input.see(WINDOW).map_err(io)?.len();
        let search_len = search_len(damage).min(usize::MAX as u64) as usize;
        match self.resume(input, damage, Search::Everywhere)? {
            Resume::At(end) => Ok(end),
            // More is lost than allowed.
            Resume::NotFound if search_len <= seen || input.left().is_some() => Ok(search_len.min(seen)),
            Resume::NotFound => Err(ReadError::LostInStream {
                file: damage.name.to_owned(),
                offset: damage.offset,
                searched: seen as u64,
            }),
        }
    }

    /// A stream crafted to be damaged everywhere is given up.
    fn check_effort(&mut self, damage: &Damaged<'_>) -> Result<(), ReadError> {
        self.events += 1;
        self.wasted += damage.read;
        if self.wasted <= MAX_WASTED * (damage.offset + WINDOW as u64) {
            return Ok(());
        }
        Err(ReadError::Unrecoverable {
            file: damage.name.to_owned(),
            offset: damage.offset,
            false_starts: self.events,
        })
    }

    /// Where to resume, counted from the damage.
    fn resume<R: Read>(
        &mut self,
        input: &mut Lookahead<R>,
        damage: &Damaged<'_>,
        search: Search,
    ) -> Result<Resume<usize>, ReadError> {
        let horizon = match input.left() {
            Some(_) => Horizon::End,
            None => Horizon::More,
        };
        let (memory, limits) = (&mut self.memory, self.limits);
        input.lend(|seen, start| {
            let source = match SizedSource::new(seen, damage.name.to_owned()) {
                Ok(source) => source,
                Err(error) => return (Vec::new(), Err(error)),
            };
            let mut resync = Resync::remembering(&source, limits, horizon, std::mem::take(memory));
            let (start, layout) = (start as u64, damage.layout);
            let found = match search {
                Search::Declared => resync.declared(start, layout),
                Search::Everywhere => resync.resume(start, layout, start.saturating_add(search_len(damage))),
            };
            *memory = resync.into_memory();
            let found = found.map(|resume| match resume {
                Resume::At(end) => Resume::At((end - start) as usize),
                Resume::NotFound => Resume::NotFound,
            });
            (source.into_inner(), found)
        })
    }
}

/// No chunk is searched beyond what may be lost.
fn search_len(damage: &Damaged<'_>) -> u64 {
    damage.allowed.saturating_add(HEADER_LEN as u64)
}

/// Reads as much as needed to examine the chunk at the position where the damaged one claims to end.
fn see_neighbour<R: Read>(input: &mut Lookahead<R>, layout: Layout, limits: &Limits) -> std::io::Result<()> {
    let Some(header) = input.see(HEADER_LEN)?.first_chunk() else {
        return Ok(());
    };
    let end = HEADER_LEN as u64 + u64::from(RawHeader::split(header, layout).stored_len);
    if end > limits.unpacked() as u64 {
        return Ok(());
    }
    let end = end as usize;
    let seen = input.see(end + HEADER_LEN)?;
    let next = seen.get(end..).and_then(|rest| rest.first_chunk());
    let next = next.and_then(|bytes| Header::parse(bytes, layout).ok());
    match next.filter(|header| limits.admit(header).is_ok()) {
        Some(header) => input.see(end + header.chunk_len() as usize).map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_search_stops_after_repeated_failures() {
        let mut resync = StreamResync::new(Limits::default());
        let mut input = Lookahead::new(&b"no chunk at all"[..]);
        let damage = Damaged {
            name: Path::new("made"),
            offset: 1000,
            layout: None,
            read: WINDOW as u64,
            allowed: u64::MAX,
        };
        for _ in 0..MAX_WASTED {
            assert_eq!(resync.lost_len(&mut input, &damage).unwrap(), 15);
        }
        let error = resync.lost_len(&mut input, &damage).unwrap_err();
        assert!(
            matches!(error, ReadError::Unrecoverable { offset: 1000, .. }),
            "{error}"
        );
    }
}
