//! Looking at files and changing where they lie: stat, glob, mkdir, remove, rename, copy, measure.

use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::files::{
    CopyReply, FileMeta, FileView, MkdirRequest, MoveRequest, RemoveRequest, Removed, StatsRequest,
    UsageView, WirePath, below, version_of,
};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{GlobPattern, Kind, Usage};
use paddlecloud_pfs::{Access, Existing, PfsPath, RelPath, RootError, Space};

use super::{Files, FilesError, Reached};
use crate::auth::Caller;
use crate::packages::Acting;

/// Matches one pattern may have; more need a folder of their own.
const MOST_MATCHES: usize = 100_000;

impl Files {
    /// What is at a path; with `link`, a link is told as a link.
    pub fn stat(
        &self,
        caller: &Caller,
        path: &PfsPath,
        link: bool,
        digest: bool,
    ) -> Result<FileMeta, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let found = if link {
            reached.stat_link()?
        } else {
            reached.stat()?
        };
        let mut meta = FileMeta::of(&found);
        if found.is_file() {
            meta.version = Some(version_of(&found.stamp));
            if digest {
                meta.digest = self.digest(&reached)?;
            }
        }
        Ok(meta)
    }

    /// What some paths below a folder are; `None` for what is not there.
    pub fn stats(
        &self,
        caller: &Caller,
        request: &StatsRequest,
    ) -> Result<Vec<Option<FileMeta>>, FilesError> {
        let base = self.reach(caller, &request.path.0, Access::Read)?;
        let _acting = self.act(&base.place.space)?;
        let reached: Vec<Reached> = request
            .files
            .iter()
            .map(|path| base.below(path))
            .collect::<Result<_, _>>()?;
        let paths: Vec<RelPath> = reached.iter().map(|one| one.place.path.clone()).collect();
        let found = base.root.stat_many(&paths).map_err(base.failed())?;
        let told = reached.iter().zip(found).map(|(reached, found)| {
            let Some(found) = found else { return Ok(None) };
            let mut meta = FileMeta::of(&found);
            if request.digest && found.kind == Kind::File {
                meta.digest = self.digest(reached)?;
            }
            Ok(Some(meta))
        });
        told.collect()
    }

    /// Everything that matches a pattern. The pattern is expanded inside the caller's root.
    pub fn glob(&self, caller: &Caller, pattern: &str) -> Result<Vec<FileView>, FilesError> {
        let not_found = || FilesError::NotFound(pattern.escape_default().to_string());
        let path = PfsPath::from_bytes(pattern.as_bytes()).map_err(|_| not_found())?;
        let reached = self.reach(caller, &path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let inside = std::str::from_utf8(reached.place.path.as_bytes()).map_err(|_| not_found())?;
        let found = reached
            .root
            .glob(&GlobPattern::parse(inside)?)
            .map_err(reached.failed())?;
        if found.len() > MOST_MATCHES {
            let problem = format!("`{path}` matches more than {MOST_MATCHES} paths");
            return Err(FilesError::BadRequest(problem));
        }
        let space = space_path(&path);
        found
            .into_iter()
            .map(|entry| {
                let path = below(&space, &entry.path).map_err(|_| not_found())?;
                Ok(FileView {
                    path: path.into(),
                    meta: FileMeta::of(&entry.meta),
                })
            })
            .collect()
    }

    /// Makes a folder.
    pub fn mkdir(&self, caller: &Caller, request: &MkdirRequest) -> Result<(), FilesError> {
        let reached = self.reach(caller, &request.path.0, Access::Write)?;
        let _acting = self.act(&reached.place.space)?;
        if !request.parents {
            let path = &reached.place.path;
            if reached.stat_if_there()?.is_some() {
                return Err(reached.failed()(RootError::Exists(path.clone())));
            }
            let parent = path.parent().unwrap_or_default();
            reached.root.stat(&parent).map_err(reached.failed())?;
        }
        reached
            .root
            .make_dirs(&reached.place.path)
            .map_err(reached.failed())
    }

    /// Removes what it is asked to, one after the other.
    pub fn remove(&self, caller: &Caller, request: &RemoveRequest) -> Vec<Removed> {
        let remove = |path: &WirePath| {
            let result = self.remove_one(caller, &path.0, request.recursive, request.dry_run);
            let (usage, error) = match result {
                Ok(usage) => (usage, None),
                Err(error) => (UsageView::default(), Some(refusal_to_remove(&error))),
            };
            Removed {
                path: path.clone(),
                usage,
                error,
            }
        };
        request.paths.iter().map(remove).collect()
    }

    fn remove_one(
        &self,
        caller: &Caller,
        path: &PfsPath,
        recursive: bool,
        dry_run: bool,
    ) -> Result<UsageView, FilesError> {
        let reached = self.reach(caller, path, Access::Write)?;
        let _acting = self.act(&reached.place.space)?;
        reached.not_the_space()?;
        let (root, inside) = (&reached.root, &reached.place.path);
        if reached.stat_link()?.is_dir() && !recursive {
            return Err(reached.failed()(RootError::IsAFolder(inside.clone())));
        }
        let usage = root.usage(inside).map_err(reached.failed())?;
        if !dry_run {
            root.remove_all(inside).map_err(reached.failed())?;
            self.freed(&reached.place.space, usage.into());
            self.0.hints.forget_below(&reached.place);
        }
        Ok(usage_view(usage))
    }

    /// Gives a node another place, in one step.
    pub fn rename(&self, caller: &Caller, request: &MoveRequest) -> Result<(), FilesError> {
        let from = self.reach(caller, &request.from.0, Access::Write)?;
        let to = self.reach(caller, &request.to.0, Access::Write)?;
        from.not_the_space()?;
        to.not_the_space()?;
        let moves_over = from.place.space != to.place.space;
        if moves_over && (self.is_system_users(&from) || self.is_system_users(&to)) {
            return self.hand_over(caller, request, &from, &to);
        }
        let _acting = self.act_for_both(&from, &to)?;
        let usage = from.root.usage(&from.place.path).map_err(from.failed())?;
        let room = match moves_over {
            true => self.reserve(&to.place.space, usage.into())?,
            false => None,
        };
        let replaced = to.replaced()?;
        self.0
            .store
            .rename(&from.place, &to.place, existing(request.no_overwrite))
            .map_err(|error| match &error {
                RootError::NotFound(path) if *path == from.place.path => from.failed()(error),
                _ => to.failed()(error),
            })?;
        self.0.hints.forget_below(&from.place);
        self.0.hints.forget_below(&to.place);
        match room {
            Some(room) => room.settle(usage.into(), replaced),
            None => self.freed(&to.place.space, replaced),
        }
        if moves_over {
            self.freed(&from.place.space, usage.into());
        }
        Ok(())
    }

    /// Moves a node to a space that belongs to another system user: a rename would keep the old owner, so the new one
    /// gets a copy of their own, and then the old one goes.
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
        self.copy(caller, request)?;
        let _acting = self.act(&from.place.space)?;
        let usage = from.root.usage(&from.place.path).map_err(from.failed())?;
        from.root.remove_all(&from.place.path).map_err(from.failed())?;
        self.0.hints.forget_below(&from.place);
        self.freed(&from.place.space, usage.into());
        Ok(())
    }

    /// Copies a file or folder inside the storage.
    pub fn copy(&self, caller: &Caller, request: &MoveRequest) -> Result<CopyReply, FilesError> {
        let from = self.reach(caller, &request.from.0, Access::Read)?;
        let to = self.reach(caller, &request.to.0, Access::Write)?;
        to.not_the_space()?;
        let _acting = self.act_for_both(&from, &to)?;
        let meta = from.stat()?;
        let usage = from.root.usage(&from.place.path).map_err(from.failed())?;
        let room = self.reserve(&to.place.space, usage.into())?;
        let replaced = to.replaced()?;
        let copied = self
            .0
            .store
            .copy(&from.place, &to.place, existing(request.no_overwrite))
            .map_err(|error| match &error {
                RootError::NotFound(path) if *path == from.place.path => from.failed()(error),
                _ => to.failed()(error),
            });
        if let (Err(_), Some(_)) = (&copied, &room) {
            // Part of a folder may be there: what exactly is found by measuring.
            self.forget_measure(&to.place.space);
        }
        let copied = copied?;
        self.0.hints.forget_below(&to.place);
        if let Some(room) = room {
            let written = Amount {
                bytes: copied.bytes,
                files: copied.files,
            };
            room.settle(written, replaced);
        }
        if meta.is_dir() {
            self.forget_measure(&to.place.space);
        }
        Ok(CopyReply {
            bytes: copied.bytes,
            files: copied.files,
        })
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

    /// Bytes and files below a path.
    pub fn usage(&self, caller: &Caller, path: &PfsPath) -> Result<UsageView, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let usage = self.0.store.usage(&reached.place).map_err(reached.failed())?;
        Ok(usage_view(usage))
    }
}

fn refusal_to_remove(error: &FilesError) -> ErrorBody {
    let is_folder = matches!(
        error,
        FilesError::Storage {
            source: RootError::IsAFolder(_),
            ..
        }
    );
    match is_folder {
        true => error
            .refusal()
            .with_hint("`-r` removes folders with all they hold"),
        false => error.refusal(),
    }
}

pub(super) fn existing(no_overwrite: bool) -> Existing {
    match no_overwrite {
        true => Existing::Keep,
        false => Existing::Replace,
    }
}

fn usage_view(usage: Usage) -> UsageView {
    UsageView {
        bytes: usage.bytes,
        files: usage.files,
        folders: usage.folders,
    }
}

/// The home or public folder a path lies in.
fn space_path(path: &PfsPath) -> PfsPath {
    let mut here = path.clone();
    while let Some((parent, _)) = paddlecloud_api::files::split_last(&here) {
        here = parent;
    }
    here
}

impl Reached {
    /// What a write that replaces the file here gives back.
    pub(super) fn replaced(&self) -> Result<Amount, FilesError> {
        let old = self.stat_if_there()?;
        Ok(old
            .filter(|meta| !meta.is_dir())
            .map_or(Amount::default(), |meta| Amount {
                bytes: meta.size,
                files: 1,
            }))
    }
}
