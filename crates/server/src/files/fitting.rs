//! Takes a pack in where not all of it fits: files that take the place of others count with what they add to them.
//!
//! Each file is looked at as it comes. The first that does not fit ends the pack.

use paddlecloud_pfs::pack::{PackSink, Unpacked, Unpacker};
use paddlecloud_pfs::quota::{Amount, QuotaError, Reservation};
use paddlecloud_pfs::{Digest, Entry, Node, RelPath, RootError};

use super::{FilesError, Reached};

/// Writes a pack's files, and sees that they fit where that is not certain.
pub(super) struct Fitting {
    unpacker: Unpacker,
    tight: Option<Tight>,
}

/// A pack that would not fit if nothing gave way.
pub(super) struct Tight {
    folder: Reached,
    refused: Option<QuotaError>,
    room: Reservation,
    /// Files and links that came.
    taken: Vec<RelPath>,
    written: Amount,
    replaced: Amount,
}

impl Tight {
    /// `room` is what was set aside without knowing of any file: nothing.
    pub(super) fn new(folder: Reached, room: Reservation) -> Tight {
        Tight {
            folder,
            refused: None,
            room,
            taken: Vec::new(),
            written: Amount::default(),
            replaced: Amount::default(),
        }
    }

    fn take(&mut self, entry: &Entry) -> Result<(), RootError> {
        if entry.node == Node::Dir {
            return Ok(());
        }
        let new = Amount {
            bytes: entry.size(),
            files: 1,
        };
        let old = self.replaced_at(&entry.path);
        self.taken.push(entry.path.clone());
        self.written = self.written.plus(new);
        self.replaced = self.replaced.plus(old);
        self.room.grow_instead(new.common(old));
        let fitted = self.room.fit(self.written, self.replaced);
        fitted.map_err(|refused| {
            self.refused = Some(refused);
            RootError::FsQuota(entry.path.clone())
        })
    }

    fn replaced_at(&self, path: &RelPath) -> Amount {
        let reached = self.folder.below(path);
        reached.and_then(|reached| reached.replaced()).unwrap_or_default()
    }

    /// The room for all that came, if what it replaces is still as large; else why there is none.
    pub(super) fn fit(mut self, written: Amount) -> Result<Reservation, QuotaError> {
        let replaced = self.taken.iter().map(|path| self.replaced_at(path));
        let replaced = replaced.fold(Amount::default(), Amount::plus);
        self.room.fit(written, replaced)?;
        Ok(self.room)
    }
}

impl Fitting {
    pub(super) fn new(unpacker: Unpacker, tight: Option<Tight>) -> Fitting {
        let unpacker = unpacker.noting();
        Fitting { unpacker, tight }
    }

    /// Why the pack was refused, if it was for want of room.
    pub(super) fn refusal(&self) -> Option<FilesError> {
        let refused = self.tight.as_ref()?.refused.clone();
        refused.map(FilesError::from)
    }

    /// Once the whole pack was accepted: its files, and what is left to see about their room.
    pub(super) fn complete(self) -> Result<(Vec<Unpacked>, Option<Tight>), RootError> {
        Ok((self.unpacker.end_noting()?, self.tight))
    }
}

impl PackSink for Fitting {
    fn begin(&mut self, entry: &Entry) -> Result<(), RootError> {
        if let Some(tight) = &mut self.tight {
            tight.take(entry)?;
        }
        self.unpacker.begin(entry)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), RootError> {
        self.unpacker.content(bytes)
    }

    fn end(&mut self, entry: &Entry, digest: Digest) -> Result<(), RootError> {
        self.unpacker.end(entry, digest)
    }
}
