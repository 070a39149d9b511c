//! The ports of a server, and which clients may connect.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use rustix::net::Shutdown;

use super::{Server, connection};
use crate::shared;

/// Stack size of a connection's thread; its buffers are on the heap.
const STACK: usize = 256 * 1024;

/// Which connections are accepted before the handshake.
#[derive(Debug, Clone)]
pub enum Admission {
    /// All; clients prove that they know the run's secret.
    BySecret,
    /// Only the workers of a job without a secret, and this machine itself.
    ByAddress(HashSet<IpAddr>),
}

impl Admission {
    fn admits(&self, address: IpAddr) -> bool {
        match self {
            Admission::BySecret => true,
            Admission::ByAddress(known) => address.is_loopback() || known.contains(&address.to_canonical()),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    pub address: SocketAddr,
    pub source: io::Error,
}

/// A server that accepts connections, until it is stopped or the process ends.
#[derive(Debug)]
pub struct Listening {
    pub addresses: Vec<SocketAddr>,
    /// Names the socket for trainers of this machine.
    incarnation: u64,
    open: Arc<Open>,
}

/// What is closed when a server is stopped.
#[derive(Debug, Default)]
struct Open {
    is_stopped: AtomicBool,
    /// Connections being served. The client may have closed one already, but its file descriptor is not reused yet.
    connections: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Listening {
    /// Closes all connections and accepts no new ones.
    pub fn stop(&self) {
        self.open.is_stopped.store(true, Ordering::SeqCst);
        for connection in &*self.open.connections() {
            if let Some(stream) = connection.upgrade() {
                // The client may have disconnected already.
                let _ = rustix::net::shutdown(&*stream, Shutdown::Both);
            }
        }
        for address in &self.addresses {
            // Wakes the accepting thread.
            let _ = TcpStream::connect(address);
        }
        let _ = shared::connect(self.incarnation);
    }
}

impl Open {
    fn connections(&self) -> MutexGuard<'_, Vec<Weak<OwnedFd>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection while it is served.
    fn add(&self, stream: &impl AsFd) -> io::Result<Arc<OwnedFd>> {
        let held = Arc::new(stream.as_fd().try_clone_to_owned()?);
        let mut connections = self.connections();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(&held));
        Ok(held)
    }
}

/// Binds all ports or none, then serves every connection in its own thread.
pub fn listen(
    server: &Arc<Server>,
    addresses: &[SocketAddr],
    admission: &Admission,
) -> Result<Listening, ListenError> {
    let bind = |address: &SocketAddr| {
        TcpListener::bind(address).map_err(|source| ListenError {
            address: *address,
            source,
        })
    };
    let listeners = addresses.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let bound = listeners
        .iter()
        .zip(addresses)
        .map(|(listener, asked)| listener.local_addr().unwrap_or(*asked));
    let bound = bound.collect();
    let open: Arc<Open> = Arc::default();
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        start(name, work).map_err(|source| ListenError {
            address: addresses[0],
            source,
        })
    };
    for listener in listeners {
        let (server, admission, open) = (Arc::clone(server), admission.clone(), Arc::clone(&open));
        let accept = move || accept_all(&server, &listener, &admission, &open);
        start("ps-accept", Box::new(accept))?;
    }
    // Without a secret, a connection is admitted by its address, which a Unix socket does not have.
    if matches!(admission, Admission::BySecret)
        && let Ok(listener) = shared::listen(server.incarnation)
    {
        let (server, open) = (Arc::clone(server), Arc::clone(&open));
        start(
            "ps-accept",
            Box::new(move || accept_shared(&server, &listener, &open)),
        )?;
    }
    Ok(Listening {
        addresses: bound,
        incarnation: server.incarnation,
        open,
    })
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(work).map(drop)
}

fn accept_all(server: &Arc<Server>, listener: &TcpListener, admission: &Admission, open: &Open) {
    for stream in listener.incoming() {
        if open.is_stopped.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(stream) = &stream
            && !stream.peer_addr().is_ok_and(|peer| admission.admits(peer.ip()))
        {
            continue;
        }
        serve(server, open, stream, connection::serve);
    }
}

fn accept_shared(server: &Arc<Server>, listener: &UnixListener, open: &Open) {
    for socket in listener.incoming() {
        if open.is_stopped.load(Ordering::SeqCst) {
            return;
        }
        serve(server, open, socket, connection::serve_shared);
    }
}

/// Serves a connection in its own thread.
fn serve<S: AsFd + Send + 'static>(
    server: &Arc<Server>,
    open: &Open,
    stream: io::Result<S>,
    serve: fn(Arc<Server>, S),
) {
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return eprintln!("a connection failed: {error}"),
    };
    let server = Arc::clone(server);
    let held = open.add(&stream);
    // Accepted while the server was being stopped.
    if open.is_stopped.load(Ordering::SeqCst) {
        return;
    }
    let work = move || {
        serve(server, stream);
        drop(held);
    };
    if let Err(error) = start("ps-serve", work) {
        eprintln!("a connection cannot be served: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_secret_only_the_jobs_own_addresses_are_admitted() {
        let known = ["10.0.0.7".parse().unwrap()].into();
        let admission = Admission::ByAddress(known);
        assert!(admission.admits("10.0.0.7".parse().unwrap()));
        assert!(admission.admits("::ffff:10.0.0.7".parse().unwrap()));
        assert!(admission.admits("127.0.0.1".parse().unwrap()));
        assert!(!admission.admits("10.0.0.8".parse().unwrap()));
    }
}
