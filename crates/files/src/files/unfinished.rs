//! Unfinished uploads, and the space that is reserved for each until it is complete, discarded or expired.
//!
//! The whole size counts from the first byte, also after a restart of the server, so that a resumed upload fits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_accounts::auth::{Action, Caller};
use paddlecloud_api::files::{UnfinishedUpload, below};
use paddlecloud_pfs::content::{Assembly, AssemblyError, Outline};
use paddlecloud_pfs::quota::{Amount, Reservation};
use paddlecloud_pfs::staging::{self, StagedId, Unfinished};
use paddlecloud_pfs::store::OpenSpace;
use paddlecloud_pfs::{RelPath, RootError, Space};

use super::uploads::amount;
use super::{Files, FilesError, Reached, time_of};
use crate::packages::shown_place;

/// Reservations by upload.
#[derive(Default)]
pub(super) struct Rooms {
    held: Mutex<HashMap<StagedId, Reservation>>,
    /// Whether a space was searched for uploads of an earlier server. A search locks its own space only: files that a job planted
    /// there may make it slow and use much memory.
    looked_at: Mutex<HashMap<Space, Arc<Mutex<bool>>>>,
}

/// What an upload may store beside its content: its journal and its state. This is not counted.
pub(super) fn beside(size: u64) -> Amount {
    Amount {
        bytes: size / 16 + (32 << 10),
        files: 3,
    }
}

impl Rooms {
    pub(super) fn keep(&self, id: &StagedId, room: Reservation) {
        self.lock().insert(id.clone(), room);
    }

    pub(super) fn take(&self, id: &StagedId) -> Option<Reservation> {
        self.lock().remove(id)
    }

    /// What all uploads to a space may store beside their content.
    pub(super) fn beside(&self, space: &Space) -> Amount {
        let held = self.lock();
        let rooms = held.values().filter(|room| room.space() == space);
        rooms.fold(Amount::default(), |all, room| {
            all.plus(beside(room.amount().bytes))
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StagedId, Reservation>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, space: &Space) -> Arc<Mutex<bool>> {
        let mut turns = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(space.clone()).or_default().clone()
    }
}

impl Files {
    /// Reserves space for uploads of an earlier server. Must run before any upload of the space resumes.
    pub(super) fn find_rooms(&self, space: &Space, root: &OpenSpace) -> Result<(), FilesError> {
        let rooms = &self.0.uploads.rooms;
        if !self.0.usage.is_limited(space) {
            return Ok(());
        }
        let turn = rooms.turn(space);
        // A concurrent caller waits here: no upload may resume without its reservation.
        let mut was_looked_at = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if *was_looked_at {
            return Ok(());
        }
        for (unfinished, outline) in outlines_in(space, root)? {
            let room = self.0.usage.claim(space, amount(&outline.plan));
            rooms.keep(&unfinished.id, room);
        }
        *was_looked_at = true;
        Ok(())
    }

    /// Discards older uploads of a file that was just published or is being sent again. An upload that seems active is left to
    /// expire.
    ///
    /// Only in homes, where all uploads belong to one user. The caller must be acting as the owner.
    pub(super) fn give_up_superseded(&self, reached: &Reached, except: Option<&StagedId>) {
        let (space, root) = (&reached.place.space, &reached.root);
        if !matches!(space, Space::Home(_)) {
            return;
        }
        let given_up = self.find_rooms(space, root).and_then(|()| {
            for (Unfinished { id, .. }, outline) in self.outlines(space, root)? {
                if except != Some(&id)
                    && outline.plan.path == reached.place.path
                    && !self.0.uploads.is_sent_to(&id)
                {
                    self.give_up(root, &id)?;
                }
            }
            Ok(())
        });
        // A leftover upload only holds its reservation, and it expires.
        if let Err(error) = given_up {
            tracing::warn!(%error, %space, "a superseded upload could not be given up");
        }
    }

    /// The total of unfinished uploads to a folder.
    pub(super) fn begun_in(&self, space: &Space, folder: &RelPath) -> Result<Amount, FilesError> {
        let outlines = self.outlines(space, &self.space(space)?)?;
        let plans = outlines.iter().map(|(_, outline)| &outline.plan);
        let inside = plans.filter(|plan| plan.path.is_within(folder));
        Ok(inside.fold(Amount::default(), |all, plan| all.plus(amount(plan))))
    }

    fn give_up(&self, root: &OpenSpace, id: &StagedId) -> Result<(), FilesError> {
        match Assembly::open(root.staging(), id) {
            Err(AssemblyError::Storage(error)) if error.is_not_found() => {}
            opened => opened?.discard()?,
        }
        self.forget_upload(id);
        Ok(())
    }

    /// The caller's unfinished uploads, oldest first.
    pub fn upload_list(&self, caller: &Caller) -> Result<Vec<UnfinishedUpload>, FilesError> {
        let mut found = Vec::new();
        for space in self.writable(caller)? {
            let _acting = self.act(&space)?;
            found.extend(self.unfinished_in(&space)?);
        }
        found.sort_by_key(|upload| upload.touched);
        Ok(found)
    }

    pub(super) fn unfinished_in(&self, space: &Space) -> Result<Vec<UnfinishedUpload>, FilesError> {
        let root = self.space(space)?;
        let name = self.name_of(space);
        let view = |(unfinished, outline): (Unfinished, Outline)| {
            let path = below(&name, &shown_place(&outline.plan.path)).ok()?;
            Some(UnfinishedUpload {
                id: unfinished.id,
                path: path.into(),
                size: outline.plan.size,
                arrived: outline.arrived,
                touched: time_of(unfinished.touched),
            })
        };
        let views = self.outlines(space, &root)?.into_iter().filter_map(view);
        Ok(views.collect())
    }

    /// The resumable uploads of a space, read under its lock.
    fn outlines(&self, space: &Space, root: &OpenSpace) -> Result<Vec<(Unfinished, Outline)>, FilesError> {
        let turn = self.0.uploads.rooms.turn(space);
        let _alone = turn.lock().unwrap_or_else(PoisonError::into_inner);
        outlines_in(space, root)
    }

    /// The spaces a caller may write to.
    pub(super) fn writable(&self, caller: &Caller) -> Result<Vec<Space>, FilesError> {
        let mut spaces = vec![Files::home_of(caller)?];
        if caller.may(Action::Administer) {
            spaces.push(Space::Public);
        }
        Ok(spaces)
    }
}

/// Whether a failed commit can never succeed: the client must start over.
pub(super) fn is_over(error: &FilesError) -> bool {
    match error {
        FilesError::Ours(_) | FilesError::Assembly(AssemblyError::WrongDigest { .. }) => true,
        other => other.storage().is_some_and(is_final),
    }
}

/// Whether the storage would fail again in the same way until its content changes.
fn is_final(error: &RootError) -> bool {
    use RootError::{Changing, Denied, Escapes, Exists, IsAFolder, NotAFile, NotAFolder};
    use RootError::{NotNameable, Protected, ThroughLink, TooLong, Unsupported};
    let is_in_the_way = matches!(
        error,
        Changing(_) | Exists(_) | IsAFolder(_) | NotAFile(_) | NotAFolder(_) | ThroughLink(_)
    );
    let is_not_allowed = matches!(
        error,
        Denied(_) | Protected(_) | Escapes(_) | TooLong(_) | NotNameable(_) | Unsupported { .. }
    );
    is_in_the_way || is_not_allowed
}

/// The resumable uploads of a space. The space's lock must be held.
fn outlines_in(space: &Space, root: &OpenSpace) -> Result<Vec<(Unfinished, Outline)>, FilesError> {
    let unfinished = staging::unfinished(root.staging()).map_err(FilesError::of_space(space))?;
    let outlined = unfinished.into_iter().filter_map(|one| {
        let outline = Assembly::outline(root.staging(), &one.id)?;
        Some((one, outline))
    });
    Ok(outlined.collect())
}
