//! Errors of the file service, and what callers see of them.

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::access::Scope;
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
    #[error("`{0}` is kept by the server: it can be read, not changed")]
    Ours(PfsPath),
    #[error("`{0}` belongs to a job that is not over yet")]
    InUse(PfsPath),
    #[error("`{0}` itself cannot be changed, only what is in it")]
    SpaceItself(PfsPath),
    #[error("{}", told(path, source))]
    Storage { path: Box<PfsPath>, source: RootError },
    #[error("the folder of {space} cannot be opened")]
    Space { space: Space, source: RootError },
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// Internal: the space is measured, then the call is repeated.
    #[error("what {0} holds has to be measured first")]
    Unmeasured(Space),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    #[error("there is no unfinished upload `{0}`")]
    NoUpload(String),
    #[error("you have no link `{0}`")]
    NoLink(String),
    #[error("`{0}` changed since it was looked at")]
    OtherVersion(PfsPath),
    #[error("{}", damaged(.0))]
    DamagedThere(Box<PfsPath>),
    /// The same for a published link, whose target path must not be revealed.
    #[error("{}", damaged(.0))]
    DamagedShare(String),
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "`{from}` was copied to `{to}`, but not all of it is gone: what was written there meanwhile stays"
    )]
    PartlyMoved { from: Box<PfsPath>, to: Box<PfsPath> },
    #[error(transparent)]
    Share(#[from] ShareError),
    #[error("only files of your own home can be published")]
    NotOwn,
    #[error("you have {0} links that work, and that is the limit for one user")]
    TooManyLinks(usize),
    #[error("this is for administrators")]
    AdminOnly,
    #[error("this needs the scope `{0}`, which the token does not have")]
    Scope(Scope),
    #[error("the server cannot work in the owner's name")]
    Owner(#[source] Box<crate::homes::StorageError>),
    #[error("{}", refused_by_disk(.0, .1))]
    Disk(#[source] std::io::Error, &'static str),
}

/// Replaces the path inside a space, which the storage reports, by the full path that users know.
fn told(path: &PfsPath, source: &RootError) -> String {
    let inside = format!("`{}`", path.place().path);
    source.to_string().replacen(&inside, &format!("`{path}`"), 1)
}

fn damaged(what: &impl std::fmt::Display) -> String {
    let problem = "its bytes on the server's disk are not what the server stored: the disk is damaged";
    format!("`{what}` cannot be had: {problem}")
}

impl FilesError {
    /// Whether the file system reported that no space is left.
    pub(super) fn is_full(&self) -> bool {
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

    /// The part of the error that the caller may see.
    pub fn refusal(&self) -> ErrorBody {
        let name = self.name();
        if matches!(name, ErrorName::Internal | ErrorName::StorageFull) {
            tracing::error!(error = crate::error_chain::chain_of(self), "the storage failed");
        }
        let body = ErrorBody::new(name, self.to_string());
        match (self, name) {
            (_, ErrorName::StorageFull) => {
                body.with_hint("free some space on the server, or ask an administrator")
            }
            (_, ErrorName::QuotaExceeded) => body.with_hint(
                "remove something: `paddlectl du` shows what is big, and what unfinished uploads hold",
            ),
            (FilesError::DamagedThere(_), _) => {
                body.with_hint("if you have the file, send it again with `paddlectl cp --checksum`; and tell an administrator")
            }
            (FilesError::TooManyLinks(_), _) => {
                body.with_hint("`paddlectl publish` lists them, and `--revoke ID` revokes one")
            }
            (FilesError::NoLink(_), _) => body.with_hint("`paddlectl publish` lists your links"),
            (FilesError::Assembly(AssemblyError::WrongDigest { .. }), _) => {
                body.with_hint("send it again: nothing of it was kept")
            }
            _ => body,
        }
    }

    fn name(&self) -> ErrorName {
        match self {
            FilesError::Access(AccessError::NotFound(_) | AccessError::NotYourHome { .. })
            | FilesError::NotFound(_)
            | FilesError::NoUpload(_)
            | FilesError::NoLink(_) => ErrorName::NotFound,
            FilesError::Access(AccessError::ReadOnly(_))
            | FilesError::Ours(_)
            | FilesError::InUse(_)
            | FilesError::SpaceItself(_)
            | FilesError::NotOwn
            | FilesError::TooManyLinks(_)
            | FilesError::AdminOnly
            | FilesError::Scope(_) => ErrorName::Forbidden,
            FilesError::Storage { source, .. } | FilesError::Space { source, .. } => storage_name(source),
            FilesError::Glob(_) | FilesError::BadRequest(_) => ErrorName::BadRequest,
            FilesError::Quota(_) => ErrorName::QuotaExceeded,
            FilesError::Unmeasured(_) => ErrorName::Unavailable,
            FilesError::Pack(error) => pack_name(error),
            FilesError::Assembly(error) => assembly_name(error),
            FilesError::PartlyMoved { .. } => ErrorName::Changing,
            FilesError::OtherVersion(_) => ErrorName::Conflict,
            FilesError::DamagedThere(_) | FilesError::DamagedShare(_) => ErrorName::Damaged,
            FilesError::Share(_) => ErrorName::NotFound,
            FilesError::Disk(error, _) if is_no_space(error) => ErrorName::StorageFull,
            FilesError::Disk(..) | FilesError::Owner(_) => ErrorName::Internal,
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

fn storage_name(error: &RootError) -> ErrorName {
    match error {
        RootError::NotFound(_) | RootError::Escapes(_) | RootError::Path(_) => ErrorName::NotFound,
        RootError::Exists(_) | RootError::NotEmpty(_) => ErrorName::Conflict,
        // Not a conflict: a client that skips existing files must not skip this one.
        RootError::Changing(_) => ErrorName::Changing,
        RootError::NotAFolder(_)
        | RootError::IsAFolder(_)
        | RootError::NotAFile(_)
        | RootError::ThroughLink(_)
        | RootError::TooLong(_)
        | RootError::Unsupported { .. }
        | RootError::IntoItself { .. } => ErrorName::BadRequest,
        RootError::Denied(_) | RootError::Spared(_) => ErrorName::Forbidden,
        RootError::NoSpace(_) => ErrorName::StorageFull,
        RootError::Unreachable { .. } | RootError::Busy(_) => ErrorName::Unavailable,
        RootError::FsQuota(_) => ErrorName::QuotaExceeded,
        _ => ErrorName::Internal,
    }
}

fn pack_name(error: &PackError) -> ErrorName {
    match error {
        PackError::Storage(source) => storage_name(source),
        PackError::Limit { .. } | PackError::Order(_) | PackError::LinkOutside(_) | PackError::Path(_) => {
            ErrorName::BadRequest
        }
        _ => ErrorName::Damaged,
    }
}

fn assembly_name(error: &AssemblyError) -> ErrorName {
    match error {
        AssemblyError::OutOfRange { .. } => ErrorName::BadRequest,
        AssemblyError::WrongLength { .. }
        | AssemblyError::DamagedChunk { .. }
        | AssemblyError::WrongDigest { .. } => ErrorName::Damaged,
        // The other request ends soon; the client retries.
        AssemblyError::PartBusy { .. } | AssemblyError::Busy(_) | AssemblyError::Ending(_) => {
            ErrorName::Unavailable
        }
        AssemblyError::Finished(_) | AssemblyError::State { .. } => ErrorName::NotFound,
        AssemblyError::Incomplete { .. } => ErrorName::Changing,
        AssemblyError::Storage(source) => storage_name(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_exists_is_told_as_a_conflict() {
        let path = || "f".parse().unwrap();
        assert_eq!(storage_name(&RootError::Exists(path())), ErrorName::Conflict);
        assert_eq!(storage_name(&RootError::Changing(path())), ErrorName::Changing);
        let incomplete = AssemblyError::Incomplete {
            path: path(),
            missing: 1,
        };
        assert_eq!(assembly_name(&incomplete), ErrorName::Changing);
    }

    #[test]
    fn a_move_that_leaves_something_behind_says_where_everything_is() {
        let moved = FilesError::PartlyMoved {
            from: Box::new("/pfs/dc/public/set".parse().unwrap()),
            to: Box::new("/pfs/dc/home/ann/set".parse().unwrap()),
        };
        let told = moved.refusal();
        assert_eq!(told.error, ErrorName::Changing);
        assert_eq!(
            told.msg,
            "`/pfs/dc/public/set` was copied to `/pfs/dc/home/ann/set`, but not all of it is gone: what was written \
             there meanwhile stays"
        );
    }

    /// The reason may also contain the last part of the path.
    #[test]
    fn the_whole_path_stands_where_the_path_stood_and_nowhere_else() {
        let told = FilesError::Storage {
            path: Box::new("/pfs/dc/public/.own".parse().unwrap()),
            source: RootError::Unsupported {
                path: ".own".parse().unwrap(),
                reason: "it uses the name `.own`".to_owned(),
            },
        };
        assert_eq!(
            told.to_string(),
            "`/pfs/dc/public/.own` cannot be kept in this storage: it uses the name `.own`"
        );
    }

    #[test]
    fn who_finds_a_folder_kept_by_somebody_else_tries_again() {
        let error = || RootError::Busy("f".parse().unwrap());
        assert_eq!(storage_name(&error()), ErrorName::Unavailable);
        assert_eq!(assembly_name(&error().into()), ErrorName::Unavailable);
    }
}
