//! Names the system user at the other end of a connection of this machine. Does not judge who may connect.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::net::{getpeername, getsockname};

use super::sock_diag;

/// The user who opened the other end, over TCP or a Unix socket. `None` if that end is on another machine or already
/// closed, or if the kernel does not say.
///
/// Only a process that is root can have opened a socket that shows as root's, with one exception: one that is already closed.
pub fn peer_user(socket: BorrowedFd<'_>) -> Option<u32> {
    let Ok(own) = SocketAddr::try_from(getsockname(socket).ok()?) else {
        return credentials(socket);
    };
    let peer = SocketAddr::try_from(getpeername(socket).ok()??).ok()?;
    sock_diag::owner(peer, own).ok()?
}

/// By `SO_PEERCRED`. Not with rustix, whose type has no value for a process of another process namespace.
fn credentials(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, all of which are numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    (result == 0).then_some(peer.uid)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_user_of_a_local_peer_is_known() {
        let me = rustix::process::geteuid().as_raw();
        let (here, _there) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(here.as_fd()), Some(me));
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listening) = TcpListener::bind(address) else {
                continue;
            };
            let _client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
            let (accepted, _) = listening.accept().unwrap();
            assert_eq!(peer_user(accepted.as_fd()), Some(me), "{address}");
        }
    }
}
