//! Moves and copies inside the storage, on the server.

use std::collections::HashSet;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{CopyReply, MoveRequest};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{DirEntry, Durability, Kind, Meta, Usage};
use paddlecloud_pfs::store::OpenSpace;
use paddlecloud_pfs::{Access, Existing, LinkTarget, RootError, Space};

use super::tree::existing;
use super::{Files, FilesError, Reached};
use crate::homes::Acting;

impl Files {
    /// Renames a node, atomically where the store can. `live` are the ids of unfinished jobs.
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
        let crosses_spaces = from.place.space != to.place.space;
        // A remote store has no owners of files.
        let has_owners = !self.0.remote && (self.is_system_users(&from) || self.is_system_users(&to));
        if crosses_spaces && has_owners {
            return self.hand_over(caller, request, &from, &to);
        }
        let _acting = self.act_for_both(&from, &to)?;
        // A move inside one space changes no usage, so the folder need not be walked.
        let usage = match crosses_spaces {
            true => from.root.usage(&from.place.path).map_err(from.failed())?,
            false => Usage::default(),
        };
        let room = match crosses_spaces {
            true => self.measured(|| self.reserve(&to.place.space, usage.into()))?,
            false => None,
        };
        let (replaced, before) = match self.is_one_node(&from, &to)? {
            true => (Amount::default(), None),
            false => (to.replaced()?, from.stat_if_exists()?),
        };
        let moved = self.rename_node(&from, &to, existing(request.no_overwrite));
        let may_be_half_done = moved.is_err() && !self.0.store.limits().moves_whole;
        if moved.is_ok() || may_be_half_done {
            self.record_move(&from, &to, before.as_ref());
        }
        if may_be_half_done {
            // Only a measurement shows what was moved.
            self.forget_measure(&from.place.space);
            self.forget_measure(&to.place.space);
        }
        moved.map_err(|error| match error {
            RootError::Changing(_) if may_be_half_done => partly_moved(&from, &to),
            error => attribute_error(&from, &to)(error),
        })?;
        match room {
            Some(room) => room.charge(usage.into(), replaced),
            None => self.freed(&to.place.space, replaced),
        }
        if crosses_spaces {
            self.freed(&from.place.space, usage.into());
        }
        Ok(())
    }

    /// Whether a rename may take as long as a copy, or must measure what it moves.
    pub fn is_copied(&self, request: &MoveRequest) -> bool {
        self.0.remote || request.from.0.place().space != request.to.0.place().space
    }

    /// A folder is renamed through its opened root, which protects the server's own folder.
    fn rename_node(&self, from: &Reached, to: &Reached, existing: Existing) -> Result<(), RootError> {
        match (&from.root, &to.root) {
            (OpenSpace::Folder(source), OpenSpace::Folder(target)) => {
                source.rename_to(&from.place.path, target, &to.place.path, existing)
            }
            _ => self.0.store.rename(&from.place, &to.place, existing),
        }
    }

    /// Whether both paths are the same node, by path or as hard links: a rename then does nothing.
    fn is_one_node(&self, from: &Reached, to: &Reached) -> Result<bool, FilesError> {
        if from.place == to.place {
            return Ok(true);
        }
        if self.0.remote {
            // A remote store has no hard links.
            return Ok(false);
        }
        let number = |meta: Meta| (meta.stamp.device, meta.stamp.inode);
        Ok(to.stat_if_exists()?.map(number) == from.stat_if_exists()?.map(number))
    }

    /// Moves a node to a space of another system user. A rename would keep the old owner, so the node is copied and then removed.
    /// What was written to it meanwhile stays where it is.
    fn hand_over(
        &self,
        caller: &Caller,
        request: &MoveRequest,
        from: &Reached,
        to: &Reached,
    ) -> Result<(), FilesError> {
        {
            let _acting = self.act(&to.place.space)?;
            if to.stat_if_exists()?.is_some_and(|there| there.is_dir()) {
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
        match from.stat_if_exists()? {
            None => Ok(()),
            Some(_) => Err(partly_moved(from, to)),
        }
    }

    /// Copies a file or folder inside the storage.
    pub fn copy(&self, caller: &Caller, request: &MoveRequest) -> Result<CopyReply, FilesError> {
        let from = self.reach(caller, &request.from.0, Access::Read)?;
        let to = self.reach(caller, &request.to.0, Access::Write)?;
        to.not_the_space()?;
        let acting = self.act_for_both(&from, &to)?;
        let link = match from.stat_link()?.kind {
            Kind::Symlink(target) if request.keep_link => Some(target),
            _ => None,
        };
        if link.is_none() && from.stat()?.is_dir() {
            to.refuse_own_folder()?;
        }
        let usage = match &link {
            Some(_) => from.root.usage(&from.place.path),
            // A copy follows links, so the target's size counts.
            None => from.root.usage_behind(&from.place.path),
        };
        let usage = usage.map_err(from.failed())?;
        let replaced = to.replaced()?;
        // Measured with the server's own rights: files that a job made unreadable count, too.
        drop(acting);
        let room = self.measured(|| self.reserve(&to.place.space, usage.into()))?;
        let acting = self.act_for_both(&from, &to)?;
        if link.is_none() {
            self.refuse_damaged_copy(&from)?;
        }
        let copied = self.copy_node(&from, &to, link.as_ref(), request);
        if let (Err(_), Some(_)) = (&copied, &room) {
            // Part of a folder may have been written; only a measurement shows how much.
            self.forget_measure(&to.place.space);
        }
        let copied = copied?;
        self.forget(&to.place);
        if link.is_none() {
            self.record_copies(&from, &to);
        }
        if let Some(room) = room {
            room.charge(copied, replaced);
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
    ) -> Result<Amount, FilesError> {
        let existing = existing(request.no_overwrite);
        let Some(link) = link else {
            let copied = match (&from.root, &to.root) {
                (OpenSpace::Folder(source), OpenSpace::Folder(target)) => {
                    source.copy_all(&from.place.path, target, &to.place.path, existing)
                }
                _ => self.0.store.copy(&from.place, &to.place, existing),
            };
            return copied.map_err(attribute_error(from, to));
        };
        let staging = to.root.staging();
        staging
            .publish_link(link, &to.place.path, existing)
            .map_err(to.failed())?;
        Ok(Amount { bytes: 0, files: 1 })
    }

    /// Whether the home belongs to a system user other than the server's.
    fn is_system_users(&self, reached: &Reached) -> bool {
        let Space::Home(owner) = &reached.place.space else {
            return false;
        };
        let user = owner.as_str().parse();
        user.is_ok_and(|user| self.0.owners.owner(&user).run_as().is_some())
    }

    /// Only administrators may write to the public folder, so there the server works with its own rights.
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

/// Attributes an error to one of the two paths.
fn attribute_error(from: &Reached, to: &Reached) -> impl Fn(RootError) -> FilesError {
    let (source, from_failed, to_failed) = (from.place.path.clone(), from.failed(), to.failed());
    move |error| match &error {
        RootError::NotFound(path) if *path == source => from_failed(error),
        RootError::Changing(path) if path.is_within(&source) => from_failed(error),
        _ => to_failed(error),
    }
}

/// A node and everything below it, each folder before its content.
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

/// Removes the nodes that did not change, and folders that are then empty; returns what was removed.
fn remove_unchanged(of: &Reached, nodes: &[DirEntry]) -> Usage {
    let mut gone = Usage::default();
    // No sync: if a power cut undoes a removal, the file exists twice, and nothing is lost.
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

    /// What a move between owners does after its copy, with a folder that was written to meanwhile.
    #[test]
    fn only_copied_and_unchanged_nodes_are_removed() {
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
            root: OpenSpace::Folder(Root::open(folder.path()).unwrap()),
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
