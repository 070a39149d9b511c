//! Makes one folder like another: what `sync` does.
//!
//! What takes no part (`--exclude`) is neither sent nor deleted. When the source could not be read completely,
//! nothing is deleted.

use std::path::Path;

use paddlecloud_api::client::files::RemoveOptions;
use paddlecloud_api::files::{below, is_ours};
use paddlecloud_pfs::sync::{Compare, Extra, SyncOptions, SyncPlan, plan};
use paddlecloud_pfs::{Entry, PfsPath, RelPath};

use super::filter::Selection;
use super::location::{Location, settle, shown, shown_in};
use super::report::Lost;
use super::rules::Target;
use super::up::Completeness;
use super::{Transfer, TransferArgs, local, remote};
use crate::commands::Context;
use crate::error::{CliError, chain};

/// A sync as it was asked for.
#[derive(Debug)]
pub struct Mirror {
    pub src: Location,
    pub dest: Location,
    /// Whether what only the destination has is removed.
    pub delete: bool,
}

/// Makes `dest` like `src`, tells how it went and gives the exit code.
pub async fn mirror(
    mut mirror: Mirror,
    args: &TransferArgs,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let is_remote = |location: &Location| matches!(location, Location::Remote(_));
    let is_pipe = |location: &Location| *location == Location::Pipe;
    let ends = [&mirror.src, &mirror.dest];
    if !ends.into_iter().any(is_remote) || ends.into_iter().any(is_pipe) {
        return Err(CliError::usage(
            "one of the two folders must lie on the cluster, and none can be `-`",
        ));
    }
    let selection = args.filter.selection()?;
    let session = context.session().await?;
    let ends = [&mut mirror.src, &mut mirror.dest];
    settle(&session, ends.into_iter().filter_map(Location::as_remote_mut)).await?;
    let mut transfer = Transfer::new(&session, args.options(), selection, context.world);
    let extra = if mirror.delete { Extra::Delete } else { Extra::Keep };
    match (&mirror.src, &mirror.dest) {
        (Location::Local(src), Location::Remote(dest)) => transfer.mirror_up(src, &dest.path, extra).await?,
        (Location::Remote(src), Location::Local(dest)) => {
            transfer.mirror_down(&src.path, dest, extra).await?
        }
        (Location::Remote(src), Location::Remote(dest)) => {
            transfer.mirror_across(&src.path, &dest.path, extra).await?;
        }
        _ => {}
    }
    transfer.end()
}

impl Transfer<'_> {
    async fn mirror_up(&mut self, src: &Path, dest: &PfsPath, extra: Extra) -> Result<(), CliError> {
        must_be_folder(&shown(src), local::target(src).unwrap_or(Target::Missing))?;
        let had = self.remote_entries(dest).await?;
        let Some((mut wanted, completeness)) = self.look_through(src) else {
            return Ok(());
        };
        leave_ours(dest, &mut wanted);
        let plan = self.plan(&wanted, &had, extra);
        self.tell_blocked(&plan, &mut wanted, |path| format!("{dest}/{path}"));
        match (completeness, plan.delete.is_empty()) {
            (Completeness::Partial, false) => self.note_nothing_deleted(),
            _ => {
                self.delete_there(dest, &deletions(&plan, &had, &self.selection))
                    .await?
            }
        }
        match self.tree_up(src, dest.clone(), wanted).await? {
            Some(upload) => self.send(&shown(src), vec![upload]).await,
            None => Ok(()),
        }
    }

    async fn mirror_down(&mut self, src: &PfsPath, dest: &Path, extra: Extra) -> Result<(), CliError> {
        self.moved = "received";
        must_be_folder(&src.to_string(), remote::target(&self.files, src).await?)?;
        let have = match local::target(dest) {
            Ok(Target::Missing) => local::Walked::default(),
            Ok(Target::Folder) => local::walk(dest).map_err(|error| {
                CliError::refused(format!("cannot read `{}`: {}", shown(dest), chain(&error)))
            })?,
            _ => return Err(CliError::refused(format!("`{}` is not a folder", shown(dest)))),
        };
        let Some((mut wanted, completeness)) = self.look_through_there(src).await? else {
            return Ok(());
        };
        leave_ours(src, &mut wanted);
        self.select(&mut wanted);
        let mut have = have.entries;
        leave_ours(src, &mut have);
        let plan = self.plan(&wanted, &have, extra);
        self.tell_blocked(&plan, &mut wanted, |path| shown_in(dest, path));
        match (completeness, plan.delete.is_empty()) {
            (Completeness::Partial, false) => self.note_nothing_deleted(),
            _ => self.delete_here(dest, &deletions(&plan, &have, &self.selection))?,
        }
        let Some(download) = self.tree_down(src.clone(), dest.to_owned(), wanted) else {
            return Ok(());
        };
        self.fetch(&src.to_string(), vec![download]).await
    }

    async fn mirror_across(&mut self, src: &PfsPath, dest: &PfsPath, extra: Extra) -> Result<(), CliError> {
        self.moved = "copied";
        must_be_folder(&src.to_string(), remote::target(&self.files, src).await?)?;
        let inside = |a: &PfsPath, b: &PfsPath| {
            a.place().space == b.place().space && a.place().path.is_within(&b.place().path)
        };
        if inside(src, dest) || inside(dest, src) {
            return Err(CliError::refused("one of the two folders lies in the other"));
        }
        if self.options.checksum {
            self.compare = Compare::Digest;
        }
        let had = self.remote_entries(dest).await?;
        let Some((mut wanted, completeness)) = self.look_through_there(src).await? else {
            return Ok(());
        };
        leave_ours(src, &mut wanted);
        self.select(&mut wanted);
        leave_ours(dest, &mut wanted);
        let plan = self.plan(&wanted, &had, extra);
        self.tell_blocked(&plan, &mut wanted, |path| format!("{dest}/{path}"));
        match (completeness, plan.delete.is_empty()) {
            (Completeness::Partial, false) => self.note_nothing_deleted(),
            _ => {
                self.delete_there(dest, &deletions(&plan, &had, &self.selection))
                    .await?
            }
        }
        self.tally.unchanged += plan.unchanged;
        self.tally.kept += plan.kept.len() as u64;
        self.copy_entries(src, dest, &plan.send).await
    }

    async fn remote_entries(&mut self, folder: &PfsPath) -> Result<Vec<Entry>, CliError> {
        match remote::target(&self.files, folder).await? {
            Target::Missing => Ok(Vec::new()),
            Target::Folder => {
                let mut listed = remote::entries_to_compare(&self.files, folder, self.compare).await?;
                self.tell_unread(listed.unread);
                leave_ours(folder, &mut listed.entries);
                Ok(listed.entries)
            }
            Target::File => Err(CliError::refused(format!("`{folder}` is not a folder"))),
        }
    }

    fn plan(&self, source: &[Entry], target: &[Entry], extra: Extra) -> SyncPlan {
        let mut target = target.to_vec();
        self.selection.apply(&mut target);
        let options = SyncOptions {
            extra,
            existing: self.existing(),
            compare: self.compare,
        };
        plan(source, &target, options)
    }

    /// Counts what cannot take its place as lost, and leaves it out.
    fn tell_blocked(&mut self, plan: &SyncPlan, wanted: &mut Vec<Entry>, shown: impl Fn(&RelPath) -> String) {
        if plan.blocked.is_empty() {
            return;
        }
        for path in &plan.blocked {
            let reason = "a folder that is not empty is in its place";
            self.tally.lose(Lost::new(shown(path), reason));
        }
        self.tally.hint("`--delete` removes what is in the way");
        wanted.retain(|entry| plan.blocked.binary_search(&entry.path).is_err());
    }

    fn note_nothing_deleted(&mut self) {
        let note = "the source could not be read completely, so nothing is deleted";
        self.world.err.note(note);
    }

    async fn delete_there(&mut self, folder: &PfsPath, paths: &[RelPath]) -> Result<(), CliError> {
        let mut there = Vec::new();
        for path in paths {
            match below(folder, path) {
                Ok(path) => there.push(path),
                Err(error) => self.tally.lose(Lost::new(path.to_string(), error.to_string())),
            }
        }
        if self.options.dry_run {
            self.tally.removed += there.len() as u64;
            return there
                .iter()
                .try_for_each(|path| self.world.out.line(format!("delete {path}")));
        }
        let options = RemoveOptions {
            recursive: true,
            dry_run: false,
        };
        for removed in self.files.remove(&there, options).await? {
            match removed.error {
                None => self.tally.removed += 1,
                Some(error) => self.tally.lose(Lost::new(removed.path.to_string(), error.msg)),
            }
        }
        Ok(())
    }

    fn delete_here(&mut self, folder: &Path, paths: &[RelPath]) -> Result<(), CliError> {
        if paths.is_empty() {
            return Ok(());
        }
        if self.options.dry_run {
            self.tally.removed += paths.len() as u64;
            return paths.iter().try_for_each(|path| {
                let path = shown_in(folder, path);
                self.world.out.line(format!("delete {path}"))
            });
        }
        let root = paddlecloud_pfs::Root::open(folder).map_err(|error| {
            CliError::refused(format!("cannot open `{}`: {}", shown(folder), chain(&error)))
        })?;
        for path in paths {
            match root.remove_all(path) {
                Ok(()) => self.tally.removed += 1,
                Err(error) => {
                    let path = shown_in(folder, path);
                    self.tally.lose(Lost::new(path, chain(&error)));
                }
            }
        }
        Ok(())
    }
}

/// What is the server's own in a home takes no part, whichever side it is on.
fn leave_ours(home: &PfsPath, entries: &mut Vec<Entry>) {
    entries.retain(|entry| !is_ours(home, &entry.path));
}

fn must_be_folder(shown: &str, target: Target) -> Result<(), CliError> {
    match target {
        Target::Folder => Ok(()),
        Target::File => {
            Err(CliError::refused(format!("`{shown}` is not a folder")).with_hint("`cp` copies single files"))
        }
        Target::Missing => Err(CliError::refused(format!("there is no folder `{shown}`"))),
    }
}

/// What to delete: as planned, but folders that hold something excluded are emptied around it.
fn deletions(plan: &SyncPlan, target: &[Entry], selection: &Selection) -> Vec<RelPath> {
    let mut selected = target.to_vec();
    selection.apply(&mut selected);
    let is_selected = |path: &RelPath| selected.binary_search_by(|entry| entry.path.cmp(path)).is_ok();
    let protected: Vec<&RelPath> = target
        .iter()
        .map(|entry| &entry.path)
        .filter(|path| !is_selected(path))
        .collect();
    // What a folder holds follows it directly.
    let holds_protected = |folder: &RelPath| {
        let next = protected.partition_point(|path| *path < folder);
        protected.get(next).is_some_and(|path| path.is_within(folder))
    };
    let mut deleted: Vec<RelPath> = Vec::new();
    for whole in &plan.delete {
        if !holds_protected(whole) {
            deleted.push(whole.clone());
            continue;
        }
        let from = selected.partition_point(|entry| entry.path < *whole);
        let held = selected[from..]
            .iter()
            .take_while(|entry| entry.path.is_within(whole));
        for entry in held {
            let is_covered = deleted.last().is_some_and(|last| entry.path.is_within(last));
            if !is_covered && !holds_protected(&entry.path) {
                deleted.push(entry.path.clone());
            }
        }
    }
    deleted
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use paddlecloud_pfs::{Mtime, Node};

    use super::*;
    use crate::transfer::filter::FilterArgs;

    fn tree(paths: &[&str]) -> Vec<Entry> {
        let entry = |path: &&str| Entry {
            path: path.trim_end_matches('/').parse().unwrap(),
            node: match path.ends_with('/') {
                true => Node::Dir,
                false => Node::File {
                    size: 0,
                    executable: false,
                    digest: None,
                },
            },
            mtime: Mtime::default(),
        };
        paths.iter().map(entry).collect()
    }

    fn excluding(pattern: &str) -> Selection {
        let command = FilterArgs::augment_args(clap::Command::new("t"));
        let matches = command.get_matches_from(["t", "--exclude", pattern]);
        FilterArgs::from_arg_matches(&matches)
            .unwrap()
            .selection()
            .unwrap()
    }

    fn deleted(selection: &Selection, target: &[&str]) -> Vec<String> {
        let target = tree(target);
        let mut taking_part = target.clone();
        selection.apply(&mut taking_part);
        let options = SyncOptions {
            extra: Extra::Delete,
            ..SyncOptions::default()
        };
        let plan = plan(&[], &taking_part, options);
        deletions(&plan, &target, selection)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn whole_folders_go_at_once() {
        assert_eq!(
            deleted(&Selection::default(), &["a/", "a/b/", "a/b/c", "d"]),
            ["a", "d"]
        );
    }

    #[test]
    fn what_takes_no_part_is_not_deleted_with_its_folder() {
        let target = ["a/", "a/b/", "a/b/c", "a/keep.log", "d/", "d/e", "x.log"];
        assert_eq!(deleted(&excluding("*.log"), &target), ["a/b", "d"]);
    }
}
