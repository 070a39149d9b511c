//! Errors of the file service.

use paddlecloud_core::access::Scope;
use paddlecloud_core::quantity::Bytes;
use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::pack::PackError;
use paddlecloud_pfs::quota::QuotaError;
use paddlecloud_pfs::root::GlobError;
use paddlecloud_pfs::share::ShareError;
use paddlecloud_pfs::{AccessError, PfsPath, RootError, Space};

/// Why a request about files failed.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("`{0}` does not exist")]
    NotFound(String),
    #[error("`{0}` is managed by the server and read-only")]
    Ours(PfsPath),
    #[error("`{0}` belongs to a job that has not ended")]
    InUse(PfsPath),
    #[error("`{0}` itself cannot be changed, only what is in it")]
    SpaceItself(PfsPath),
    #[error("{}", with_full_path(path, source))]
    Storage { path: Box<PfsPath>, source: RootError },
    #[error("the folder of {space} cannot be opened")]
    Space { space: Space, source: RootError },
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error("{}", over_quota(.0))]
    Quota(#[from] QuotaError),
    /// Internal: the space is measured, then the call is repeated.
    #[error("the usage of {0} has not been measured yet")]
    Unmeasured(Space),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    #[error("there is no unfinished upload `{0}`")]
    NoUpload(String),
    #[error("you have no link `{0}`")]
    NoLink(String),
    #[error("`{0}` has changed since it was read")]
    OtherVersion(PfsPath),
    #[error("{}", damaged(.0))]
    DamagedOnDisk(Box<PfsPath>),
    /// The same for a published link, whose target path must not be revealed.
    #[error("{}", damaged(.0))]
    DamagedShare(String),
    #[error("{0}")]
    BadRequest(String),
    #[error("`{from}` was copied to `{to}`, but files written to it meanwhile were not removed")]
    PartlyMoved { from: Box<PfsPath>, to: Box<PfsPath> },
    #[error(transparent)]
    Share(#[from] ShareError),
    #[error("only files in your own home can be published")]
    NotOwn,
    #[error("you already have {0} active links, the limit for one user")]
    TooManyLinks(usize),
    #[error("only administrators may do this")]
    AdminOnly,
    #[error("this needs the scope `{0}`, which the token does not have")]
    Scope(Scope),
    #[error("the server cannot act as the owner of these files")]
    Owner(#[source] Box<crate::homes::StorageError>),
    #[error("{}", refused_by_disk(.0, .1))]
    Disk(#[source] std::io::Error, &'static str),
}

/// Replaces the path inside a space, which the storage reports, by the full path that users know.
fn with_full_path(path: &PfsPath, source: &RootError) -> String {
    let inside = format!("`{}`", path.place().path);
    source.to_string().replacen(&inside, &format!("`{path}`"), 1)
}

fn damaged(what: &impl std::fmt::Display) -> String {
    let problem = "its bytes on the server's disk differ from those that were stored; the disk is damaged";
    format!("cannot read `{what}`: {problem}")
}

/// Like the error itself, with readable sizes.
fn over_quota(error: &QuotaError) -> String {
    let QuotaError::Bytes {
        space,
        asked,
        used,
        limit,
    } = error
    else {
        return error.to_string();
    };
    let [requested, used, limit] = [asked, used, limit].map(|bytes| Bytes::new(*bytes).readable());
    let refused = match asked {
        0 => "nothing can be written until something is removed".to_owned(),
        _ => format!("there is no room for {requested}"),
    };
    format!("{refused}: {used} of {limit} are used in {}", space.in_words())
}

impl FilesError {
    /// About a home or the public folder itself.
    pub(super) fn of_space(space: &Space) -> impl Fn(RootError) -> FilesError {
        |source| FilesError::Space {
            space: space.clone(),
            source,
        }
    }

    /// Whether the file system reported that no space is left.
    pub fn is_full(&self) -> bool {
        match (self, self.storage()) {
            (FilesError::Disk(error, _), _) => is_no_space(error),
            (_, source) => matches!(source, Some(RootError::NoSpace(_) | RootError::FsQuota(_))),
        }
    }

    /// The storage error behind this one, if it concerns a file or folder.
    pub(super) fn storage(&self) -> Option<&RootError> {
        match self {
            FilesError::Storage { source, .. }
            | FilesError::Assembly(AssemblyError::Storage(source))
            | FilesError::Pack(PackError::Storage(source)) => Some(source),
            _ => None,
        }
    }
}

fn refused_by_disk(error: &std::io::Error, what: &str) -> String {
    match is_no_space(error) {
        true => format!("no space is left on the server's disk to {what}"),
        false => format!("the server's disk refused to {what}"),
    }
}

fn is_no_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_does_not_fit_is_refused_with_readable_sizes() {
        let over = QuotaError::Bytes {
            space: Space::Home("ann".parse().unwrap()),
            asked: 3 << 20,
            used: 1 << 19,
            limit: 1 << 20,
        };
        assert_eq!(
            FilesError::Quota(over).to_string(),
            "there is no room for 3 MiB: 512 KiB of 1 MiB are used in the home of ann"
        );
    }

    #[test]
    fn a_move_that_leaves_something_behind_says_where_everything_is() {
        let moved = FilesError::PartlyMoved {
            from: Box::new("/pfs/dc/public/set".parse().unwrap()),
            to: Box::new("/pfs/dc/home/ann/set".parse().unwrap()),
        };
        assert_eq!(
            moved.to_string(),
            "`/pfs/dc/public/set` was copied to `/pfs/dc/home/ann/set`, but files written to it meanwhile were not \
             removed"
        );
    }

    /// The reason may also contain the last part of the path.
    #[test]
    fn the_full_path_replaces_only_the_relative_path() {
        let error = FilesError::Storage {
            path: Box::new("/pfs/dc/public/.own".parse().unwrap()),
            source: RootError::Unsupported {
                path: ".own".parse().unwrap(),
                reason: "it uses the name `.own`".to_owned(),
            },
        };
        assert_eq!(
            error.to_string(),
            "`/pfs/dc/public/.own` cannot be kept in this storage: it uses the name `.own`"
        );
    }
}
