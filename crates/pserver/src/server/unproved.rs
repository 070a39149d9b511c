//! Connections whose clients have not yet proved that they know the run's secret: each costs a descriptor, but no thread.
//!
//! What happens to a proved connection, and who may wait at all, is left to `listen`.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::hello::{Accepted, Challenge, HELLO_BYTES, HelloError, RunSecret};
use crate::message::{Code, reply};

use super::connection::send;
use super::refused;

/// Maximum connections that wait. One more closes the oldest: a flood delays a client, but shuts out none.
const MOST: usize = 256;
/// How long a client may take to prove the secret.
const LIMIT: Duration = Duration::from_secs(5);

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    /// Of a client on this machine.
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Socket::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection whose client has something to prove.
#[derive(Debug)]
struct Candidate {
    socket: Socket,
    challenge: Challenge,
    hello: [u8; HELLO_BYTES],
    /// Bytes of `hello` that have arrived.
    read: usize,
    until: Instant,
}

/// The end of a wait.
pub(super) enum Outcome {
    Proved(Socket, Accepted),
    /// The client was told.
    Refused(HelloError),
}

/// The waiting connections, oldest first.
#[derive(Debug, Default)]
pub(super) struct Unproved {
    waiting: VecDeque<Candidate>,
}

impl Unproved {
    /// Sends the challenge. The greeting fits into the buffer of a new connection, so nothing here waits.
    pub(super) fn add(&mut self, mut socket: Socket) -> io::Result<()> {
        let challenge = Challenge::random();
        socket.set_nonblocking(true)?;
        socket.write_all(&challenge.greeting())?;
        if self.waiting.len() >= MOST {
            self.close_oldest();
        }
        self.waiting.push_back(Candidate {
            socket,
            challenge,
            hello: [0; HELLO_BYTES],
            read: 0,
            until: Instant::now() + LIMIT,
        });
        Ok(())
    }

    /// Returns whether there was one.
    pub(super) fn close_oldest(&mut self) -> bool {
        self.waiting.pop_front().is_some()
    }

    /// Closes the connections whose time is over, and returns how long the next one may still wait.
    pub(super) fn close_late(&mut self) -> Option<Duration> {
        let now = Instant::now();
        while self.waiting.front().is_some_and(|oldest| oldest.until <= now) {
            self.close_oldest();
        }
        self.waiting.front().map(|oldest| oldest.until - now)
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.waiting.iter().map(|candidate| &candidate.socket)
    }

    /// Reads from the connections that are ready, in the order of `sockets`, and removes those that have answered or closed.
    pub(super) fn read(&mut self, ready: &[bool], secret: Option<&RunSecret>) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let ready = ready.iter().enumerate().rev();
        for (index, _) in ready.filter(|(_, is_ready)| **is_ready) {
            let progress = self.waiting.get_mut(index).map(Candidate::read);
            if !matches!(progress, Some(Progress::Incomplete))
                && let Some(candidate) = self.waiting.remove(index)
                && matches!(progress, Some(Progress::Answered))
            {
                outcomes.extend(candidate.judge(secret));
            }
        }
        outcomes
    }
}

enum Progress {
    Incomplete,
    Answered,
    Closed,
}

impl Candidate {
    fn read(&mut self) -> Progress {
        match self.socket.read(&mut self.hello[self.read..]) {
            Ok(0) => Progress::Closed,
            Ok(count) => {
                self.read += count;
                match self.read == HELLO_BYTES {
                    true => Progress::Answered,
                    false => Progress::Incomplete,
                }
            }
            Err(error) if is_transient(&error) => Progress::Incomplete,
            Err(_) => Progress::Closed,
        }
    }

    /// `None` if the client is not one of ours, or cannot be served.
    fn judge(mut self, secret: Option<&RunSecret>) -> Option<Outcome> {
        match self.challenge.check(&self.hello, secret) {
            Ok(accepted) => {
                self.socket.set_nonblocking(false).ok()?;
                Some(Outcome::Proved(self.socket, accepted))
            }
            Err(error @ (HelloError::Credentials | HelloError::Version { .. })) => {
                let refusal = refused(Code::Credentials, error.to_string());
                // Its buffer has room for a refusal; a client that is gone needs none.
                let _ = send(&mut self.socket, reply::REFUSED, &refusal.encode());
                Some(Outcome::Refused(error))
            }
            Err(_) => None,
        }
    }
}

/// Whether a call that must not wait may succeed later.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that waits, and its client's end.
    fn knock(unproved: &mut Unproved) -> UnixStream {
        let (here, there) = UnixStream::pair().unwrap();
        unproved.add(Socket::Unix(here)).unwrap();
        there.set_nonblocking(true).unwrap();
        there
    }

    /// Reads the greeting; returns whether the connection was closed behind it.
    fn is_closed(client: &mut UnixStream) -> bool {
        let mut greeting = Vec::new();
        client.read_to_end(&mut greeting).is_ok()
    }

    #[test]
    fn one_more_connection_than_may_wait_closes_the_oldest() {
        let mut unproved = Unproved::default();
        let mut clients: Vec<_> = (0..MOST + 2).map(|_| knock(&mut unproved)).collect();
        assert_eq!(unproved.sockets().count(), MOST);
        let closed = clients.iter_mut().map(is_closed).filter(|closed| *closed).count();
        assert_eq!(closed, 2);
        assert!(is_closed(&mut clients[0]) && is_closed(&mut clients[1]));
    }

    #[test]
    fn a_connection_is_closed_when_its_time_is_over() {
        let mut unproved = Unproved::default();
        let (mut late, mut punctual) = (knock(&mut unproved), knock(&mut unproved));
        unproved.waiting[0].until = Instant::now();
        let left = unproved.close_late().expect("one still waits");
        assert!(left <= LIMIT);
        assert!(is_closed(&mut late) && !is_closed(&mut punctual));
    }

    #[test]
    fn a_proof_may_arrive_in_pieces_and_a_wrong_one_is_answered() {
        let secret = RunSecret::new("a");
        let mut unproved = Unproved::default();
        let mut client = knock(&mut unproved);
        let stranger = knock(&mut unproved);
        let mut hello = Challenge::random().greeting().to_vec();
        hello.resize(HELLO_BYTES, 0);
        client.write_all(&hello[..50]).unwrap();
        assert!(unproved.read(&[true, false], Some(&secret)).is_empty());
        client.write_all(&hello[50..]).unwrap();
        drop(stranger);
        let outcomes = unproved.read(&[true, true], Some(&secret));
        assert!(matches!(
            outcomes.as_slice(),
            [Outcome::Refused(HelloError::Credentials)]
        ));
        assert_eq!(unproved.sockets().count(), 0);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let refusal = HelloError::Credentials.to_string();
        assert!(String::from_utf8_lossy(&answer).contains(&refusal));
    }
}
