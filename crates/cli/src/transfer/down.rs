//! From the cluster to this machine.

use std::path::{Path, PathBuf};

use paddlecloud_pfs::sync::Compare;
use paddlecloud_pfs::{Entry, PfsPath, RelPath, RootError};
use paddlecloud_transfer::Download;

use super::location::{Remote, shown};
use super::remote::{self, Listed, RemoteSource};
use super::report::Lost;
use super::rules::{Kind, Landing, Request, Target};
use super::unfinished::absolute;
use super::up::Completeness;
use super::{Copy, Transfer, in_lines, local};
use crate::error::{CliError, chain};

impl Transfer<'_> {
    pub(super) async fn down(
        &mut self,
        sources: &[&Remote],
        dest: &Path,
        copy: &Copy,
    ) -> Result<(), CliError> {
        self.moved = "received";
        let from = sources.iter().map(|source| source.path.to_string().into_bytes());
        let from: Vec<Vec<u8>> = from.collect();
        let unfinished = self.unfinished(&from, &absolute(dest));
        let target = local::target(dest).map_err(|error| cannot_write(dest, &error))?;
        let target = unfinished.target(target);
        let request = Request {
            target,
            slash: local::has_slash(dest),
            // A folder that is downloaded needs no `-r`, as in the client design.
            recursive: true,
            style: copy.style,
        };
        let found = self.remote_sources(sources).await?;
        let landed = self.land(found, |found| &found.source, request, &shown(dest))?;
        let makes_folder = landed.iter().any(|(found, _)| found.source.kind == Kind::Folder);
        if target == Target::Missing && makes_folder {
            unfinished.begin();
        }
        let mut work = Vec::new();
        for (source, landing) in landed {
            let place = match place_of(dest, &landing) {
                Ok(place) => place,
                Err(error) => {
                    self.tally
                        .lose(Lost::new(source.source.shown.clone(), chain(&error)));
                    continue;
                }
            };
            if let Some(download) = self.download_of(&source, place).await? {
                work.push((source.source.shown, download));
            }
        }
        for (what, downloads) in in_lines(work) {
            self.fetch(&what, downloads).await?;
        }
        if self.tally.failures() == 0 {
            unfinished.end();
        }
        Ok(())
    }

    /// Everything the arguments name; missing paths are reported.
    pub(super) async fn remote_sources(
        &mut self,
        sources: &[&Remote],
    ) -> Result<Vec<RemoteSource>, CliError> {
        let mut found = Vec::new();
        for source in sources {
            found.extend(remote::sources(&self.files, source, &mut self.tally).await?);
        }
        Ok(found)
    }

    async fn download_of(
        &mut self,
        source: &RemoteSource,
        local: PathBuf,
    ) -> Result<Option<Download>, CliError> {
        let remote = source.path.clone();
        if source.source.kind == Kind::Folder {
            let Some((mut entries, _)) = self.look_through_on_server(&remote, Compare::default()).await?
            else {
                return Ok(None);
            };
            self.select(&mut entries);
            return Ok(self.tree_down(remote, local, entries));
        }
        let name = source.source.name.as_deref().unwrap_or_default();
        if !self.selection.takes_file(name) {
            return Ok(None);
        }
        let meta = source.meta.clone();
        Ok(self
            .make_local_parent(&local)
            .then_some(Download::File { remote, local, meta }))
    }

    /// The contents of a folder, and whether they are complete; `None`, after a report, if it cannot be listed.
    pub(super) async fn look_through_on_server(
        &mut self,
        folder: &PfsPath,
        compare: Compare,
    ) -> Result<Option<(Vec<Entry>, Completeness)>, CliError> {
        let listed = self.list_on_server(folder, compare).await?;
        Ok(listed.map(|listed| self.tell_what_stays(folder, listed)))
    }

    /// The contents of a folder; `None`, after a report, if it cannot be listed.
    pub(super) async fn list_on_server(
        &mut self,
        folder: &PfsPath,
        compare: Compare,
    ) -> Result<Option<Listed>, CliError> {
        let listed = remote::entries_to_compare(&self.files, folder, compare).await;
        Ok(self.tally.pass(folder, listed)?)
    }

    /// Returns the entries of a folder that can be copied, and whether these are all; the others are reported.
    pub(super) fn tell_what_stays(&mut self, folder: &PfsPath, listed: Listed) -> (Vec<Entry>, Completeness) {
        for special in &listed.special {
            let note = format!("`{folder}/{special}` is a socket, pipe or device and is not copied");
            self.world.err.note(&note);
        }
        let completeness = Completeness::if_whole(listed.unread.is_empty());
        for one in listed.unread {
            self.leave(Lost::new(one.path.to_string(), one.error.msg));
        }
        (listed.entries, completeness)
    }

    /// Downloads the entries of a folder to `local`, which is created even if the folder is empty.
    pub(super) fn tree_down(
        &mut self,
        remote: PfsPath,
        local: PathBuf,
        entries: Vec<Entry>,
    ) -> Option<Download> {
        self.make_local(&local).then_some(Download::Tree {
            remote,
            local,
            entries,
        })
    }

    fn make_local_parent(&mut self, path: &Path) -> bool {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.make_local(parent),
            _ => true,
        }
    }

    fn make_local(&mut self, folder: &Path) -> bool {
        if self.options.dry_run {
            return true;
        }
        match std::fs::create_dir_all(folder) {
            Ok(()) => true,
            Err(error) => {
                self.tally.lose(Lost::new(
                    shown(folder),
                    format!("the folder cannot be made: {error}"),
                ));
                false
            }
        }
    }
}

/// The local path of an entry; an error if this system does not allow the name.
fn place_of(dest: &Path, landing: &Landing) -> Result<PathBuf, RootError> {
    match landing {
        Landing::Exactly => Ok(dest.to_owned()),
        Landing::Inside(name) => RelPath::from_bytes(name)?.in_folder(dest),
    }
}

fn cannot_write(dest: &Path, error: &std::io::Error) -> CliError {
    CliError::refused(format!("cannot write to `{}`: {error}", shown(dest)))
}
