//! The start of a connection, over TCP or shared memory: handshake, welcome, then request after request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::hello::{self, Accepted, HelloError, OBSERVER};
use crate::message::{Code, reply};
use crate::shared::{self, Shared};

use super::super::{Server, refused};
use super::{Connection, send};

/// How long a client may take to authenticate.
const HELLO_LIMIT: Duration = Duration::from_secs(20);
/// How long a reply may make no progress. A client that was stopped reconnects when it resumes.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

/// Serves a connection until either side closes it. Reporting errors is left to the client.
pub(in crate::server) fn serve(server: Arc<Server>, mut stream: TcpStream) {
    crate::stream::prepare(&stream);
    // A trainer that is stopped in the middle of a reply would keep the blocks it reads locked.
    let _ = stream.set_write_timeout(Some(WRITE_LIMIT));
    // Without a limit, an unauthenticated client can hold a thread, but nothing else.
    let _ = stream.set_read_timeout(Some(HELLO_LIMIT));
    let Some(accepted) = greet(&server, &mut stream) else {
        return;
    };
    let _ = stream.set_read_timeout(None);
    converse(server, stream, accepted);
}

/// Serves a trainer of this machine through shared memory. It uses TCP if there is not enough memory.
pub(in crate::server) fn serve_shared(server: Arc<Server>, mut socket: UnixStream) {
    let _ = socket.set_read_timeout(Some(HELLO_LIMIT));
    let Some(accepted) = greet(&server, &mut socket) else {
        return;
    };
    let _ = socket.set_read_timeout(None);
    let reserved = server.budget.reserve(shared::BYTES as u64, "a connection");
    if let (Ok(_memory), Ok(shared)) = (reserved, Shared::offer(socket, WRITE_LIMIT)) {
        converse(server, shared, accepted);
    }
}

/// Checks the client's proof. Returns `None` if it was refused.
fn greet(server: &Server, stream: &mut (impl Read + Write)) -> Option<Accepted> {
    let error = match hello::accept(stream, server.config.secret.as_ref()) {
        Ok(accepted) => return Some(accepted),
        Err(error) => error,
    };
    if matches!(error, HelloError::Credentials | HelloError::Version { .. }) {
        eprintln!("refused a connection: {error}");
        let refusal = refused(Code::Credentials, error.to_string());
        let _ = send(stream, reply::REFUSED, &refusal.encode());
    }
    None
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
