//! Users' files on the server: homes, packages, the folders of runs, and the file service with its queue, locks and threads.
//!
//! Blocking code that returns values and errors of its own. It knows no status of HTTP and no key of the configuration, and it
//! changes no job and no account. What a store of files must do is in `paddlecloud_pfs`, its index in `paddlecloud_store`.

mod files;
pub mod homes;
pub mod lane;
pub mod locks;
pub mod packages;
pub mod queue;
pub mod runs;

pub use files::{
    Backend, ByteRange, ChunkIn, Content, DigestMode, FileSettings, FileStoreError, Files, FilesError, Fsck,
    KEEP_UNFINISHED, ListQuery, Listed, Lister, MEASURED_AGAIN, OLD_RANGES, Opened, PackIn, PackOut,
    PackStored, RangeIn, RangeSum, RemovedPath, RequestedBytes, StatOf, Takes, time_of,
};
