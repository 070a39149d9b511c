//! Errors of single files in a transfer.

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_pfs::RootError;
use paddlecloud_pfs::content::AssemblyError;
use paddlecloud_pfs::pack::PackError;

/// A failure of one file.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The file system of this machine.
    #[error(transparent)]
    Local(#[from] RootError),
    #[error("cannot {action}")]
    Io {
        action: &'static str,
        source: std::io::Error,
    },
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    #[error("it changed while it was being sent")]
    Changed,
    #[error(
        "the server discarded its upload while it was being sent; another client may be writing the same file"
    )]
    UploadGone,
    #[error("it changed on the server while it was being fetched")]
    ChangedOnServer,
    #[error("its bytes on the server's disk differ from those that were stored; the disk is damaged")]
    Damaged,
    #[error("it is not a regular file")]
    NotAFile,
    /// The destination must not be replaced by a file.
    #[error("`{path}` {reason}")]
    NotReplaced { path: String, reason: String },
    /// The destination is of another kind, and overwriting is disabled.
    #[error("a {0} is in the way")]
    InItsPlace(&'static str),
    #[error("the transfer was interrupted")]
    BrokenOff,
}

pub(super) fn unreadable(source: std::io::Error) -> TransferError {
    TransferError::Io {
        action: "read the file",
        source,
    }
}

impl TransferError {
    /// Whether the whole transfer is pointless after this error.
    pub(super) fn ends_everything(&self) -> bool {
        match self {
            TransferError::Server(ClientError::Refused(body)) => body.error == ErrorName::Unauthorized,
            TransferError::Server(_) => true,
            _ => false,
        }
    }

    /// Whether the received part of the file is useless or in the way of a retry: it has wrong bytes, belongs to a file that has
    /// changed, or fills the disk.
    pub(super) fn spoils_what_arrived(&self) -> bool {
        match self {
            TransferError::Damaged
            | TransferError::ChangedOnServer
            | TransferError::Assembly(AssemblyError::WrongDigest { .. }) => true,
            TransferError::Local(error) | TransferError::Assembly(AssemblyError::Storage(error)) => matches!(
                error,
                RootError::NoSpace(_) | RootError::FsQuota(_) | RootError::Exists(_)
            ),
            _ => false,
        }
    }
}
