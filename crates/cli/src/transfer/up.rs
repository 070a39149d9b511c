//! From this machine to the cluster.

use std::path::Path;

use paddlecloud_api::files::{OURS, below, is_ours, split_last};
use paddlecloud_pfs::{Entry, Made, PfsPath, PfsPathError, RelPath};
use paddlecloud_transfer::Upload;

use super::local::{self, LocalSource};
use super::location::{Remote, shown, shown_in};
use super::report::Lost;
use super::rules::{Kind, Landing, Request, Target};
use super::unfinished::absolute;
use super::{Copy, Transfer, in_lines, remote};
use crate::error::{CliError, chain};

/// Characters of a path that is too long anyway.
const SHOWN: usize = 40;

impl Transfer<'_> {
    pub(super) async fn up(&mut self, sources: &[&Path], dest: &Remote, copy: &Copy) -> Result<(), CliError> {
        let from: Vec<Vec<u8>> = sources.iter().map(|path| absolute(path)).collect();
        let unfinished = self.unfinished(&from, dest.path.to_string().as_bytes());
        let target = unfinished.target(remote::target(&self.files, &dest.path).await?);
        let request = Request {
            target,
            slash: dest.path.has_trailing_slash(),
            recursive: copy.recursive,
            style: copy.style,
        };
        let mut found = Vec::new();
        for path in sources {
            match local::sources(path) {
                Ok(some) => found.extend(some),
                Err(lost) => self.tally.lose(lost),
            }
        }
        let landed = self.land(found, |found| &found.source, request, &dest.path.to_string())?;
        let makes_folder = landed.iter().any(|(found, _)| found.source.kind == Kind::Folder);
        if target == Target::Missing && makes_folder {
            unfinished.begin();
        }
        let mut work = Vec::new();
        for (source, landing) in landed {
            if let Some(upload) = self.upload_of(&source, &landing, &dest.path, target).await? {
                work.push((source.source.shown, upload));
            }
        }
        for (what, uploads) in in_lines(work) {
            self.send(&what, uploads).await?;
        }
        if self.tally.failures() == 0 {
            unfinished.end();
        }
        Ok(())
    }

    /// What to send of a source; nothing if it is filtered out or cannot be read.
    async fn upload_of(
        &mut self,
        source: &LocalSource,
        landing: &Landing,
        dest: &PfsPath,
        target: Target,
    ) -> Result<Option<Upload>, CliError> {
        let remote = match place_there(dest, landing) {
            Ok(remote) => remote,
            Err(error) => {
                self.tally
                    .lose(Lost::new(&source.source.shown, error.to_string()));
                return Ok(None);
            }
        };
        if source.source.kind == Kind::File {
            let name = source.source.name.as_deref().unwrap_or_default();
            if !self.selection.takes_file(name) {
                return Ok(None);
            }
            if target == Target::Missing && !self.make_parent(&remote).await? {
                return Ok(None);
            }
            let Some(remote) = self.behind_link(&source.source, landing, remote).await? else {
                return Ok(None);
            };
            let local = source.path.clone();
            return Ok(Some(Upload::File { local, remote }));
        }
        let Some(entries) = self.look_through(&source.path) else {
            return Ok(None);
        };
        self.tree_up(&source.path, remote, entries.0).await
    }

    /// The selected entries of a folder, and whether all of it could be read; nothing if it cannot be opened.
    pub(super) fn look_through(&mut self, local: &Path) -> Option<(Vec<Entry>, Completeness)> {
        let mut walked = match paddlecloud_transfer::walk(local) {
            Ok(walked) => walked,
            Err(error) => {
                self.tally.lose(Lost::new(shown(local), chain(&error)));
                return None;
            }
        };
        for special in &walked.special {
            let special = shown_in(local, special);
            let note = format!("`{special}` is a socket, pipe or device and is not copied");
            self.world.err.note(&note);
        }
        self.select(&mut walked.entries);
        for error in &walked.unread {
            self.leave(Lost::new(shown(local), chain(error)));
        }
        Some((walked.entries, Completeness::if_whole(walked.unread.is_empty())))
    }

    /// Keeps the selected entries; missing names of the list are reported.
    pub(super) fn select(&mut self, entries: &mut Vec<Entry>) {
        for missing in self.selection.missing(entries) {
            let lost = Lost::new(missing.to_string(), "it is in the list, but does not exist");
            self.leave(lost);
        }
        self.selection.apply(entries);
    }

    /// Uploads the entries of a folder to `remote`, which is created even if the folder is empty.
    pub(super) async fn tree_up(
        &mut self,
        local: &Path,
        remote: PfsPath,
        mut entries: Vec<Entry>,
    ) -> Result<Option<Upload>, CliError> {
        self.leave_out_too_long(local, &remote, &mut entries);
        if entries.iter().any(|entry| is_ours(&remote, &entry.path)) {
            let ours = shown(&local.join(OURS));
            let note = format!("`{ours}` is not copied: the server manages that folder of a home");
            self.world.err.note(&note);
            entries.retain(|entry| !is_ours(&remote, &entry.path));
        }
        let is_made = self.make_folder(&remote).await?;
        Ok(is_made.then(|| Upload::Tree {
            local: local.to_owned(),
            remote,
            entries,
        }))
    }

    /// Reports paths that the storage does not accept, each with everything below it, and sends the rest.
    fn leave_out_too_long(&mut self, local: &Path, remote: &PfsPath, entries: &mut Vec<Entry>) {
        let mut reported: Option<RelPath> = None;
        entries.retain(|entry| {
            if reported
                .as_ref()
                .is_some_and(|reported| entry.path.is_within(reported))
            {
                return false;
            }
            let Err(error) = below(remote, &entry.path) else {
                return true;
            };
            let start: String = entry.path.to_string().chars().take(SHOWN).collect();
            let path = format!("{}/{start}…", shown(local));
            self.leave(Lost::new(path, error.to_string()));
            reported = Some(entry.path.clone());
            false
        });
    }

    /// Creates a folder and its parents; `false`, after a report, if that is refused.
    pub(super) async fn make_folder(&mut self, folder: &PfsPath) -> Result<bool, CliError> {
        if self.options.dry_run || self.made.as_ref() == Some(folder) {
            return Ok(true);
        }
        let made = self.files.mkdir(folder, true).await;
        let made = self.tally.pass(folder, made)?;
        if made == Some(Made::New) {
            self.options.new_folders.insert(folder.clone());
        }
        if made.is_some() {
            self.made = Some(folder.clone());
        }
        Ok(made.is_some())
    }

    pub(super) async fn make_parent(&mut self, path: &PfsPath) -> Result<bool, CliError> {
        match split_last(path) {
            Some((parent, _)) => self.make_folder(&parent).await,
            None => Ok(true),
        }
    }
}

/// Whether a folder could be read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completeness {
    Whole,
    Partial,
}

impl Completeness {
    pub fn if_whole(is_whole: bool) -> Completeness {
        match is_whole {
            true => Completeness::Whole,
            false => Completeness::Partial,
        }
    }
}

/// The path of an entry on the cluster.
pub fn place_there(dest: &PfsPath, landing: &Landing) -> Result<PfsPath, PfsPathError> {
    match landing {
        Landing::Exactly => Ok(dest.clone()),
        Landing::Inside(name) => below(dest, &RelPath::from_bytes(name)?),
    }
}
