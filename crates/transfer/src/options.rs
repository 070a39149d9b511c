//! What a transfer is told, and what it tells.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use paddlecloud_api::files::FileMeta;
use paddlecloud_pfs::{Entry, PfsPath};

use super::TransferError;

/// How files are sent and fetched.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Compare by digest; otherwise a file of the same size and time is taken for the same.
    pub checksum: bool,
    /// Leave alone what is there.
    pub no_overwrite: bool,
    /// Bytes per second over all connections.
    pub bwlimit: Option<u64>,
    /// Requests at a time.
    pub transfers: NonZeroUsize,
    /// Find out what would be done, and do nothing.
    pub dry_run: bool,
}

impl Default for TransferOptions {
    fn default() -> Self {
        TransferOptions {
            checksum: false,
            no_overwrite: false,
            bwlimit: None,
            transfers: NonZeroUsize::new(4).expect("four is not zero"),
            dry_run: false,
        }
    }
}

/// Something to send.
#[derive(Debug, Clone)]
pub enum Upload {
    /// One file, which becomes exactly `remote`.
    File { local: PathBuf, remote: PfsPath },
    /// Entries of the folder `local`, which appear below the folder `remote`.
    ///
    /// Entries ascend, and every folder that holds one is among them; digests are not needed.
    Tree {
        local: PathBuf,
        remote: PfsPath,
        entries: Vec<Entry>,
    },
}

/// Something to fetch.
#[derive(Debug, Clone)]
pub enum Download {
    /// One file, which becomes exactly `local`.
    File { remote: PfsPath, local: PathBuf },
    /// The same for one that was just looked at, links followed: what it is is not asked again.
    Known {
        remote: PfsPath,
        local: PathBuf,
        meta: FileMeta,
    },
    /// Entries of the folder `remote`, which appear below the folder `local`; ordered as for uploads.
    Tree {
        remote: PfsPath,
        local: PathBuf,
        entries: Vec<Entry>,
    },
}

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was transferred, or those parts of it that were not there. In a dry run: it would be.
    Transferred,
    /// The same file was there already.
    Unchanged,
    /// Another file was there and was to stay.
    Kept,
}

/// A file that did not get there, and why. The others did.
#[derive(Debug)]
pub struct Failure {
    /// The path on the side it comes from, as people read it.
    pub path: String,
    pub error: TransferError,
}

/// Watches a transfer. Called from several threads; must not block.
pub trait Progress: Send + Sync {
    /// So many files and bytes of content will be looked at; may be called again with more.
    fn planned(&self, _files: u64, _bytes: u64) {}
    /// Bytes of content went over the wire.
    fn moved(&self, _bytes: u64) {}
    /// Of the bytes that were told as moved so many were lost, and go again.
    fn again(&self, _bytes: u64) {}
    /// Bytes of content were there already and need not go over the wire.
    fn spared(&self, _bytes: u64) {}
    /// A file is done.
    fn finished(&self, _path: &str, _outcome: Outcome) {}
    /// A file is given up; the others go on.
    fn failed(&self, _failure: &Failure) {}
}

/// Nobody watches.
impl Progress for () {}

/// What a transfer did.
#[derive(Debug, Default)]
pub struct Summary {
    /// Files and links that were transferred.
    pub transferred: u64,
    pub unchanged: u64,
    pub kept: u64,
    /// Bytes of content of the transferred files.
    pub bytes: u64,
    /// Bytes of content that really went over the wire, each counted once.
    pub moved: u64,
    /// Bytes of content that went in vain, because a connection broke or a bit flipped.
    pub again: u64,
    pub failures: Vec<Failure>,
}
