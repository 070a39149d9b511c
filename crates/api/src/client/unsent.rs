//! How many sent bytes the peer has not confirmed. On a slow link an upload's bytes wait in the system's buffers, and
//! only this shows whether they move.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A second handle of a connection's socket.
type Handle = imp::Handle;

/// A connection whose unsent bytes can be read as long as it lives.
pub(super) struct Watched<S> {
    stream: S,
    _handle: Option<Arc<Handle>>,
}

/// Reads the unsent bytes of a connection.
#[derive(Clone)]
pub(super) struct Unsent(Weak<Handle>);

impl Unsent {
    /// Bytes that the peer has not confirmed; `None` if the system does not say, or the connection is gone.
    pub(super) fn bytes(&self) -> Option<u64> {
        imp::queued(&*self.0.upgrade()?)
    }
}

impl<S: imp::Socket> Watched<S> {
    pub(super) fn new(stream: S) -> (Watched<S>, Unsent) {
        let handle = imp::handle(&stream).map(Arc::new);
        let unsent = Unsent(handle.as_ref().map(Arc::downgrade).unwrap_or_default());
        let watched = Watched {
            stream,
            _handle: handle,
        };
        (watched, unsent)
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::ioctl::{Getter, Opcode, ioctl};

    pub(super) type Handle = OwnedFd;
    pub(super) use std::os::fd::AsFd as Socket;

    /// For sockets also known as `SIOCOUTQ`.
    const QUEUED: Opcode = libc::TIOCOUTQ as Opcode;

    pub(super) fn handle(socket: &impl AsFd) -> Option<Handle> {
        socket.as_fd().try_clone_to_owned().ok()
    }

    pub(super) fn queued(handle: &Handle) -> Option<u64> {
        // SAFETY: the kernel writes one `int` for this request, and nothing if the handle does not support it.
        let bytes = unsafe { ioctl(handle, Getter::<QUEUED, libc::c_int>::new()) };
        u64::try_from(bytes.ok()?).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    pub(super) type Handle = ();

    pub(super) trait Socket {}

    impl<T> Socket for T {}

    pub(super) fn handle(_: &impl Socket) -> Option<Handle> {
        None
    }

    pub(super) fn queued(_: &Handle) -> Option<u64> {
        None
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn unsent_bytes_are_counted_and_a_dropped_connection_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut ours, unsent) = Watched::new(ours.unwrap());
        let (mut theirs, _) = theirs.unwrap();
        assert_eq!(unsent.bytes(), Some(0));
        let piece = vec![7; 1 << 20];
        let mut written = 0;
        // Until the buffers of both sides are full: nobody reads.
        let all = async {
            loop {
                written += ours.write(&piece).await.unwrap();
            }
        };
        let limit = std::time::Duration::from_millis(200);
        tokio::time::timeout(limit, all).await.unwrap_err();
        let queued = unsent.bytes().unwrap();
        assert!(queued > 0 && queued <= written as u64, "{queued} of {written}");
        let mut half = vec![0; written - queued as usize / 2];
        theirs.read_exact(&mut half).await.unwrap();
        assert!(unsent.bytes().unwrap() < queued);
        drop(ours);
        assert_eq!(unsent.bytes(), None);
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(half.len() + rest.len(), written);
    }
}
