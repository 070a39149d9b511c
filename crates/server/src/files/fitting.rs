//! Takes a pack in where not all of it fits: files that take the place of others count with what they add to them.
//!
//! Each file is looked at as it comes. The first that does not fit ends the pack.

use paddlecloud_pfs::pack::{PackSink, Unpacked, Unpacker};
use paddlecloud_pfs::quota::{Amount, QuotaError, Reservation};
use paddlecloud_pfs::{Digest, Entry, Existing, Node, RelPath, RootError};

use super::{Files, FilesError, Reached};

/// Writes a pack's files, and sees that they fit where that is not certain.
pub(super) struct Fitting {
    unpacker: Unpacker,
    tight: Option<Tight>,
}

/// A pack that would not fit if nothing gave way.
pub(super) struct Tight {
    files: Files,
    folder: Reached,
    existing: Existing,
    refused: Option<QuotaError>,
    /// Each file and link that came. Each has room of its own: a large file that gives way makes none for another.
    taken: Vec<Taken>,
}

struct Taken {
    path: RelPath,
    amount: Amount,
    room: Reservation,
}

impl Tight {
    pub(super) fn new(files: Files, folder: Reached, existing: Existing) -> Tight {
        Tight {
            files,
            folder,
            existing,
            refused: None,
            taken: Vec::new(),
        }
    }

    fn take(&mut self, entry: &Entry) -> Result<(), RootError> {
        if entry.node == Node::Dir {
            return Ok(());
        }
        let amount = Amount {
            bytes: entry.size(),
            files: 1,
        };
        let accounts = &self.files.0.accounts;
        let room = match self.folder.below(&entry.path) {
            Ok(reached) => accounts.reserve_at(&reached, amount, self.replaced_at(&entry.path)),
            Err(_) => accounts.reserve_at(&self.folder, amount, Amount::default()),
        };
        let room = room.map_err(|refused| {
            self.refused = Some(refused);
            RootError::FsQuota {
                path: entry.path.clone(),
                kept: None,
            }
        })?;
        self.taken.push(Taken {
            path: entry.path.clone(),
            amount,
            room,
        });
        Ok(())
    }

    /// What gives way to a file of the pack; nothing, where what is there stays.
    fn replaced_at(&self, path: &RelPath) -> Amount {
        if self.existing == Existing::Keep {
            return Amount::default();
        }
        let reached = self.folder.below(path);
        reached.and_then(|reached| reached.replaced()).unwrap_or_default()
    }

    /// The room for all that came, if what each replaces is still as large; else why there is none.
    pub(super) fn fit(mut self) -> Result<Vec<Reservation>, QuotaError> {
        let mut rooms = Vec::with_capacity(self.taken.len());
        for mut taken in std::mem::take(&mut self.taken) {
            taken.room.fit(taken.amount, self.replaced_at(&taken.path))?;
            rooms.push(taken.room);
        }
        Ok(rooms)
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
