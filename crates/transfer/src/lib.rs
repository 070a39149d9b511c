//! The client of the file service: single calls, and transfers of whole trees.
//!
//! Transfers run many requests at a time, resume after a lost connection, check every byte and do not stop for a bad file.
//! Blocking work (reading, hashing, writing) runs on threads that may block.

mod both_ways;
mod calls;
mod check;
mod download;
mod error;
mod fsck;
mod gathering;
mod item;
mod lanes;
mod lines;
mod listing;
mod local;
mod mover;
mod options;
mod paced;
mod patience;
mod range_reader;
mod real;
mod tally;
mod upload;

use paddlecloud_api::client::{Client, OnAbsence};

pub use self::calls::{ListOptions, RemoveOptions};
pub use self::check::{Side, TreeDifference};
pub use self::error::TransferError;
pub use self::fsck::Fsck;
pub use self::listing::Listing;
pub use self::local::{Walked, walk};
pub use self::options::{Download, Failure, Outcome, Progress, Summary, TransferOptions, Upload};
pub use self::patience::Patience;
pub use self::range_reader::RangeReader;

/// The file service of one server, for one caller.
#[derive(Clone, Copy)]
pub struct FileClient<'a> {
    client: &'a Client,
    absence: OnAbsence,
}

/// Gives a client of the server its file service.
pub trait FileService {
    /// The file service.
    fn files(&self) -> FileClient<'_>;
}

impl FileService for Client {
    fn files(&self) -> FileClient<'_> {
        FileClient {
            client: self,
            absence: OnAbsence::Fail,
        }
    }
}

impl FileClient<'_> {
    /// The same for work of many calls: a server that becomes unreachable between two calls is retried, as during one. Transfers
    /// do this by themselves.
    pub fn patient(self) -> Self {
        FileClient {
            absence: OnAbsence::Wait,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_change_threads(_: impl Send) {}

    #[test]
    fn transfers_run_on_any_thread() {
        let client = Client::new("unix:/nowhere".parse().unwrap());
        let options = TransferOptions::default();
        may_change_threads(client.files().upload(Vec::new(), &options, &()));
        may_change_threads(client.files().download(Vec::new(), &options, &()));
    }
}
