//! Moving and copying inside the storage: no byte leaves the server.

use std::collections::HashSet;

use paddlecloud_api::files::{CopyReply, MoveRequest};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{Copied, DirEntry, Durability, Kind, Meta, Usage};
use paddlecloud_pfs::store::OpenSpace;
use paddlecloud_pfs::{Access, Existing, LinkTarget, RootError, Space};

use super::tree::existing;
use super::{Files, FilesError, MEASURED_AGAIN, Reached};
use crate::auth::Caller;
use crate::homes::Acting;

impl Files {
    /// Gives a node another place, in one step. `live` are the ids of jobs that are not over.
    pub fn rename(
        &self,
        caller: &Caller,
        request: &MoveRequest,
        live: &HashSet<String>,
    ) -> Result<(), FilesError> {
        let from = self.reach_to_take(caller, &request.from.0, live)?;
        let to = self.reach(caller, &request.to.0, Access::Write)?;
        from.not_the_space()?;
        to.not_the_space()?;
        let moves_over = from.place.space != to.place.space;
        // Where files have no owners, nothing is handed over.
        let has_owners = !self.0.remote && (self.is_system_users(&from) || self.is_system_users(&to));
        if moves_over && has_owners {
            return self.hand_over(caller, request, &from, &to);
        }
        let _acting = self.act_for_both(&from, &to)?;
        // Inside one space nothing is counted anew, and a folder need not be walked.
        let usage = match moves_over {
            true => from.root.usage(&from.place.path).map_err(from.failed())?,
            false => Usage::default(),
        };
        let room = match moves_over {
            true => self.measured(|| self.reserve(&to.place.space, usage.into()))?,
            false => None,
        };
        let (replaced, before) = match self.is_one_node(&from, &to)? {
            true => (Amount::default(), None),
            false => (to.replaced()?, from.stat_if_there()?),
        };
        let moved = self.rename_node(&from, &to, existing(request.no_overwrite));
        let may_be_half_done = moved.is_err() && !self.0.store.limits().moves_whole;
        if moved.is_ok() || may_be_half_done {
            self.record_move(&from, &to, before.as_ref());
        }
        if may_be_half_done {
            // What exactly is there is found by measuring.
            self.forget_measure(&from.place.space);
            self.forget_measure(&to.place.space);
        }
        moved.map_err(|error| match error {
            RootError::Changing(_) if may_be_half_done => partly_moved(&from, &to),
            error => told_of(&from, &to)(error),
        })?;
        match room {
            Some(room) => room.settle(usage.into(), replaced),
            None => self.freed(&to.place.space, replaced),
        }
        if moves_over {
            self.freed(&from.place.space, usage.into());
        }
        Ok(())
    }

    /// Whether a rename may take as long as a copy, or needs to measure what it moves.
    pub fn is_copied(&self, request: &MoveRequest) -> bool {
        self.0.remote || request.from.0.place().space != request.to.0.place().space
    }

    /// A folder is used as it was opened, which spares what is the server's own.
    fn rename_node(&self, from: &Reached, to: &Reached, existing: Existing) -> Result<(), RootError> {
        match (&from.root, &to.root) {
            (OpenSpace::Folder(source), OpenSpace::Folder(target)) => {
                source.rename_to(&from.place.path, target, &to.place.path, existing)
            }
            _ => self.0.store.rename(&from.place, &to.place, existing),
        }
    }

    /// Whether two paths lead to the same node, by name or because a job gave it two: a rename then does nothing.
    fn is_one_node(&self, from: &Reached, to: &Reached) -> Result<bool, FilesError> {
        if from.place == to.place {
            return Ok(true);
        }
        if self.0.remote {
            // Nothing has two names there.
            return Ok(false);
        }
        let number = |meta: Meta| (meta.stamp.device, meta.stamp.inode);
        Ok(to.stat_if_there()?.map(number) == from.stat_if_there()?.map(number))
    }

    /// Moves a node to a space that belongs to another system user: a rename would keep the old owner, so the new one
    /// gets a copy of their own, and then the old one goes. What is written to it meanwhile stays where it is.
    fn hand_over(
        &self,
        caller: &Caller,
        request: &MoveRequest,
        from: &Reached,
        to: &Reached,
    ) -> Result<(), FilesError> {
        {
            let _acting = self.act(&to.place.space)?;
            if to.stat_if_there()?.is_some_and(|there| there.is_dir()) {
                return Err(to.failed()(RootError::Exists(to.place.path.clone())));
            }
        }
        let before = {
            let _acting = self.act(&from.place.space)?;
            nodes(from)?
        };
        let keeping_links = MoveRequest {
            keep_link: true,
            ..request.clone()
        };
        self.copy(caller, &keeping_links)?;
        let _acting = self.act(&from.place.space)?;
        let gone = remove_unchanged(from, &before);
        self.forget(&from.place);
        self.freed(&from.place.space, gone.into());
        match from.stat_if_there()? {
            None => Ok(()),
            Some(_) => Err(partly_moved(from, to)),
        }
    }

    /// Copies a file or folder inside the storage.
    pub fn copy(&self, caller: &Caller, request: &MoveRequest) -> Result<CopyReply, FilesError> {
        let from = self.reach(caller, &request.from.0, Access::Read)?;
        let to = self.reach(caller, &request.to.0, Access::Write)?;
        to.not_the_space()?;
        let mut acting = self.act_for_both(&from, &to)?;
        let link = match from.stat_link()?.kind {
            Kind::Symlink(target) if request.keep_link => Some(target),
            _ => None,
        };
        if link.is_none() && from.stat()?.is_dir() {
            to.not_into_ours()?;
        }
        let usage = match &link {
            Some(_) => from.root.usage(&from.place.path),
            // What a link leads to is copied, so that is what it takes.
            None => from.root.usage_behind(&from.place.path),
        };
        let usage = usage.map_err(from.failed())?;
        let replaced = to.replaced()?;
        let reserve = || self.reserve_at(&to, usage.into(), replaced);
        let mut room = reserve();
        for _ in 0..MEASURED_AGAIN {
            let Err(FilesError::Unmeasured(space)) = &room else {
                break;
            };
            // In the server's own name: what a job has locked counts, too.
            drop(acting);
            self.measure(space)?;
            acting = self.act_for_both(&from, &to)?;
            room = reserve();
        }
        let room = room?;
        if link.is_none() {
            self.sound_to_copy(&from)?;
        }
        let copied = self.copy_node(&from, &to, link.as_ref(), request);
        if let (Err(_), Some(_)) = (&copied, &room) {
            // Part of a folder may be there: what exactly is found by measuring.
            self.forget_measure(&to.place.space);
        }
        let copied = copied?;
        self.forget(&to.place);
        if link.is_none() {
            self.record_copies(&from, &to);
        }
        if let Some(room) = room {
            let written = Amount {
                bytes: copied.bytes,
                files: copied.files,
            };
            room.settle(written, replaced);
        }
        if usage.folders > 0 {
            self.forget_measure(&to.place.space);
        }
        drop(acting);
        Ok(CopyReply {
            bytes: copied.bytes,
            files: copied.files,
        })
    }

    fn copy_node(
        &self,
        from: &Reached,
        to: &Reached,
        link: Option<&LinkTarget>,
        request: &MoveRequest,
    ) -> Result<Copied, FilesError> {
        let existing = existing(request.no_overwrite);
        let Some(link) = link else {
            let copied = match (&from.root, &to.root) {
                (OpenSpace::Folder(source), OpenSpace::Folder(target)) => {
                    source.copy_all(&from.place.path, target, &to.place.path, existing)
                }
                _ => self.0.store.copy(&from.place, &to.place, existing),
            };
            return copied.map_err(told_of(from, to));
        };
        let staging = to.root.staging();
        staging
            .publish_link(link, &to.place.path, existing)
            .map_err(to.failed())?;
        Ok(Copied { bytes: 0, files: 1 })
    }

    /// Whether what lies there belongs to another system user than the server's own.
    fn is_system_users(&self, reached: &Reached) -> bool {
        let Space::Home(owner) = &reached.place.space else {
            return false;
        };
        let user = owner.as_str().parse();
        user.is_ok_and(|user| self.0.owners.owner(&user).run_as().is_some())
    }

    /// Whoever may write to the public folder is an administrator: there the server works in its own name.
    fn act_for_both(&self, from: &Reached, to: &Reached) -> Result<Option<Acting>, FilesError> {
        match (&from.place.space, &to.place.space) {
            (_, Space::Home(_)) => self.act(&to.place.space),
            (_, Space::Public) => Ok(None),
        }
    }
}

fn partly_moved(from: &Reached, to: &Reached) -> FilesError {
    FilesError::PartlyMoved {
        from: Box::new(from.shown.clone()),
        to: Box::new(to.shown.clone()),
    }
}

/// Which of two paths an error is about.
fn told_of(from: &Reached, to: &Reached) -> impl Fn(RootError) -> FilesError {
    let (source, from_failed, to_failed) = (from.place.path.clone(), from.failed(), to.failed());
    move |error| match &error {
        RootError::NotFound(path) if *path == source => from_failed(error),
        RootError::Changing(path) if path.is_within(&source) => from_failed(error),
        _ => to_failed(error),
    }
}

/// A node and all below it, folders before what they hold.
fn nodes(of: &Reached) -> Result<Vec<DirEntry>, FilesError> {
    let own = DirEntry {
        path: of.place.path.clone(),
        meta: of.stat_link()?,
    };
    let is_dir = own.meta.is_dir();
    let mut nodes = vec![own];
    if is_dir {
        let below: Result<Vec<DirEntry>, RootError> = of.root.walk(&of.place.path).collect();
        nodes.extend(below.map_err(of.failed())?);
    }
    Ok(nodes)
}

/// Removes those nodes that nobody changed, and folders that are empty then; says what went.
fn remove_unchanged(of: &Reached, nodes: &[DirEntry]) -> Usage {
    let mut gone = Usage::default();
    // What a power cut brings back is there twice, and lost nowhere.
    let root = of.root.staging().clone().with_durability(Durability::Relaxed);
    for node in nodes.iter().rev() {
        let now = root.stat_link(&node.path);
        let is_same = node.meta.is_dir() || now.is_ok_and(|now| now.stamp == node.meta.stamp);
        if is_same && root.remove(&node.path).is_ok() {
            gone.add(&node.meta);
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::{Place, RelPath, Root};

    use super::*;

    /// What a hand-over does after its copy, with a folder that somebody wrote into meanwhile.
    #[test]
    fn only_what_was_copied_and_stayed_as_it_was_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for name in ["t/a", "t/changed", "t/d/b", "t/e/c"] {
            write(name, "old");
        }
        let reached = Reached {
            root: Root::open(folder.path()).unwrap().into(),
            place: Place {
                space: Space::Public,
                path: "t".parse::<RelPath>().unwrap(),
            },
            shown: "/pfs/dc/public/t".parse().unwrap(),
        };
        let before = nodes(&reached).unwrap();
        assert_eq!(before.len(), 7);
        write("t/changed", "newer");
        write("t/e/arrived", "new");
        let gone = remove_unchanged(&reached, &before);
        assert_eq!((gone.files, gone.bytes, gone.folders), (3, 9, 1));
        let left: Vec<String> = nodes(&reached)
            .unwrap()
            .iter()
            .map(|node| node.path.to_string())
            .collect();
        assert_eq!(left, ["t", "t/changed", "t/e", "t/e/arrived"]);
    }
}
