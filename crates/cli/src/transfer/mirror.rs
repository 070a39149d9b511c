//! `sync`: copies to one folder what is new or changed in another.
//!
//! Excluded files are neither sent nor deleted. If the source could not be read completely, nothing is deleted. If a file could
//! not be copied, only entries that were in the way are deleted.

use std::path::Path;

use paddlecloud_api::files::{is_ours, space_of};
use paddlecloud_pfs::sync::{Compare, Extra, SyncOptions, SyncPlan, plan};
use paddlecloud_pfs::{Entry, PfsPath, RootError};

use super::clearing::{Clearings, Held, Side, hold_back, leave_out};
use super::location::{Location, shown, translate_datacenter};
use super::report::{Aside, Lost};
use super::rules::Target;
use super::up::Completeness;
use super::{Transfer, TransferArgs, local, remote};
use crate::commands::Context;
use crate::error::{CliError, chain};

/// The sync that was requested.
#[derive(Debug)]
pub struct Mirror {
    pub src: Location,
    pub dest: Location,
    /// Whether to remove what only the destination has.
    pub delete: bool,
}

/// Makes `dest` like `src`, reports the result and returns the exit code.
pub async fn mirror(
    mut mirror: Mirror,
    args: &TransferArgs,
    context: &mut Context<'_>,
) -> Result<u8, CliError> {
    let is_remote = |location: &Location| matches!(location, Location::Remote(_));
    let is_pipe = |location: &Location| *location == Location::Pipe;
    let ends = [&mirror.src, &mirror.dest];
    if !ends.into_iter().any(is_remote) || ends.into_iter().any(is_pipe) {
        return Err(
            CliError::usage("one of the two folders must be on the cluster, and neither can be `-`")
                .with_hint("paths on the cluster look like `/pfs/<datacenter>/home/<user>/…`"),
        );
    }
    let selection = args.filter.selection()?;
    let session = context.session().await?;
    let ends = [&mut mirror.src, &mut mirror.dest];
    translate_datacenter(&session, ends.into_iter().filter_map(Location::as_remote_mut)).await?;
    let mut transfer = Transfer::new(&session, args.options(), selection, context.world);
    let extra = if mirror.delete { Extra::Delete } else { Extra::Keep };
    let mirrored = match (&mirror.src, &mirror.dest) {
        (Location::Local(src), Location::Remote(dest)) => transfer.mirror_up(src, &dest.path, extra).await,
        (Location::Remote(src), Location::Local(dest)) => transfer.mirror_down(&src.path, dest, extra).await,
        (Location::Remote(src), Location::Remote(dest)) => {
            transfer.mirror_across(&src.path, &dest.path, extra).await
        }
        _ => Ok(()),
    };
    transfer.end(mirrored)
}

impl Transfer<'_> {
    async fn mirror_up(&mut self, src: &Path, dest: &PfsPath, extra: Extra) -> Result<(), CliError> {
        must_be_folder(&shown(src), local::target(src).unwrap_or(Target::Missing))?;
        let place = self.files.real_path(dest).await?;
        must_be_the_users(dest, &place)?;
        let held = self.held_on_server(dest, &place, Compare::default()).await?;
        let Some((mut source, completeness)) = self.look_through(src) else {
            return Ok(());
        };
        leave_ours(&place, &mut source);
        let (plan, clearings) = self.plan(&source, &held, extra, Compare::default());
        let side = Side::There(dest);
        let stuck = self
            .make_room(side, &plan, &clearings, &held, completeness)
            .await?;
        leave_out(&mut source, &stuck);
        if let Some(upload) = self.tree_up(src, dest.clone(), source).await? {
            self.send(&shown(src), vec![upload]).await?;
        }
        self.clear_extra(side, &clearings, completeness).await
    }

    async fn mirror_down(&mut self, src: &PfsPath, dest: &Path, extra: Extra) -> Result<(), CliError> {
        self.moved = "received";
        must_be_folder(&src.to_string(), remote::target(&self.files, src).await?)?;
        let place = self.files.real_path(src).await?;
        let mut held = held_here(dest)?;
        leave_ours(&place, &mut held.entries);
        let Some((mut source, completeness)) = self.source_on_server(src, &place, Compare::default()).await?
        else {
            return Ok(());
        };
        let (plan, clearings) = self.plan(&source, &held, extra, Compare::default());
        let side = Side::Here(dest);
        let stuck = self
            .make_room(side, &plan, &clearings, &held, completeness)
            .await?;
        leave_out(&mut source, &stuck);
        if let Some(download) = self.tree_down(src.clone(), dest.to_owned(), source) {
            self.fetch(&src.to_string(), vec![download]).await?;
        }
        self.clear_extra(side, &clearings, completeness).await
    }

    async fn mirror_across(&mut self, src: &PfsPath, dest: &PfsPath, extra: Extra) -> Result<(), CliError> {
        self.moved = "copied";
        must_be_folder(&src.to_string(), remote::target(&self.files, src).await?)?;
        let from = self.files.real_path(src).await?;
        let to = self.files.real_path(dest).await?;
        must_not_overlap((src, &from), (dest, &to))?;
        must_be_the_users(dest, &to)?;
        let compare = self.compare();
        let held = self.held_on_server(dest, &to, compare).await?;
        let Some((mut source, completeness)) = self.source_on_server(src, &from, compare).await? else {
            return Ok(());
        };
        leave_ours(&to, &mut source);
        // Before anything makes room for them.
        self.leave_links_outside(src, &mut source);
        let (mut plan, clearings) = self.plan(&source, &held, extra, compare);
        let side = Side::There(dest);
        let stuck = self
            .make_room(side, &plan, &clearings, &held, completeness)
            .await?;
        leave_out(&mut plan.send, &stuck);
        self.copy_plan(src, dest, &plan).await?;
        self.clear_extra(side, &clearings, completeness).await
    }

    /// The selected entries of a source whose real path is `place`, and whether all could be read; `None`, after a report, if it
    /// cannot be listed.
    async fn source_on_server(
        &mut self,
        src: &PfsPath,
        place: &PfsPath,
        compare: Compare,
    ) -> Result<Option<(Vec<Entry>, Completeness)>, CliError> {
        let Some(mut listed) = self.list_on_server(src, compare).await? else {
            return Ok(None);
        };
        listed.leave_ours(src, place);
        let (mut source, completeness) = self.tell_what_stays(src, listed);
        self.select(&mut source);
        Ok(Some((source, completeness)))
    }

    async fn held_on_server(
        &mut self,
        folder: &PfsPath,
        place: &PfsPath,
        compare: Compare,
    ) -> Result<Held, CliError> {
        match remote::target(&self.files, folder).await? {
            Target::Missing => Ok(Held::default()),
            Target::Folder => {
                let mut listed = remote::entries_to_compare(&self.files, folder, compare).await?;
                listed.leave_ours(folder, place);
                listed.take_damaged(folder);
                let unread = listed.unread.iter();
                let mut unlisted = listed.special.clone();
                unlisted.extend(unread.filter_map(|unread| remote::path_in(folder, unread)));
                for one in listed.unread {
                    let lost = Lost::aside(Aside::Look, one.path.to_string(), one.error.msg);
                    self.tally.lose(lost);
                }
                Ok(Held {
                    entries: listed.entries,
                    unlisted,
                    special: listed.special.into_iter().collect(),
                })
            }
            Target::File => Err(CliError::refused(format!("`{folder}` is not a folder"))),
        }
    }

    fn plan(&self, source: &[Entry], held: &Held, extra: Extra, compare: Compare) -> (SyncPlan, Clearings) {
        let mut selected = held.entries.clone();
        self.selection.apply(&mut selected);
        let options = SyncOptions {
            extra,
            existing: self.options.existing(),
            compare,
        };
        let mut plan = plan(source, &selected, options);
        // If everything is selected, `--delete` also applies to entries that a listing omits.
        let protected = match self.selection.is_all() {
            true => Vec::new(),
            false => held.protected(&selected),
        };
        hold_back(&mut plan, source, &protected);
        let clearings = Clearings::of(&plan, source, held, &selected, protected);
        (plan, clearings)
    }
}

fn held_here(folder: &Path) -> Result<Held, CliError> {
    let cannot = |why: String| CliError::refused(format!("cannot read `{}`: {why}", shown(folder)));
    match local::target(folder) {
        Ok(Target::Missing) => Ok(Held::default()),
        Ok(Target::Folder) => {
            let walked = paddlecloud_transfer::walk(folder).map_err(|error| cannot(chain(&error)))?;
            let unread = walked.unread.iter().filter_map(RootError::path);
            Ok(Held {
                entries: walked.entries,
                unlisted: unread.chain(&walked.special).cloned().collect(),
                special: walked.special.into_iter().collect(),
            })
        }
        Ok(Target::File) => Err(CliError::refused(format!("`{}` is not a folder", shown(folder)))),
        Err(error) => Err(cannot(error.to_string())),
    }
}

/// The server's own folders in a home are never selected, on either side.
fn leave_ours(home: &PfsPath, entries: &mut Vec<Entry>) {
    entries.retain(|entry| !is_ours(home, &entry.path));
}

/// A folder inside the other one, by its path or through links, would be removed or filled while it is read.
fn must_not_overlap(src: (&PfsPath, &PfsPath), dest: (&PfsPath, &PfsPath)) -> Result<(), CliError> {
    let is_inside = |path: (&PfsPath, &PfsPath), folder: (&PfsPath, &PfsPath)| {
        remote::is_written_within(path.0, folder.0) || remote::is_written_within(path.1, folder.1)
    };
    match (is_inside(src, dest), is_inside(dest, src)) {
        (false, false) => Ok(()),
        (true, true) => Err(CliError::refused(format!(
            "`{}` and `{}` are the same folder",
            src.0, dest.0
        ))),
        (true, false) => Err(lies_in(src.0, dest.0)),
        (false, true) => Err(lies_in(dest.0, src.0)),
    }
}

/// Files of the server's own folders could be removed but never sent. `place` is the folder's real path.
fn must_be_the_users(dest: &PfsPath, place: &PfsPath) -> Result<(), CliError> {
    match is_ours(&space_of(place), &place.place().path) {
        true => Err(kept_by_the_server(dest, place)),
        false => Ok(()),
    }
}

fn kept_by_the_server(dest: &PfsPath, place: &PfsPath) -> CliError {
    let what = match dest.place() == place.place() {
        true => format!("`{dest}`"),
        false => format!("`{dest}` leads to `{place}`, which"),
    };
    CliError::refused(format!("{what} is managed by the server and read-only")).with_hint(
        "`sync` into a folder of your own; `mv` moves the files of an ended run, `rm` removes them",
    )
}

fn lies_in(inner: &PfsPath, outer: &PfsPath) -> CliError {
    CliError::refused(format!("`{inner}` is inside `{outer}`"))
        .with_hint("`sync` needs two folders that do not contain each other, not even through links")
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
