//! Receives a pack that does not fit as a whole: a file that replaces another counts only what it adds.
//!
//! Each file is checked as it arrives. The first one that does not fit fails the pack.

use paddlecloud_pfs::pack::{PackSink, Unpacked, Unpacker};
use paddlecloud_pfs::quota::{Amount, QuotaError, Reservation};
use paddlecloud_pfs::{Digest, Entry, Existing, Node, RelPath, RootError};

use super::{Files, FilesError, Reached};

/// Writes a pack's files and, if the whole pack might not fit, checks each of them.
pub(super) struct Fitting {
    unpacker: Unpacker,
    tight: Option<Tight>,
    /// Refuses links: a package gets them from its manifest, when all files have come.
    only_files: bool,
}

/// A pack that would not fit if it replaced nothing.
pub(super) struct Tight {
    files: Files,
    folder: Reached,
    existing: Existing,
    refused: Option<QuotaError>,
    /// The files and links received so far. Each has its own reservation: a large file that is replaced frees no space for
    /// others.
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

    /// What a file of the pack replaces; nothing if existing files are kept.
    fn replaced_at(&self, path: &RelPath) -> Amount {
        if self.existing == Existing::Keep {
            return Amount::default();
        }
        let reached = self.folder.below(path);
        reached.and_then(|reached| reached.replaced()).unwrap_or_default()
    }

    /// The reservations for all files, if the replaced files still have the same sizes; otherwise the reason for the refusal.
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
    pub(super) fn new(unpacker: Unpacker, tight: Option<Tight>, only_files: bool) -> Fitting {
        Fitting {
            unpacker: unpacker.noting(),
            tight,
            only_files,
        }
    }

    /// Why the pack was refused, if a quota was the reason.
    pub(super) fn refusal(&self) -> Option<FilesError> {
        let refused = self.tight.as_ref()?.refused.clone();
        refused.map(FilesError::from)
    }

    /// Called once the whole pack was accepted: returns its files, and the reservations to recheck.
    pub(super) fn complete(self) -> Result<(Vec<Unpacked>, Option<Tight>), RootError> {
        Ok((self.unpacker.end_noting()?, self.tight))
    }
}

impl PackSink for Fitting {
    fn begin(&mut self, entry: &Entry) -> Result<(), RootError> {
        if self.only_files && matches!(entry.node, Node::Symlink { .. }) {
            return Err(RootError::Denied(entry.path.clone()));
        }
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
