//! From the cluster to the cluster: the server copies; no file content passes through the client.

use std::collections::HashSet;

use paddlecloud_api::files::{ListEntry, below};
use paddlecloud_pfs::sync::{Compare, SyncOptions, SyncPlan, plan};
use paddlecloud_pfs::{Entry, PfsPath, RelPath, links_outside};

use super::clearing::what_is_there;
use super::crossing::{Crossing, Step, Steps};
use super::location::Remote;
use super::remote::{self, Listed, RemoteSource};
use super::report::Lost;
use super::rules::{Kind, Landing, Request, Target};
use super::up::{Completeness, place_there};
use super::{Copy, Transfer, in_lines};
use crate::error::CliError;

impl Transfer<'_> {
    pub(super) async fn across(
        &mut self,
        sources: &[&Remote],
        dest: &Remote,
        copy: &Copy,
    ) -> Result<(), CliError> {
        self.moved = "copied";
        let from = sources.iter().map(|source| source.path.to_string().into_bytes());
        let from: Vec<Vec<u8>> = from.collect();
        let unfinished = self.unfinished(&from, dest.path.to_string().as_bytes());
        let target = unfinished.target(remote::target(&self.files, &dest.path).await?);
        let request = Request {
            target,
            slash: dest.path.has_trailing_slash(),
            recursive: copy.recursive,
            style: copy.style,
        };
        let found = self.remote_sources(sources).await?;
        let landed = self.land(found, |found| &found.source, request, &dest.path.to_string())?;
        let mut placed = Vec::with_capacity(landed.len());
        for (source, landing) in landed {
            let place = self.place_of(&source, &landing, &dest.path).await?;
            placed.extend(place.map(|place| (source, place)));
        }
        let makes_folder = placed.iter().any(|(found, _)| found.source.kind == Kind::Folder);
        if target == Target::Missing && makes_folder {
            unfinished.begin();
        }
        if target == Target::Missing && !placed.is_empty() && !self.make_way(dest).await? {
            return Ok(());
        }
        let mut files = Vec::new();
        for (source, place) in placed {
            match source.source.kind {
                Kind::Folder => self.copy_folder(&source.path, &place).await?,
                Kind::File => files.extend(self.step_of(source, place)),
            }
        }
        for (what, files) in in_lines(files) {
            let steps = Steps {
                files,
                ..Steps::default()
            };
            let (crossing, watch) = (self.crossing(), self.watch());
            let work = crossing.run(steps, &watch);
            let summary = self.show(&format!("Copying {what}"), &watch, work).await?;
            self.record(summary, &watch)?;
        }
        if self.tally.failures() == 0 {
            unfinished.end();
        }
        Ok(())
    }

    async fn make_way(&mut self, dest: &Remote) -> Result<bool, CliError> {
        match dest.path.has_trailing_slash() {
            true => self.make_folder(&dest.path).await,
            false => self.make_parent(&dest.path).await,
        }
    }

    /// Where a source goes; `None`, after a report, if it cannot go there.
    async fn place_of(
        &mut self,
        source: &RemoteSource,
        landing: &Landing,
        dest: &PfsPath,
    ) -> Result<Option<PfsPath>, CliError> {
        let shown = &source.source.shown;
        let place = match place_there(dest, landing) {
            Ok(place) => self.behind_link(&source.source, landing, place).await?,
            Err(error) => {
                self.tally.lose(Lost::new(shown, error.to_string()));
                None
            }
        };
        let Some(place) = place else {
            return Ok(None);
        };
        if place.place() == source.path.place() {
            let same = "source and destination are the same";
            self.tally.lose(Lost::new(shown, same));
            return Ok(None);
        }
        if source.source.kind == Kind::Folder && remote::is_written_within(&place, &source.path) {
            self.tally.lose(into_itself(&source.path, &place));
            return Ok(None);
        }
        Ok(Some(place))
    }

    /// The step for a file named on the command line; a link is replaced by its target.
    fn step_of(&mut self, source: RemoteSource, to: PfsPath) -> Option<(String, Step)> {
        let name = source.source.name.as_deref().unwrap_or_default();
        if !self.selection.takes_file(name) {
            return None;
        }
        let line = ListEntry {
            path: RelPath::from_bytes(name).unwrap_or_default(),
            meta: source.meta,
        };
        let Some(entry) = line.entry() else {
            let reason = "it is a socket, pipe or device";
            self.tally.lose(Lost::new(source.source.shown, reason));
            return None;
        };
        let step = Step {
            from: source.path,
            to,
            entry,
            is_compared: false,
        };
        Some((source.source.shown, step))
    }

    async fn copy_folder(&mut self, from: &PfsPath, to: &PfsPath) -> Result<(), CliError> {
        let there = remote::target(&self.files, to).await?;
        let compare = match there {
            Target::Folder => self.compare(),
            Target::File | Target::Missing => Compare::default(),
        };
        let Some((mut source, completeness)) = self.look_through_on_server(from, compare).await? else {
            return Ok(());
        };
        self.select(&mut source);
        let links = self.leave_links_outside(from, &mut source);
        let is_whole = [completeness, links] == [Completeness::Whole; 2] && self.selection.is_all();
        if is_whole && there == Target::Missing && !self.options.dry_run {
            let steps = self.steps(from, to, &source);
            let (crossing, watch) = (self.crossing(), self.watch());
            let work = crossing.whole(from, to, steps, &watch);
            let summary = self.show(&format!("Copying {from}"), &watch, work).await?;
            return self.record(summary, &watch);
        }
        if remote::lies_within(&self.files, to, from).await? {
            self.tally.lose(into_itself(from, to));
            return Ok(());
        }
        let mut held = Listed::default();
        if there == Target::Folder {
            let Some(listed) = self.list_on_server(to, compare).await? else {
                return Ok(());
            };
            held = listed;
            held.take_damaged(to);
        }
        let plan = self.plan_merge(to, &source, &held.entries);
        self.copy_plan(from, to, &plan).await
    }

    /// Removes links that point outside the folder from its entries and reports them. Returns whether there were none.
    pub(super) fn leave_links_outside(&mut self, folder: &PfsPath, entries: &mut Vec<Entry>) -> Completeness {
        let outside = links_outside(entries);
        let left_out: HashSet<&RelPath> = outside.iter().map(|link| &link.path).collect();
        entries.retain(|entry| !left_out.contains(&entry.path));
        for link in &outside {
            self.leave(Lost::new(format!("{folder}/{}", link.path), link.to_string()));
        }
        Completeness::if_whole(outside.is_empty())
    }

    /// The entries of a folder that are copied into another. An entry of another type at the destination stays and is reported.
    fn plan_merge(&mut self, to: &PfsPath, source: &[Entry], held: &[Entry]) -> SyncPlan {
        let options = SyncOptions {
            existing: self.options.existing(),
            compare: self.compare(),
            ..SyncOptions::default()
        };
        let plan = plan(source, held, options);
        for path in &plan.blocked {
            self.leave(Lost::new(format!("{to}/{path}"), what_is_there(path, held)));
        }
        plan
    }

    /// Copies what a plan for two folders says.
    pub(super) async fn copy_plan(
        &mut self,
        from: &PfsPath,
        to: &PfsPath,
        plan: &SyncPlan,
    ) -> Result<(), CliError> {
        let steps = self.steps(from, to, &plan.send);
        if self.options.dry_run {
            for path in &plan.kept {
                self.world.out.line(format!("keep {from}/{path}"))?;
            }
        }
        let (crossing, watch) = (self.crossing(), self.watch());
        let work = async {
            let mut summary = crossing.run(steps, &watch).await;
            summary.unchanged += plan.unchanged;
            summary.kept += plan.kept.len() as u64;
            summary
        };
        let summary = self.show(&format!("Copying {from}"), &watch, work).await?;
        self.record(summary, &watch)
    }

    fn steps(&mut self, from: &PfsPath, to: &PfsPath, entries: &[Entry]) -> Steps {
        let mut steps = Steps {
            into: Some(to.clone()),
            ..Steps::default()
        };
        for entry in entries {
            let places = below(from, &entry.path).and_then(|from| Ok((from, below(to, &entry.path)?)));
            let (from, to) = match places {
                Ok(places) => places,
                Err(error) => {
                    let lost = Lost::new(format!("{from}/{}", entry.path), error.to_string());
                    self.leave(lost);
                    continue;
                }
            };
            if entry.is_dir() {
                steps.folders.push(to);
                continue;
            }
            steps.files.push(Step {
                from,
                to,
                entry: entry.clone(),
                is_compared: true,
            });
        }
        steps
    }
}

impl<'a> Transfer<'a> {
    fn crossing(&self) -> Crossing<'a> {
        Crossing {
            files: self.files,
            existing: self.options.existing(),
            compare: self.compare(),
            transfers: self.options.transfers.get(),
            dry_run: self.options.dry_run,
        }
    }
}

pub fn into_itself(from: &PfsPath, to: &PfsPath) -> Lost {
    Lost::new(from.to_string(), format!("it cannot be put into itself (`{to}`)"))
}
