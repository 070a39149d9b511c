//! What `sync` deletes: before copying, entries whose type differs from the source's; after copying, if requested, entries
//! that only the destination has. A folder with contents is never deleted unless requested, whatever an older listing
//! said of it.

use std::collections::BTreeSet;
use std::path::Path;

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{Removed, below};
use paddlecloud_pfs::sync::{Extra, SyncPlan};
use paddlecloud_pfs::{Entry, Existing, Node, PfsPath, RelPath, Root, RootError};
use paddlecloud_transfer::RemoveOptions;

use super::Transfer;
use super::location::{shown, shown_in};
use super::report::{Aside, Lost};
use super::up::Completeness;
use crate::error::{CliError, chain};

const NOT_EMPTY: &str = "a non-empty folder is in its place";

const SPECIAL: &str = "a socket, pipe or device is in its place";

const SPARED: &str =
    "excluded files and the folders that contain them are never deleted: move them away first";

/// The folder that is changed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side<'a> {
    Here(&'a Path),
    There(&'a PfsPath),
}

impl Side<'_> {
    fn shown(self, path: &RelPath) -> String {
        match self {
            Side::Here(folder) => shown_in(folder, path),
            Side::There(folder) => format!("{folder}/{path}"),
        }
    }
}

/// What the destination holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub entries: Vec<Entry>,
    /// Pipes and the like, and what cannot be looked at: never compared, but no folder that has such a thing is empty.
    pub unlisted: Vec<RelPath>,
    /// Those of them that are pipes and the like: no file takes their place.
    pub special: BTreeSet<RelPath>,
}

impl Held {
    /// What takes no part: it does not go with its folder unasked.
    pub fn protected(&self, selected: &[Entry]) -> Vec<RelPath> {
        let paths = self.entries.iter().map(|entry| &entry.path);
        let unselected = paths.filter(|path| Entry::find(selected, path).is_none());
        let mut protected: Vec<RelPath> = unselected.chain(&self.unlisted).cloned().collect();
        protected.sort();
        protected
    }
}

/// Whether a folder holds one of these, which are in order: what it holds follows it directly.
fn holds_one(folder: &RelPath, of: &[RelPath]) -> bool {
    let next = of.partition_point(|path| path < folder);
    of.get(next).is_some_and(|path| path.is_within(folder))
}

/// What something is removed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Something else takes its place.
    Room,
    /// The source lacks it.
    Likeness,
}

/// What goes before anything is copied, and what when everything was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Clearings {
    in_the_way: Clearing,
    extra: Clearing,
    /// What something should take the place of, and nothing ever does.
    special: Vec<RelPath>,
    /// What not even `--delete` removes, in order.
    spared: Vec<RelPath>,
}

impl Clearings {
    /// `selected` is what takes part of what is held, `spared` what goes with nothing.
    pub fn of(
        plan: &SyncPlan,
        wanted: &[Entry],
        held: &Held,
        selected: &[Entry],
        spared: Vec<RelPath>,
        extra: Extra,
    ) -> Clearings {
        let sent = plan.send.iter().map(|entry| &entry.path);
        let special = sent.filter(|path| held.special.contains(path)).cloned().collect();
        if extra == Extra::Keep {
            return Clearings {
                in_the_way: Clearing::of_what_is_in_the_way(plan, held),
                special,
                spared,
                ..Clearings::default()
            };
        }
        let is_wanted = |path: &&RelPath| Entry::find(wanted, path).is_some();
        let contested: Vec<&RelPath> = plan.delete.iter().filter(is_wanted).collect();
        let is_in_the_way = |path: &RelPath| {
            let next = contested.partition_point(|place| *place <= path);
            next > 0 && path.is_within(contested[next - 1])
        };
        let deletions = deletions(plan, selected, &spared);
        let (in_the_way, extra) = deletions.into_iter().partition(is_in_the_way);
        Clearings {
            in_the_way: Clearing::whole(in_the_way),
            extra: Clearing::whole(extra),
            special,
            spared,
        }
    }
}

/// What goes, and how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Clearing {
    /// Nodes that are deleted with their contents, as requested.
    whole: Vec<RelPath>,
    /// Folders that go if they are empty.
    empty: Vec<RelPath>,
    /// Files and links.
    files: Vec<RelPath>,
}

impl Clearing {
    fn whole(whole: Vec<RelPath>) -> Clearing {
        Clearing {
            whole,
            ..Clearing::default()
        }
    }

    fn of_what_is_in_the_way(plan: &SyncPlan, held: &Held) -> Clearing {
        let is_folder = |path: &RelPath| Entry::find(&held.entries, path).is_some_and(Entry::is_dir);
        let (empty, files) = plan.delete.iter().cloned().partition(is_folder);
        Clearing {
            empty,
            files,
            ..Clearing::default()
        }
    }

    fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.whole.iter().chain(&self.empty).chain(&self.files)
    }
}

/// Why something does not get to a place where something of another kind is, and stays.
pub(super) fn what_is_there(path: &RelPath, held: &[Entry]) -> &'static str {
    match Entry::find(held, path).map(|entry| &entry.node) {
        Some(Node::Dir) => "a folder is in its place",
        Some(Node::Symlink { .. }) => "a link is in its place",
        Some(Node::File { .. }) | None => "a file is in its place",
    }
}

/// A folder in the place of something else stays if it holds one of these, with all it holds: emptied around them it would
/// still be in the way.
pub(super) fn hold_back(plan: &mut SyncPlan, wanted: &[Entry], protected: &[RelPath]) {
    let stays = |path: &RelPath| Entry::find(wanted, path).is_some() && holds_one(path, protected);
    let (stuck, free): (Vec<RelPath>, _) = plan.delete.drain(..).partition(stays);
    plan.delete = free;
    leave_out(&mut plan.send, &stuck);
    plan.blocked.extend(stuck);
    plan.blocked.sort();
}

/// Drops what cannot get to its place, with all that lies below it.
pub(super) fn leave_out(entries: &mut Vec<Entry>, stuck: &[RelPath]) {
    if !stuck.is_empty() {
        entries.retain(|entry| !stuck.iter().any(|path| entry.path.is_within(path)));
    }
}

impl Transfer<'_> {
    /// Makes room at the destination; gives what cannot take its place, all of it told.
    pub(super) async fn make_room(
        &mut self,
        side: Side<'_>,
        plan: &SyncPlan,
        clearings: &Clearings,
        held: &Held,
        source: Completeness,
    ) -> Result<Vec<RelPath>, CliError> {
        let mut stuck = plan.blocked.clone();
        for path in &plan.blocked {
            let shown = side.shown(path);
            if self.existing() == Existing::Keep {
                self.leave(Lost::new(shown, what_is_there(path, &held.entries)));
            } else if holds_one(path, &clearings.spared) {
                self.leave(Lost::new(shown, NOT_EMPTY));
                self.tally.hint(SPARED);
            } else {
                self.is_in_the_way(shown);
            }
        }
        for path in &clearings.special {
            self.leave(Lost::new(side.shown(path), SPECIAL));
        }
        stuck.extend_from_slice(&clearings.special);
        if source == Completeness::Partial && !plan.delete.is_empty() {
            let note = "the source could not be read completely, so nothing is deleted";
            self.world.err.note(note);
        } else {
            stuck.extend(self.clear(side, &clearings.in_the_way, Purpose::Room).await?);
        }
        Ok(stuck)
    }

    /// Removes what only the destination has, unless something was left out: who lacks the new may need the old.
    pub(super) async fn clear_extra(
        &mut self,
        side: Side<'_>,
        clearings: &Clearings,
        source: Completeness,
    ) -> Result<(), CliError> {
        if source == Completeness::Partial || clearings.extra.paths().next().is_none() {
            return Ok(());
        }
        if self.tally.left_out() > 0 {
            let note = "some files could not be copied, so nothing is deleted at the destination";
            self.world.err.note(note);
            return Ok(());
        }
        self.clear(side, &clearings.extra, Purpose::Likeness).await?;
        Ok(())
    }

    /// Gives what did not go.
    async fn clear(
        &mut self,
        side: Side<'_>,
        clearing: &Clearing,
        purpose: Purpose,
    ) -> Result<Vec<RelPath>, CliError> {
        let paths: Vec<String> = clearing.paths().map(|path| side.shown(path)).collect();
        self.tally.forget_unseen(&paths);
        if self.options.dry_run {
            for path in paths {
                self.tally.removed += 1;
                self.world.out.line(format!("delete {path}"))?;
            }
            return Ok(Vec::new());
        }
        match side {
            Side::Here(folder) => self.clear_here(folder, clearing, purpose),
            Side::There(folder) => self.clear_there(folder, clearing, purpose).await,
        }
    }

    fn is_in_the_way(&mut self, path: String) {
        self.leave(Lost::new(path, NOT_EMPTY));
        self.tally.hint("`--delete` removes what is in the way");
    }

    fn stays(&mut self, path: String, reason: String, purpose: Purpose) {
        match purpose {
            Purpose::Room => self.leave(Lost::new(path, reason)),
            Purpose::Likeness => self.tally.lose(Lost::aside(Aside::Remove, path, reason)),
        }
    }

    /// Gives what did not go.
    async fn clear_there(
        &mut self,
        folder: &PfsPath,
        clearing: &Clearing,
        purpose: Purpose,
    ) -> Result<Vec<RelPath>, CliError> {
        let files = self.files;
        let (whole, empty) = (
            self.there(folder, &clearing.whole, purpose),
            self.there(folder, &clearing.empty, purpose),
        );
        let plain = self.there(folder, &clearing.files, purpose);
        let with_all = RemoveOptions {
            recursive: true,
            ..RemoveOptions::default()
        };
        let asked = files.remove(&whole, with_all).await?;
        let mut unasked = files.remove_empty_folders(&empty).await?;
        unasked.extend(files.remove(&plain, RemoveOptions::default()).await?);
        let mut stuck = Vec::new();
        for (removed, was_asked) in [(asked, true), (unasked, false)] {
            for one in removed {
                stuck.extend(self.stuck_there(folder, one, was_asked, purpose));
            }
        }
        Ok(stuck)
    }

    fn there(&mut self, folder: &PfsPath, paths: &[RelPath], purpose: Purpose) -> Vec<PfsPath> {
        let mut there = Vec::with_capacity(paths.len());
        for path in paths {
            match below(folder, path) {
                Ok(path) => there.push(path),
                Err(error) => self.stays(path.to_string(), error.to_string(), purpose),
            }
        }
        there
    }

    fn stuck_there(
        &mut self,
        folder: &PfsPath,
        removed: Removed,
        was_asked: bool,
        purpose: Purpose,
    ) -> Option<RelPath> {
        let path = removed.path.0;
        match removed.error {
            None => {
                self.tally.removed += 1;
                return None;
            }
            Some(error) if error.error == ErrorName::Conflict && !was_asked => {
                self.is_in_the_way(path.to_string());
            }
            Some(error) => self.stays(path.to_string(), error.msg, purpose),
        }
        path.place().path.strip_prefix(&folder.place().path)
    }

    /// Gives what did not go.
    fn clear_here(
        &mut self,
        folder: &Path,
        clearing: &Clearing,
        purpose: Purpose,
    ) -> Result<Vec<RelPath>, CliError> {
        if clearing.paths().next().is_none() {
            return Ok(Vec::new());
        }
        let root = Root::open(folder).map_err(|error| {
            CliError::refused(format!("cannot open `{}`: {}", shown(folder), chain(&error)))
        })?;
        type Remove = fn(&Root, &RelPath) -> Result<(), RootError>;
        let ways: [(&[RelPath], Remove, bool); 3] = [
            (&clearing.whole, Root::remove_all, true),
            (&clearing.empty, Root::remove_folder, false),
            (&clearing.files, Root::remove, false),
        ];
        let mut stuck = Vec::new();
        for (paths, remove, was_asked) in ways {
            for path in paths {
                match remove(&root, path) {
                    Ok(()) => self.tally.removed += 1,
                    Err(error) => {
                        self.stays_here(shown_in(folder, path), &error, was_asked, purpose);
                        stuck.push(path.clone());
                    }
                }
            }
        }
        Ok(stuck)
    }

    fn stays_here(&mut self, path: String, error: &RootError, was_asked: bool, purpose: Purpose) {
        match error {
            RootError::NotEmpty(_) | RootError::Exists(_) if !was_asked => self.is_in_the_way(path),
            _ => self.stays(path, chain(error), purpose),
        }
    }
}

/// What to delete where that was asked for: as planned, but folders that hold something spared are emptied around it.
fn deletions(plan: &SyncPlan, selected: &[Entry], spared: &[RelPath]) -> Vec<RelPath> {
    let mut deleted: Vec<RelPath> = Vec::new();
    for whole in &plan.delete {
        if !holds_one(whole, spared) {
            deleted.push(whole.clone());
            continue;
        }
        let from = selected.partition_point(|entry| entry.path < *whole);
        let held = selected[from..]
            .iter()
            .take_while(|entry| entry.path.is_within(whole));
        for entry in held {
            let is_covered = deleted.last().is_some_and(|last| entry.path.is_within(last));
            if !is_covered && !holds_one(&entry.path, spared) {
                deleted.push(entry.path.clone());
            }
        }
    }
    deleted
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::sync::{SyncOptions, plan};

    use super::*;
    use crate::transfer::filter::Selection;
    use crate::transfer::filter::tests::{args, tree};

    fn excluding(pattern: &str) -> Selection {
        args(&["--exclude", pattern]).selection().unwrap()
    }

    fn texts(paths: &[RelPath]) -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    }

    fn deleted(selection: &Selection, target: &[&str], unlisted: &[&str]) -> Vec<String> {
        let target = tree(target);
        let mut taking_part = target.clone();
        selection.apply(&mut taking_part);
        let options = SyncOptions {
            extra: Extra::Delete,
            ..SyncOptions::default()
        };
        let plan = plan(&[], &taking_part, options);
        texts(&deletions(
            &plan,
            &taking_part,
            &protected(&target, unlisted, &taking_part),
        ))
    }

    fn protected(target: &[Entry], unlisted: &[&str], selected: &[Entry]) -> Vec<RelPath> {
        let held = Held {
            entries: target.to_vec(),
            unlisted: unlisted.iter().map(|path| path.parse().unwrap()).collect(),
            ..Held::default()
        };
        held.protected(selected)
    }

    #[test]
    fn whole_folders_go_at_once() {
        assert_eq!(
            deleted(&Selection::default(), &["a/", "a/b/", "a/b/c", "d"], &[]),
            ["a", "d"]
        );
    }

    #[test]
    fn what_takes_no_part_is_not_deleted_with_its_folder() {
        let target = ["a/", "a/b/", "a/b/c", "a/keep.log", "d/", "d/e", "x.log"];
        assert_eq!(deleted(&excluding("*.log"), &target, &[]), ["a/b", "d"]);
    }

    #[test]
    fn nor_is_what_a_listing_does_not_tell() {
        let target = ["a/", "a/b", "c/", "c/d/", "c/d/e", "f/"];
        assert_eq!(
            deleted(&excluding("*.log"), &target, &["a/closed", "c/d/x.sock"]),
            ["a/b", "c/d/e", "f"]
        );
    }

    #[test]
    fn unasked_only_files_and_folders_that_seem_empty_go_and_each_as_what_it_is() {
        let source = tree(&["a", "b/", "b/c", "d"]);
        let held = Held {
            entries: tree(&["a/", "b", "d/", "d/e", "z"]),
            ..Held::default()
        };
        let made = plan(&source, &held.entries, SyncOptions::default());
        let clearing = Clearing::of_what_is_in_the_way(&made, &held);
        assert_eq!(
            (texts(&clearing.empty), texts(&clearing.files)),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        assert!(clearing.whole.is_empty());
        assert_eq!(texts(&made.blocked), ["d"]);
    }

    #[test]
    fn what_is_in_the_way_goes_first_and_the_rest_last() {
        let source = tree(&["a", "b/", "b/c", "d/", "d/e", "f"]);
        let held = Held {
            entries: tree(&[
                "a/", "a/x", "a/y.log", "b", "d/", "d/old", "f/", "f/x", "z/", "z/y",
            ]),
            ..Held::default()
        };
        let options = SyncOptions {
            extra: Extra::Delete,
            ..SyncOptions::default()
        };
        let selection = excluding("*.log");
        let mut selected = held.entries.clone();
        selection.apply(&mut selected);
        let mut made = plan(&source, &selected, options);
        let spared = held.protected(&selected);
        hold_back(&mut made, &source, &spared);
        let clearings = Clearings::of(&made, &source, &held, &selected, spared, Extra::Delete);
        assert_eq!(texts(&clearings.in_the_way.whole), ["b", "f"]);
        assert_eq!(texts(&clearings.extra.whole), ["d/old", "z"]);
        assert_eq!(
            texts(&made.blocked),
            ["a"],
            "emptied it would still be in the way"
        );
    }

    #[test]
    fn a_folder_with_what_takes_no_part_is_in_the_way() {
        let source = tree(&["a", "b", "c", "d/", "d/e"]);
        let selection = excluding("*.log");
        let held = Held {
            entries: tree(&["a/", "b/", "b/x.log", "c/", "d"]),
            unlisted: vec!["a/socket".parse().unwrap()],
            ..Held::default()
        };
        let mut selected = held.entries.clone();
        selection.apply(&mut selected);
        let mut made = plan(&source, &selected, SyncOptions::default());
        assert_eq!(texts(&made.delete), ["a", "b", "c", "d"]);
        hold_back(&mut made, &source, &held.protected(&selected));
        assert_eq!(texts(&made.delete), ["c", "d"]);
        assert_eq!(texts(&made.blocked), ["a", "b"]);
        let sent: Vec<String> = made.send.iter().map(|entry| entry.path.to_string()).collect();
        assert_eq!(sent, ["c", "d", "d/e"]);
    }
}
