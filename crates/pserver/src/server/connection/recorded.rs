//! A client whose requests are in memory, for fuzzing.

use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::hello::Identity;
use crate::message::reply;

use super::super::Server;
use super::Connection;

/// Serves requests from memory as if a client had sent them, for fuzzing. Ends where a reply would have to wait.
pub(in crate::server) fn serve_bytes(server: Arc<Server>, identity: Identity, requests: &[u8]) {
    let mut connection = Connection {
        server,
        stream: Recorded(requests),
        identity,
        unread: 0,
        joined: None,
    };
    while let Ok(true) = connection.serve_one() {}
}

/// A client that has sent everything and reads nothing.
struct Recorded<'a>(&'a [u8]);

impl Read for Recorded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Recorded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.first() {
            Some(&reply::WAITING) => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
