//! A socket that can be waited for in two ways: by the runtime, which watches all sockets, and by its own thread,
//! without waking up the runtime whenever bytes arrive.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Lane;

/// A connected stream socket.
#[derive(Debug)]
pub struct Wire {
    socket: Arc<OwnedFd>,
    /// Set while the runtime watches it.
    watched: Option<AsyncFd<Arc<OwnedFd>>>,
    lane: Arc<Lane>,
}

impl Wire {
    /// Takes over a non-blocking socket.
    pub fn new(socket: impl Into<OwnedFd>) -> Self {
        let socket = Arc::new(socket.into());
        Self {
            lane: Lane::new(socket.clone()),
            socket,
            watched: None,
        }
    }

    /// The lane of its connection.
    pub fn lane(&self) -> Arc<Lane> {
        self.lane.clone()
    }

    fn watched(&mut self) -> io::Result<&AsyncFd<Arc<OwnedFd>>> {
        if self.watched.is_none() {
            // SAFETY: the registered value keeps the socket open, and its descriptor does not change.
            self.watched = Some(unsafe { AsyncFd::register(self.socket.clone()) }?);
        }
        Ok(self.watched.as_ref().expect("just made"))
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.lane.is_here() {
            self.watched = None;
            let received = receive(&self.socket, buf);
            return or_wait(received, || {
                self.lane.waits_to_read.store(true, Ordering::Relaxed)
            });
        }
        let watched = self.watched()?;
        loop {
            let mut ready = ready!(watched.poll_read_ready(context))?;
            if let Ok(received) = ready.try_io(|socket| receive(socket.get_ref(), buf)) {
                return Poll::Ready(received);
            }
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        send: impl Fn(&OwnedFd) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.lane.is_here() {
            self.watched = None;
            let sent = send(&self.socket);
            return or_wait(sent, || self.lane.waits_to_write.store(true, Ordering::Relaxed));
        }
        let watched = self.watched()?;
        loop {
            let mut ready = ready!(watched.poll_write_ready(context))?;
            if let Ok(sent) = ready.try_io(|socket| send(socket.get_ref())) {
                return Poll::Ready(sent);
            }
        }
    }
}

fn or_wait<T>(done: io::Result<T>, wait: impl FnOnce()) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            wait();
            Poll::Pending
        }
        done => Poll::Ready(done),
    }
}

fn receive(socket: &OwnedFd, buf: &mut ReadBuf<'_>) -> io::Result<()> {
    // SAFETY: the slice is only passed to the kernel, which never makes any of it uninitialised.
    let space = unsafe { buf.unfilled_mut() };
    let received =
        uninterrupted(|| recv(socket, &mut *space, RecvFlags::empty()).map(|(_, received)| received))?;
    // SAFETY: the kernel has just written this many bytes to the start of the unfilled part.
    unsafe { buf.assume_init(received) };
    buf.advance(received);
    Ok(())
}

fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().poll_receive(context, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let send = |socket: &OwnedFd| uninterrupted(|| send(socket, bytes, SendFlags::NOSIGNAL));
        self.get_mut().poll_send(context, send)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(context, |socket| {
            uninterrupted(|| {
                let mut nothing_else = SendAncillaryBuffer::default();
                sendmsg(socket.as_fd(), pieces, &mut nothing_else, SendFlags::NOSIGNAL)
            })
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(&self.socket, Shutdown::Write) {
            // The peer closed the connection first.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }
}
