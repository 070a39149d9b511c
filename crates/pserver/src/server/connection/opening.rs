//! The start of a connection whose client proved the secret, over TCP or shared memory: welcome, then request after request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::hello::{Accepted, OBSERVER};
use crate::shared::{self, Shared};

use super::super::Server;
use super::Connection;

/// How long a reply may make no progress. A client that was stopped reconnects when it resumes.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

/// Serves a connection until either side closes it. Reporting errors is left to the client.
pub(in crate::server) fn serve(server: Arc<Server>, stream: TcpStream, accepted: Accepted) {
    crate::stream::prepare(&stream);
    // A trainer that is stopped in the middle of a reply would keep the blocks it reads locked.
    let _ = stream.set_write_timeout(Some(WRITE_LIMIT));
    converse(server, stream, accepted);
}

/// Serves a trainer of this machine through shared memory. It uses TCP if there is not enough memory.
pub(in crate::server) fn serve_shared(server: Arc<Server>, socket: UnixStream, accepted: Accepted) {
    let reserved = server.budget.reserve(shared::BYTES as u64, "a connection");
    if let (Ok(_memory), Ok(shared)) = (reserved, Shared::offer(socket, WRITE_LIMIT)) {
        converse(server, shared, accepted);
    }
}

fn converse(server: Arc<Server>, stream: impl Read + Write, accepted: Accepted) {
    let mut connection = Connection {
        server,
        stream,
        identity: accepted.identity,
        unread: 0,
        joined: None,
    };
    if connection.welcome(accepted.proof).is_err() {
        return;
    }
    let is_trainer = connection.identity.trainer != OBSERVER;
    let server = Arc::clone(&connection.server);
    if is_trainer {
        server.count_connection(1);
    }
    while let Ok(true) = connection.serve_one() {}
    drop(connection);
    if is_trainer {
        server.count_connection(-1);
    }
}
