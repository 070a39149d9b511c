//! The ports of a server, and which clients may connect. One thread accepts them and hears their proofs; each connection
//! with a proof is served in its own.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

use super::unproved::{Outcome, Socket, Unproved, is_transient};
use super::{Server, connection};
use crate::hello::Accepted;
use crate::shared;

/// Stack size of a connection's thread; its buffers are on the heap.
const STACK: usize = 256 * 1024;
/// Pause when no connection can be accepted: the machine or the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(50);
/// At most one line about refused connections in this time: a flood must not fill the log.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The system user at the other end of a connection; `None` if it is on another machine, or unknown.
pub type UserOf = fn(BorrowedFd<'_>) -> Option<u32>;

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
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.addresses[0]);
    }
}

impl Open {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

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

/// Binds all ports or none, then serves every connection whose client proves the secret. A client that another user of
/// this machine runs is refused first.
pub fn listen(
    server: &Arc<Server>,
    addresses: &[SocketAddr],
    admission: &Admission,
    user_of: UserOf,
) -> Result<Listening, ListenError> {
    let bind = |address: &SocketAddr| {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, Door::Tcp(listener)))
    };
    let bind = |address: &SocketAddr| {
        bind(address).map_err(|source| ListenError {
            address: *address,
            source,
        })
    };
    let bound = addresses.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let (addresses, mut doors): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
    // Without a secret, a connection is admitted by its address, which a Unix socket does not have.
    if matches!(admission, Admission::BySecret)
        && let Ok(listener) = shared::listen(server.incarnation)
        && listener.set_nonblocking(true).is_ok()
    {
        doors.push(Door::Unix(listener));
    }
    let open: Arc<Open> = Arc::default();
    let reception = Reception {
        server: Arc::clone(server),
        doors,
        admission: admission.clone(),
        user_of,
        open: Arc::clone(&open),
        unproved: Unproved::default(),
        reported: None,
    };
    start("ps-accept", move || reception.run()).map_err(|source| ListenError {
        address: addresses[0],
        source,
    })?;
    Ok(Listening { addresses, open })
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(work).map(drop)
}

/// Where connections arrive; accepting never waits.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    /// `None` for a client that is gone or not admitted.
    fn accept(&self, admission: &Admission) -> io::Result<Option<Socket>> {
        match self {
            Door::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok(admission.admits(peer.ip()).then_some(Socket::Tcp(stream)))
            }
            Door::Unix(listener) => Ok(Some(Socket::Unix(listener.accept()?.0))),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Tcp(listener) => listener.as_fd(),
            Door::Unix(listener) => listener.as_fd(),
        }
    }
}

/// The thread that accepts connections.
struct Reception {
    server: Arc<Server>,
    doors: Vec<Door>,
    admission: Admission,
    user_of: UserOf,
    open: Arc<Open>,
    unproved: Unproved,
    /// When the last line about a refused connection was written.
    reported: Option<Instant>,
}

impl Reception {
    fn run(mut self) {
        loop {
            let timeout = self.unproved.close_late();
            let ready = self.wait(timeout);
            if self.open.is_stopped() {
                return;
            }
            // Proofs first: a new connection may close the oldest that waits.
            let (doors, waiting) = ready.split_at(self.doors.len());
            let secret = self.server.config.secret.as_ref();
            for outcome in self.unproved.read(waiting, secret) {
                match outcome {
                    Outcome::Proved(socket, accepted) => self.serve(socket, accepted),
                    Outcome::Refused(error) => self.report(&format!("refused a connection: {error}")),
                }
            }
            for (door, _) in doors.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
                self.accept(door);
            }
        }
    }

    /// Waits for something to do. Returns for every door, then for every waiting connection, whether it is ready.
    fn wait(&self, timeout: Option<Duration>) -> Vec<bool> {
        let doors = self.doors.iter().map(AsFd::as_fd);
        let sockets = doors.chain(self.unproved.sockets().map(AsFd::as_fd));
        let mut sockets: Vec<_> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Interrupted, nothing is ready: the caller asks again.
        let count = poll(&mut sockets, timeout.as_ref()).unwrap_or(0);
        let is_ready = |socket: &PollFd<'_>| count > 0 && !socket.revents().is_empty();
        sockets.iter().map(is_ready).collect()
    }

    fn accept(&mut self, door: usize) {
        match self.doors[door].accept(&self.admission) {
            Ok(Some(socket)) => self.admit(socket),
            Ok(None) => {}
            Err(error) if is_transient(&error) || error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                self.report(&format!("a connection failed: {error}"));
                // It may be one descriptor too many.
                if !self.unproved.close_oldest() {
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Lets a client of the own user, of root or of another machine prove the secret.
    fn admit(&mut self, socket: Socket) {
        let own = rustix::process::geteuid().as_raw();
        match (self.user_of)(socket.as_fd()).filter(|user| ![own, 0].contains(user)) {
            Some(user) => self.report(&format!(
                "refused a connection of another user of this machine, with number {user}"
            )),
            // A client that cannot be greeted has disconnected.
            None => drop(self.unproved.add(socket)),
        }
    }

    /// Serves a connection in its own thread.
    fn serve(&mut self, socket: Socket, accepted: Accepted) {
        let server = Arc::clone(&self.server);
        let held = self.open.add(&socket);
        // Accepted while the server was being stopped.
        if self.open.is_stopped() {
            return;
        }
        let work = move || {
            match socket {
                Socket::Tcp(stream) => connection::serve(server, stream, accepted),
                Socket::Unix(socket) => connection::serve_shared(server, socket, accepted),
            }
            drop(held);
        };
        if let Err(error) = start("ps-serve", work) {
            self.report(&format!("a connection cannot be served: {error}"));
        }
    }

    fn report(&mut self, message: &str) {
        let now = Instant::now();
        if self.reported.is_none_or(|at| now - at >= REPORT_INTERVAL) {
            self.reported = Some(now);
            eprintln!("{message}");
        }
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
