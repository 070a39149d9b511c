//! The options, sources and results of a transfer.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use paddlecloud_api::files::FileMeta;
use paddlecloud_pfs::{Entry, Existing, PfsPath};

use super::TransferError;

/// How files are sent and fetched.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Compare by digest; otherwise a file of the same size and time counts as unchanged.
    pub checksum: bool,
    /// Keep existing files.
    pub no_overwrite: bool,
    /// Limit in bytes per second over all connections.
    pub bwlimit: Option<u64>,
    /// Concurrent requests.
    pub transfers: NonZeroUsize,
    /// Only report what would be transferred.
    pub dry_run: bool,
    /// Remote folders that the caller has just created. The server is not asked what is in them.
    pub new_folders: HashSet<PfsPath>,
}

impl Default for TransferOptions {
    fn default() -> Self {
        TransferOptions {
            checksum: false,
            no_overwrite: false,
            bwlimit: None,
            transfers: NonZeroUsize::new(4).expect("four is not zero"),
            dry_run: false,
            new_folders: HashSet::new(),
        }
    }
}

impl TransferOptions {
    /// Whether existing files are replaced.
    pub fn existing(&self) -> Existing {
        match self.no_overwrite {
            true => Existing::Keep,
            false => Existing::Replace,
        }
    }
}

/// Something to send.
#[derive(Debug, Clone)]
pub enum Upload {
    /// One file, stored at exactly `remote`.
    File { local: PathBuf, remote: PfsPath },
    /// Entries of the folder `local`, stored below the folder `remote`.
    ///
    /// Entries are sorted and include the parent folders of each; digests are not needed.
    Tree {
        local: PathBuf,
        remote: PfsPath,
        entries: Vec<Entry>,
    },
}

/// Something to fetch.
#[derive(Debug, Clone)]
pub enum Download {
    /// One file, stored at exactly `local`, with the metadata that [`crate::FileClient::stat`] returned.
    File {
        remote: PfsPath,
        local: PathBuf,
        meta: FileMeta,
    },
    /// Entries of the folder `remote`, stored below the folder `local`; sorted as for uploads.
    Tree {
        remote: PfsPath,
        local: PathBuf,
        entries: Vec<Entry>,
    },
}

/// The outcome of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was transferred, or its missing parts were. In a dry run: it would be.
    Transferred,
    /// The same file already existed.
    Unchanged,
    /// Another file existed and was kept.
    Kept,
}

/// A file that failed, and why. The others are not affected.
#[derive(Debug)]
pub struct Failure {
    /// The source path, for display.
    pub path: String,
    pub error: TransferError,
}

/// Observes a transfer. Called from several threads; must not block.
pub trait Progress: Send + Sync {
    /// This many files and bytes of content will be processed; may be called again with more.
    fn planned(&self, _files: u64, _bytes: u64) {}
    /// Bytes of content were sent or received.
    fn moved(&self, _bytes: u64) {}
    /// This many bytes that were reported as moved are lost and will be sent again.
    fn again(&self, _bytes: u64) {}
    /// Bytes of content already existed and need not be sent.
    fn reused(&self, _bytes: u64) {}
    /// A file is done.
    fn finished(&self, _path: &str, _outcome: Outcome) {}
    /// A file failed; the others continue.
    fn failed(&self, _failure: &Failure) {}
}

/// No observer.
impl Progress for () {}

/// The result of a transfer.
#[derive(Debug, Default)]
pub struct Summary {
    /// Files and links that were transferred.
    pub transferred: u64,
    pub unchanged: u64,
    pub kept: u64,
    /// Bytes of content of the transferred files.
    pub bytes: u64,
    /// Bytes of content that were really sent or received, each counted once.
    pub moved: u64,
    /// Bytes of content that were wasted because a connection broke or a bit flipped.
    pub again: u64,
    pub failures: Vec<Failure>,
}
