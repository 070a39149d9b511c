//! Errors of operations below a root, distinguished as far as callers can act on them.

use std::io;

use crate::relpath::{RelPath, RelPathError};
use crate::sys::Errno;

/// A failed operation below a root. The path is always relative to that root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("`{0}` does not exist")]
    NotFound(RelPath),
    #[error("`{0}` points outside its folder")]
    Escapes(RelPath),
    #[error("`{0}` already exists")]
    Exists(RelPath),
    #[error("`{0}` is not a folder")]
    NotAFolder(RelPath),
    #[error("`{0}` is a folder")]
    IsAFolder(RelPath),
    #[error("`{0}` is not a regular file")]
    NotAFile(RelPath),
    #[error("the folder `{0}` is not empty")]
    NotEmpty(RelPath),
    #[error("`{0}` goes through a symbolic link")]
    ThroughLink(RelPath),
    #[error("permission denied: `{0}`")]
    Denied(RelPath),
    #[error("`{0}` is read-only")]
    Protected(RelPath),
    #[error("no space is left to write `{0}`")]
    NoSpace(RelPath),
    #[error("the file system's own quota leaves no room for `{0}`")]
    FsQuota(RelPath),
    #[error("the path `{0}` is too long for this file system")]
    TooLong(RelPath),
    #[error("`{path}` cannot be kept in this storage: {reason}")]
    Unsupported { path: RelPath, reason: String },
    #[error("the storage behind `{path}` does not answer")]
    Unreachable { path: RelPath, source: io::Error },
    #[error("`{0}` is not a name that this system allows")]
    NotNameable(RelPath),
    #[error("`{from}` cannot be put into itself (`{to}`)")]
    IntoItself { from: RelPath, to: RelPath },
    #[error("`{0}` keeps changing while it is read")]
    Changing(RelPath),
    #[error("`{0}` is locked by another process; try again")]
    Busy(RelPath),
    #[error(transparent)]
    Path(#[from] RelPathError),
    #[error("cannot {action} `{path}`")]
    Io {
        action: &'static str,
        path: RelPath,
        source: io::Error,
    },
}

impl RootError {
    /// Converts an error of the operating system.
    pub fn io(action: &'static str, path: &RelPath, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(errno) => Self::errno(action, path, errno),
            None => Self::Io {
                action,
                path: path.clone(),
                source,
            },
        }
    }

    pub(crate) fn errno(action: &'static str, path: &RelPath, errno: Errno) -> Self {
        let at = path.clone();
        match errno {
            Errno::NOENT => Self::NotFound(at),
            Errno::XDEV => Self::Escapes(at),
            Errno::EXIST => Self::Exists(at),
            Errno::NOTDIR => Self::NotAFolder(at),
            Errno::ISDIR => Self::IsAFolder(at),
            Errno::NOTEMPTY => Self::NotEmpty(at),
            Errno::LOOP => Self::ThroughLink(at),
            Errno::ACCESS | Errno::PERM => Self::Denied(at),
            Errno::NOSPC => Self::NoSpace(at),
            Errno::DQUOT => Self::FsQuota(at),
            Errno::NAMETOOLONG => Self::TooLong(at),
            Errno::ILSEQ => Self::NotNameable(at),
            // The error for opening a socket, or a pipe without a reader, with `O_NONBLOCK`.
            Errno::NXIO => Self::NotAFile(at),
            other => Self::Io {
                action,
                path: at,
                source: other.into(),
            },
        }
    }

    /// The path of the error; of two, the first.
    pub fn path(&self) -> Option<&RelPath> {
        match self {
            Self::NotFound(path)
            | Self::Escapes(path)
            | Self::Exists(path)
            | Self::NotAFolder(path)
            | Self::IsAFolder(path)
            | Self::NotAFile(path)
            | Self::NotEmpty(path)
            | Self::ThroughLink(path)
            | Self::Denied(path)
            | Self::Protected(path)
            | Self::NoSpace(path)
            | Self::TooLong(path)
            | Self::NotNameable(path)
            | Self::Changing(path)
            | Self::Busy(path)
            | Self::FsQuota(path)
            | Self::Unsupported { path, .. }
            | Self::Unreachable { path, .. }
            | Self::Io { path, .. }
            | Self::IntoItself { from: path, .. } => Some(path),
            Self::Path(_) => None,
        }
    }

    /// The same error for the path that the caller used.
    pub(super) fn about(self, path: &RelPath) -> Self {
        let path = path.clone();
        match self {
            Self::NotFound(_) => Self::NotFound(path),
            Self::NotAFolder(_) => Self::NotAFolder(path),
            Self::ThroughLink(_) => Self::ThroughLink(path),
            Self::Denied(_) => Self::Denied(path),
            Self::TooLong(_) => Self::TooLong(path),
            Self::Io { action, source, .. } => Self::Io { action, path, source },
            other => other,
        }
    }

    /// Whether the path does not exist, as far as the caller may know.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::Escapes(_) | Self::Path(_))
    }
}

/// Like [`if_exists`]; the contents of an unreadable folder are `None` too.
pub(crate) fn if_visible<T>(found: Result<T, RootError>) -> Result<Option<T>, RootError> {
    match found {
        Err(RootError::Denied(_)) => Ok(None),
        found => if_exists(found),
    }
}

/// Converts errors for a missing path, or one behind a link or a file, to `None`.
pub(crate) fn if_exists<T>(found: Result<T, RootError>) -> Result<Option<T>, RootError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(RootError::NotAFolder(_) | RootError::ThroughLink(_)) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
