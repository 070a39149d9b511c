//! Inspects, creates, removes and measures: stat, glob, mkdir, remove, usage.

use std::collections::HashSet;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::{
    FileMeta, FileView, MkdirRequest, OURS, RemoveRequest, StatsRequest, UsageView, WirePath, below,
    space_of, split_last, version_of,
};
use paddlecloud_pfs::quota::Amount;
use paddlecloud_pfs::root::{GlobPattern, Kind, Usage};
use paddlecloud_pfs::{Access, Existing, Made, PfsPath, RelPath, RootError};

use super::{Files, FilesError, Reached};

/// The folder of runs below [`OURS`]; [`crate::runs`] makes them.
const RUNS: &str = "runs";
/// The most matches of a pattern.
const MOST_MATCHES: usize = 100_000;

/// Whether the caller wants the digest of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestMode {
    Never,
    /// Only if the index has it.
    IfKnown,
    Always,
}

/// Which node a request for metadata is about if its path names a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatOf {
    Target,
    /// The link itself.
    Link,
}

/// The result for one path of a removal.
#[derive(Debug)]
pub struct RemovedPath {
    pub path: PfsPath,
    /// What was removed, or would be.
    pub removed: Result<UsageView, FilesError>,
}

impl Files {
    /// The metadata of a path.
    pub fn stat(
        &self,
        caller: &Caller,
        path: &PfsPath,
        of: StatOf,
        digest: DigestMode,
    ) -> Result<FileMeta, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let found = match of {
            StatOf::Target => reached.stat()?,
            StatOf::Link => reached.stat_link()?,
        };
        let mut meta = FileMeta::of(&found);
        if found.is_file() {
            meta.version = Some(version_of(&found.stamp));
            meta.digest = match digest {
                DigestMode::Never => None,
                DigestMode::IfKnown => self.indexed_digest(&reached.place, &found.stamp),
                DigestMode::Always => self.digest(&reached, self.indexed_file(&reached.place))?,
            };
        }
        Ok(meta)
    }

    /// The metadata of some paths below a folder; `None` for those that do not exist.
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
        // One lookup for all files.
        let indexed = match request.digest {
            true => self.indexed(&base.place.space, &paths),
            false => vec![None; paths.len()],
        };
        let metas = reached
            .iter()
            .zip(found)
            .zip(indexed)
            .map(|((reached, found), indexed)| {
                let found = found?;
                let mut meta = FileMeta::of(&found);
                if request.digest && found.kind == Kind::File {
                    // An unreadable file can still be replaced, and must not hide the others.
                    meta.digest = self.digest(reached, indexed).ok().flatten();
                }
                Some(meta)
            });
        Ok(metas.collect())
    }

    /// Everything that matches a pattern. The pattern is expanded inside the caller's root.
    pub fn glob(&self, caller: &Caller, pattern: &str) -> Result<Vec<FileView>, FilesError> {
        let not_found = || FilesError::NotFound(pattern.escape_debug().to_string());
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
        let space = space_of(&path);
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

    /// Creates a folder.
    pub fn mkdir(&self, caller: &Caller, request: &MkdirRequest) -> Result<Made, FilesError> {
        let reached = self.reach(caller, &request.path.0, Access::Write)?;
        let _acting = self.act(&reached.place.space)?;
        if !request.parents {
            let path = &reached.place.path;
            if reached.stat_if_exists()?.is_some() {
                return Err(reached.failed()(RootError::Exists(path.clone())));
            }
            let parent = path.parent().unwrap_or_default();
            reached
                .root
                .stat(&parent)
                .map_err(|error| match split_last(&reached.shown) {
                    Some((above, _)) if error.is_not_found() => FilesError::NotFound(above.to_string()),
                    _ => reached.failed()(error),
                })?;
        }
        reached
            .root
            .make_folder(&reached.place.path)
            .map_err(reached.failed())
    }

    /// Removes the requested paths, one after the other. `live` are the ids of unfinished jobs.
    pub fn remove(
        &self,
        caller: &Caller,
        request: &RemoveRequest,
        live: &HashSet<String>,
    ) -> Vec<RemovedPath> {
        let remove = |path: &WirePath| RemovedPath {
            path: path.0.clone(),
            removed: self
                .reach_to_take(caller, &path.0, live)
                .and_then(|reached| self.remove_one(&reached, request)),
        };
        request.paths.iter().map(remove).collect()
    }

    /// Authorizes the caller to remove or move a path. Of the server's own folder, only the runs of finished jobs may go.
    pub(super) fn reach_to_take(
        &self,
        caller: &Caller,
        path: &PfsPath,
        live: &HashSet<String>,
    ) -> Result<Reached, FilesError> {
        let reached = self.admit(caller, path, Access::Write)?;
        let real = self.real_place(&reached)?;
        if !reached.is_ours(&real) {
            return Ok(reached);
        }
        match run_of(&real) {
            None => Err(FilesError::Ours(path.clone())),
            Some(run) if live.contains(run) => Err(FilesError::InUse(path.clone())),
            Some(run) => Ok(Reached {
                root: reached.root.protecting_all_but(run_folder(run)),
                ..reached
            }),
        }
    }

    fn remove_one(&self, reached: &Reached, request: &RemoveRequest) -> Result<UsageView, FilesError> {
        let _acting = self.act(&reached.place.space)?;
        reached.not_the_space()?;
        let (root, inside) = (&reached.root, &reached.place.path);
        let refused = |error: fn(RelPath) -> RootError| Err(reached.failed()(error(inside.clone())));
        match (reached.stat_link()?.is_dir(), request.empty_folders) {
            (false, true) => return refused(RootError::NotAFolder),
            (true, false) if !request.recursive => return refused(RootError::IsAFolder),
            _ => {}
        }
        let usage = root.usage(inside).map_err(reached.failed())?;
        if request.dry_run {
            return Ok(usage_view(usage));
        }
        let removed = match request.empty_folders {
            true => root.remove(inside),
            false => root.remove_all(inside),
        };
        if removed.is_err() || usage.unread > 0 {
            // Only a measurement shows what was removed.
            self.forget_measure(&reached.place.space);
        }
        removed.map_err(reached.failed())?;
        self.freed(&reached.place.space, usage.into());
        self.forget(&reached.place);
        Ok(usage_view(usage))
    }

    /// Bytes and files below a path, following a link at the path itself.
    pub fn usage(&self, caller: &Caller, path: &PfsPath) -> Result<UsageView, FilesError> {
        let reached = self.reach(caller, path, Access::Read)?;
        let _acting = self.act(&reached.place.space)?;
        let usage = match reached.stat_link()?.kind {
            Kind::Symlink(_) => reached.root.usage_behind(&reached.place.path),
            _ => self.0.store.usage(&reached.place),
        };
        Ok(usage_view(usage.map_err(reached.failed())?))
    }
}

/// The job whose run a path in a home belongs to.
fn run_of(path: &RelPath) -> Option<&str> {
    let mut parts = path.parts();
    let is_run = parts.next()? == OURS.as_bytes() && parts.next()? == RUNS.as_bytes();
    std::str::from_utf8(parts.next()?).ok().filter(|_| is_run)
}

fn run_folder(run: &str) -> RelPath {
    let folder = format!("{OURS}/{RUNS}/{run}").into_bytes();
    RelPath::from_bytes(&folder).expect("it was part of a path")
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
        unread: usage.unread,
    }
}

impl Reached {
    /// The size of the file that a write to this path would replace.
    pub(super) fn replaced(&self) -> Result<Amount, FilesError> {
        let old = self.stat_if_exists()?;
        Ok(old
            .filter(|meta| !meta.is_dir())
            .map_or(Amount::default(), |meta| Amount {
                bytes: meta.size,
                files: 1,
            }))
    }
}
