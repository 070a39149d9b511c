//! What `sync --delete` deletes: before copying, entries whose type differs from the source's; after copying, entries that only
//! the destination has. Without `--delete` nothing is deleted.

use std::collections::BTreeSet;
use std::path::Path;

use paddlecloud_api::files::below;
use paddlecloud_pfs::sync::SyncPlan;
use paddlecloud_pfs::{Entry, Existing, Node, PfsPath, RelPath, Root};
use paddlecloud_transfer::RemoveOptions;

use super::Transfer;
use super::location::{shown, shown_in};
use super::report::{Aside, Lost};
use super::up::Completeness;
use crate::error::{CliError, chain};

const SPECIAL: &str = "a socket, pipe or device is in the way";

const PROTECTED_HINT: &str =
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

/// The contents of the destination.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub entries: Vec<Entry>,
    /// Special files such as pipes, and unreadable entries: never compared, but a folder that contains one is not empty.
    pub unlisted: Vec<RelPath>,
    /// Those of them that are special files: they are never replaced.
    pub special: BTreeSet<RelPath>,
}

impl Held {
    /// Entries that are not selected: they must not be deleted together with their folder.
    pub fn protected(&self, selected: &[Entry]) -> Vec<RelPath> {
        let paths = self.entries.iter().map(|entry| &entry.path);
        let unselected = paths.filter(|path| Entry::find(selected, path).is_none());
        let mut protected: Vec<RelPath> = unselected.chain(&self.unlisted).cloned().collect();
        protected.sort();
        protected
    }
}

/// Whether a folder contains one of these sorted paths: a folder's contents directly follow it.
fn holds_one(folder: &RelPath, of: &[RelPath]) -> bool {
    let next = of.partition_point(|path| path < folder);
    of.get(next).is_some_and(|path| path.is_within(folder))
}

/// Why an entry is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Another entry takes its place.
    Room,
    /// The source lacks it.
    Likeness,
}

/// The entries to delete before copying and those to delete after it, each with its contents.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Clearings {
    in_the_way: Vec<RelPath>,
    extra: Vec<RelPath>,
    /// Special files where the source has another entry. They are never replaced.
    special: Vec<RelPath>,
    /// What not even `--delete` removes, sorted.
    protected: Vec<RelPath>,
}

impl Clearings {
    /// `selected` are the entries of `held` that the filter selects; `protected` is never deleted.
    pub fn of(
        plan: &SyncPlan,
        source: &[Entry],
        held: &Held,
        selected: &[Entry],
        protected: Vec<RelPath>,
    ) -> Clearings {
        let sent = plan.send.iter().map(|entry| &entry.path);
        let special = sent.filter(|path| held.special.contains(path)).cloned().collect();
        let is_in_source = |path: &&RelPath| Entry::find(source, path).is_some();
        let contested: Vec<&RelPath> = plan.delete.iter().filter(is_in_source).collect();
        let is_in_the_way = |path: &RelPath| {
            let next = contested.partition_point(|place| *place <= path);
            next > 0 && path.is_within(contested[next - 1])
        };
        let deletions = deletions(plan, selected, &protected);
        let (in_the_way, extra) = deletions.into_iter().partition(is_in_the_way);
        Clearings {
            in_the_way,
            extra,
            special,
            protected,
        }
    }
}

/// Why an entry is not copied if an entry of another type stays at its destination.
pub(super) fn what_is_there(path: &RelPath, held: &[Entry]) -> &'static str {
    match Entry::find(held, path).map(|entry| &entry.node) {
        Some(Node::Dir) => "a folder is in the way",
        Some(Node::Symlink { .. }) => "a link is in the way",
        Some(Node::File { .. }) | None => "a file is in the way",
    }
}

/// A folder in the place of another entry stays, with all its contents, if it contains a protected path: deleting only the rest
/// would not make room.
pub(super) fn hold_back(plan: &mut SyncPlan, source: &[Entry], protected: &[RelPath]) {
    let stays = |path: &RelPath| Entry::find(source, path).is_some() && holds_one(path, protected);
    let (stuck, free): (Vec<RelPath>, _) = plan.delete.drain(..).partition(stays);
    plan.delete = free;
    leave_out(&mut plan.send, &stuck);
    plan.blocked.extend(stuck);
    plan.blocked.sort();
}

/// Drops entries that cannot be copied, with everything below them.
pub(super) fn leave_out(entries: &mut Vec<Entry>, stuck: &[RelPath]) {
    if !stuck.is_empty() {
        entries.retain(|entry| !stuck.iter().any(|path| entry.path.is_within(path)));
    }
}

impl Transfer<'_> {
    /// Makes room at the destination. Reports and returns the entries that cannot be copied.
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
            self.leave(Lost::new(side.shown(path), what_is_there(path, &held.entries)));
            if holds_one(path, &clearings.protected) {
                self.tally.hint(PROTECTED_HINT);
            } else if self.options.existing() == Existing::Replace {
                self.tally.hint("`--delete` removes what is in the way");
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

    /// Removes what only the destination has, unless a file could not be copied: its user may still need the old files.
    pub(super) async fn clear_extra(
        &mut self,
        side: Side<'_>,
        clearings: &Clearings,
        source: Completeness,
    ) -> Result<(), CliError> {
        if source == Completeness::Partial || clearings.extra.is_empty() {
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

    /// Removes with a report; returns what could not be removed.
    async fn clear(
        &mut self,
        side: Side<'_>,
        paths: &[RelPath],
        purpose: Purpose,
    ) -> Result<Vec<RelPath>, CliError> {
        let shown: Vec<String> = paths.iter().map(|path| side.shown(path)).collect();
        self.tally.forget_unseen(&shown);
        if self.options.dry_run {
            for path in shown {
                self.tally.removed += 1;
                self.world.out.line(format!("delete {path}"))?;
            }
            return Ok(Vec::new());
        }
        let failed = match side {
            Side::Here(folder) => remove_here(folder, paths)?,
            Side::There(folder) => self.remove_on_server(folder, paths).await?,
        };
        self.tally.removed += (paths.len() - failed.len()) as u64;
        let mut stuck = Vec::new();
        for (path, reason) in failed {
            let shown = side.shown(&path);
            match purpose {
                Purpose::Room => self.leave(Lost::new(shown, reason)),
                Purpose::Likeness => self.tally.lose(Lost::aside(Aside::Remove, shown, reason)),
            }
            stuck.push(path);
        }
        Ok(stuck)
    }

    /// Returns what could not be removed, and why.
    async fn remove_on_server(
        &self,
        folder: &PfsPath,
        paths: &[RelPath],
    ) -> Result<Vec<(RelPath, String)>, CliError> {
        let mut failed = Vec::new();
        let (mut asked, mut there) = (Vec::new(), Vec::new());
        for path in paths {
            match below(folder, path) {
                Ok(place) => {
                    asked.push(path);
                    there.push(place);
                }
                Err(error) => failed.push((path.clone(), error.to_string())),
            }
        }
        let options = RemoveOptions {
            recursive: true,
            ..RemoveOptions::default()
        };
        let removed = self.files.remove(&there, options).await?;
        for (path, removed) in asked.into_iter().zip(removed) {
            failed.extend(removed.error.map(|error| (path.clone(), error.msg)));
        }
        Ok(failed)
    }
}

/// Returns what could not be removed, and why.
fn remove_here(folder: &Path, paths: &[RelPath]) -> Result<Vec<(RelPath, String)>, CliError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let root = Root::open(folder)
        .map_err(|error| CliError::refused(format!("cannot open `{}`: {}", shown(folder), chain(&error))))?;
    let failed = paths.iter().filter_map(|path| {
        let error = root.remove_all(path).err()?;
        Some((path.clone(), chain(&error)))
    });
    Ok(failed.collect())
}

/// What `--delete` deletes: as planned, but of a folder that contains a protected path only the rest.
fn deletions(plan: &SyncPlan, selected: &[Entry], protected: &[RelPath]) -> Vec<RelPath> {
    let mut deleted: Vec<RelPath> = Vec::new();
    for whole in &plan.delete {
        if !holds_one(whole, protected) {
            deleted.push(whole.clone());
            continue;
        }
        let from = selected.partition_point(|entry| entry.path < *whole);
        let held = selected[from..]
            .iter()
            .take_while(|entry| entry.path.is_within(whole));
        for entry in held {
            let is_covered = deleted.last().is_some_and(|last| entry.path.is_within(last));
            if !is_covered && !holds_one(&entry.path, protected) {
                deleted.push(entry.path.clone());
            }
        }
    }
    deleted
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::sync::{Extra, SyncOptions, plan};

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
    fn complete_folders_are_deleted_at_once() {
        assert_eq!(
            deleted(&Selection::default(), &["a/", "a/b/", "a/b/c", "d"], &[]),
            ["a", "d"]
        );
    }

    #[test]
    fn excluded_files_are_not_deleted_with_their_folder() {
        let target = ["a/", "a/b/", "a/b/c", "a/keep.log", "d/", "d/e", "x.log"];
        assert_eq!(deleted(&excluding("*.log"), &target, &[]), ["a/b", "d"]);
    }

    #[test]
    fn unlisted_entries_are_not_deleted_with_their_folder() {
        let target = ["a/", "a/b", "c/", "c/d/", "c/d/e", "f/"];
        assert_eq!(
            deleted(&excluding("*.log"), &target, &["a/closed", "c/d/x.sock"]),
            ["a/b", "c/d/e", "f"]
        );
    }

    #[test]
    fn conflicting_entries_are_deleted_first_and_extra_ones_last() {
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
        let protected = held.protected(&selected);
        hold_back(&mut made, &source, &protected);
        let clearings = Clearings::of(&made, &source, &held, &selected, protected);
        assert_eq!(texts(&clearings.in_the_way), ["b", "f"]);
        assert_eq!(texts(&clearings.extra), ["d/old", "z"]);
        assert_eq!(
            texts(&made.blocked),
            ["a"],
            "emptied it would still be in the way"
        );
    }
}
