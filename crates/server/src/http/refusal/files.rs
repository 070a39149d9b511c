//! Errors about files, packages and homes.

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_files::FilesError;
use paddlecloud_files::homes::StorageError;
use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::pack::PackError;
use paddlecloud_pfs::quota::QuotaError;
use paddlecloud_pfs::{AccessError, RootError};

use super::{FREE_SPACE, disk_is_full};
use crate::app::AppError;

/// Why the file service refused.
pub(in crate::http) fn files_failed(error: FilesError) -> ErrorBody {
    let error = match error {
        FilesError::Owner(home) if matches!(*home, StorageError::Foreign(_)) => return storage_failed(*home),
        other => other,
    };
    let name = name_of(&error);
    if matches!(name, ErrorName::Internal | ErrorName::StorageFull) {
        tracing::error!(error = chain_of(&error), "the storage failed");
    }
    let body = ErrorBody::new(name, error.to_string());
    match (error, name) {
        (_, ErrorName::StorageFull) => body.with_hint(FREE_SPACE),
        (FilesError::Quota(QuotaError::Unreadable { .. }), _) => {
            body.with_hint("make the folder readable in a job that runs, or remove it with `paddlectl rm -r`")
        }
        (_, ErrorName::QuotaExceeded) => body.with_hint(
            "free some space: `paddlectl du` shows the largest entries and what unfinished uploads reserve",
        ),
        (FilesError::DamagedOnDisk(_), _) => {
            body.with_hint("if you have the file, upload it again with `paddlectl cp --checksum`, and inform an administrator")
        }
        (FilesError::TooManyLinks(_), _) => {
            body.with_hint("`paddlectl publish` lists them, and `--revoke ID` revokes one")
        }
        (FilesError::NoLink(_), _) => body.with_hint("`paddlectl publish` lists your links"),
        (FilesError::Ours(_), _) => body.with_hint(
            "`paddlectl prune --all` removes your ended jobs and their copies there; put your own files elsewhere",
        ),
        (FilesError::Assembly(AssemblyError::WrongDigest { .. }), _) => {
            body.with_hint("send it again: no part of it was stored")
        }
        _ => body,
    }
}

/// Why a path was not removed.
pub(in crate::http) fn removal_refused(error: FilesError) -> ErrorBody {
    let is_folder = matches!(
        error,
        FilesError::Storage {
            source: RootError::IsAFolder(_),
            ..
        }
    );
    let body = files_failed(error);
    match is_folder {
        true => body.with_hint("`-r` removes folders and their contents"),
        false => body,
    }
}

/// Why a folder was not created.
pub(in crate::http) fn mkdir_refused(error: AppError) -> ErrorBody {
    let lacks_parent = matches!(error, AppError::Files(FilesError::NotFound(_)));
    let body = ErrorBody::from(error);
    match lacks_parent {
        true => body.with_hint("`-p` also creates missing parent folders"),
        false => body,
    }
}

fn name_of(error: &FilesError) -> ErrorName {
    match error {
        FilesError::Access(
            AccessError::NotFound(_) | AccessError::OtherDatacenter { .. } | AccessError::NotYourHome { .. },
        )
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
        FilesError::DamagedOnDisk(_) | FilesError::DamagedShare(_) => ErrorName::Damaged,
        FilesError::Share(_) => ErrorName::NotFound,
        FilesError::Disk(..) if error.is_full() => ErrorName::StorageFull,
        FilesError::Disk(..) | FilesError::Owner(_) => ErrorName::Internal,
    }
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
        RootError::Denied(_) | RootError::Protected(_) => ErrorName::Forbidden,
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

/// Why a home, a package or the folders of a run cannot be used.
pub(in crate::http) fn storage_failed(error: StorageError) -> ErrorBody {
    if error.is_full() {
        return disk_failed(&error);
    }
    let problem = error.to_string();
    match &error {
        StorageError::NotFound(_) | StorageError::Access(_) => ErrorBody::new(ErrorName::NotFound, problem),
        StorageError::NotAFolder(_)
        | StorageError::BadName(_)
        | StorageError::OutputIsAFile
        | StorageError::Ours(_) => ErrorBody::new(ErrorName::BadRequest, problem),
        StorageError::Foreign(_) => ErrorBody::new(ErrorName::Forbidden, problem)
            .with_hint("ask an administrator: the server's log has the command that changes its owner"),
        StorageError::NotUploaded(_) => ErrorBody::new(ErrorName::PackageMissing, problem)
            .with_hint("announce it to `POST /api/v1/packages`, send its files, then submit again"),
        StorageError::Changed(_) => ErrorBody::new(ErrorName::Damaged, problem).with_hint("submit again"),
        StorageError::Storage(RootError::Busy(_)) => {
            let problem = "the package is already being uploaded";
            ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for that `submit`, or stop it")
        }
        StorageError::Storage(_) | StorageError::Disk(_) | StorageError::Manifest(_) => disk_failed(&error),
    }
}

fn disk_failed(error: &StorageError) -> ErrorBody {
    tracing::error!(error = chain_of(error), "the storage failed");
    match error.is_full() {
        true => disk_is_full(),
        false => ErrorBody::new(
            ErrorName::Internal,
            format!("the server's storage failed: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_existing_file_is_reported_as_a_conflict() {
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
    fn only_a_folder_that_was_not_removed_gets_the_hint() {
        let refused = |source: RootError| {
            let path = Box::new("/pfs/dc/public/f".parse().unwrap());
            removal_refused(FilesError::Storage { path, source })
        };
        let folder = refused(RootError::IsAFolder("f".parse().unwrap()));
        assert_eq!(folder.error, ErrorName::BadRequest);
        assert_eq!(folder.hints, ["`-r` removes folders and their contents"]);
        let full = refused(RootError::NoSpace("f".parse().unwrap()));
        assert_eq!(full.error, ErrorName::StorageFull);
        assert_eq!(full.hints, [FREE_SPACE]);
    }

    #[test]
    fn a_busy_folder_is_reported_as_unavailable() {
        let error = || RootError::Busy("f".parse().unwrap());
        assert_eq!(storage_name(&error()), ErrorName::Unavailable);
        assert_eq!(assembly_name(&error().into()), ErrorName::Unavailable);
    }
}
