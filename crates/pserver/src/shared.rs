//! A connection between two processes of one machine, through shared memory instead of TCP.
//!
//! Each direction is a ring of bytes in a memfd that the server creates and seals. A Unix socket passes the memfd, wakes
//! the side that sleeps, and notices when the other side ends. Bytes are copied out of the ring before they are
//! examined, so the frames and checks of TCP apply unchanged. The handshake is left to `hello`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Bytes of each ring: small enough to stay in a core's cache, large enough to sleep rarely.
const RING: usize = 512 << 10;
/// Maximum bytes copied before the other side may use them.
const PIECE: usize = RING / 8;
/// The start of the memfd, with the positions of both rings.
const HEADS: usize = 4096;
/// Bytes of shared memory that a connection needs.
pub const BYTES: usize = HEADS + 2 * RING;

/// Listens for processes of this machine. The name is unknown to others until the server has proven who it is.
pub fn listen(incarnation: u64) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(incarnation)?)
}

/// Connects to a server of this machine. Fails if it is on another one.
pub fn connect(incarnation: u64) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&address(incarnation)?)
}

/// An abstract name: workers see one, but not each other's `/dev/shm` and `/tmp`.
fn address(incarnation: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("paddlecloud-ps-{incarnation:016x}"))
}

/// A number alone in its cache lines, so that the two sides do not slow each other down.
#[repr(C, align(128))]
struct Alone(AtomicU64);

/// The shared state of one ring. Positions count all bytes since the start.
#[repr(C)]
struct Head {
    written: Alone,
    read: Alone,
    /// The bytes that a sleeping reader waits for; 0 while it is awake.
    reader_needs: Alone,
    /// 1 while the writer sleeps until half of the ring is free.
    writer_sleeps: Alone,
}

#[derive(Debug, Clone, Copy)]
struct Ring {
    number: usize,
    /// This side's own position. What the other side may change is never used as such.
    position: u64,
}

/// One side of a connection. `Read` must ask for no more than the other side sends before it waits for an answer.
#[derive(Debug)]
pub struct Shared {
    socket: UnixStream,
    memory: MmapRaw,
    incoming: Ring,
    outgoing: Ring,
    /// How long a write may wait for the other side.
    write_limit: Option<Duration>,
    has_ended: bool,
}

impl Shared {
    /// The server's side: creates the memory and passes it to the client.
    pub fn offer(socket: UnixStream, write_limit: Duration) -> io::Result<Shared> {
        let file =
            rustix::fs::memfd_create("paddlecloud-ps", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let shared = Shared::new(socket, &file, [0, 1], Some(write_limit))?;
        pass(&shared.socket, &file)?;
        Ok(shared)
    }

    /// The client's side: receives the memory.
    pub fn accept(socket: UnixStream) -> io::Result<Shared> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
        let received = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let file = received.ok_or(io::ErrorKind::InvalidData)?;
        // A file that could shrink would kill this process when it reads beyond its end.
        let is_sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !is_sealed || rustix::fs::fstat(&file)?.st_size < BYTES as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Shared::new(socket, &file, [1, 0], None)
    }

    fn new(
        socket: UnixStream,
        file: &OwnedFd,
        [incoming, outgoing]: [usize; 2],
        write_limit: Option<Duration>,
    ) -> io::Result<Shared> {
        let ring = |number| Ring { number, position: 0 };
        Ok(Shared {
            memory: MmapOptions::new().len(BYTES).map_raw(file)?,
            socket,
            incoming: ring(incoming),
            outgoing: ring(outgoing),
            write_limit,
            has_ended: false,
        })
    }

    fn head(&self, ring: Ring) -> &Head {
        // SAFETY: the mapping begins at a page and has room for two heads; all bit patterns are valid numbers, and both
        // processes change them atomically.
        unsafe { &*self.memory.as_ptr().cast::<Head>().add(ring.number) }
    }

    fn start(&self, ring: Ring) -> *mut u8 {
        // SAFETY: `BYTES` has room for two rings after the heads.
        unsafe { self.memory.as_mut_ptr().add(HEADS + ring.number * RING) }
    }

    /// The bytes that can be read.
    fn available(&self) -> io::Result<usize> {
        let written = self.head(self.incoming).written.0.load(Ordering::Acquire);
        between(self.incoming.position, written)
    }

    /// The bytes that the other side has not read yet.
    fn unread(&self) -> io::Result<usize> {
        let read = self.head(self.outgoing).read.0.load(Ordering::Acquire);
        between(read, self.outgoing.position)
    }

    /// Waits until something can be read. Returns 0 if the other side has ended.
    fn wait_for_bytes(&mut self, len: usize) -> io::Result<usize> {
        loop {
            let available = self.available()?;
            if available > 0 || self.has_ended {
                return Ok(available);
            }
            let needs = &self.head(self.incoming).reader_needs.0;
            needs.store(len.min(RING / 2) as u64, Ordering::Relaxed);
            // With the fence in `wake_if`: either this side sees the bytes, or the other side sees that it sleeps.
            fence(Ordering::SeqCst);
            let slept = match self.available()? {
                0 => self.sleep(None),
                _ => Ok(()),
            };
            self.head(self.incoming)
                .reader_needs
                .0
                .store(0, Ordering::Relaxed);
            slept?;
        }
    }

    /// Waits until something can be written and returns how much.
    fn wait_for_space(&mut self) -> io::Result<usize> {
        loop {
            let unread = self.unread()?;
            if unread < RING {
                return Ok(RING - unread);
            }
            if self.has_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.head(self.outgoing)
                .writer_sleeps
                .0
                .store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let slept = match self.unread()? {
                unread if unread > RING / 2 => self.sleep(self.write_limit),
                _ => Ok(()),
            };
            self.head(self.outgoing)
                .writer_sleeps
                .0
                .store(0, Ordering::Relaxed);
            slept?;
        }
    }

    fn sleep(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if let Some(limit) = limit {
            let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
            let limit = limit.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
            if poll(&mut socket, Some(&limit))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let mut wakes = [0; 64];
        let (_, count) = rustix::net::recv(&self.socket, &mut wakes, RecvFlags::empty())?;
        self.has_ended = count == 0;
        Ok(())
    }

    /// Wakes the other side if it sleeps and `is_due` for what it waits for.
    fn wake_if(&self, sleeps: &AtomicU64, is_due: impl FnOnce(u64) -> bool) {
        fence(Ordering::SeqCst);
        let waits_for = sleeps.load(Ordering::Relaxed);
        if waits_for > 0 && is_due(waits_for) {
            sleeps.store(0, Ordering::Relaxed);
            // A full socket has wake-ups that were not read yet; a closed one is noticed when this side sleeps.
            let _ = rustix::net::send(&self.socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
}

/// Sends a file descriptor.
fn pass(socket: &UnixStream, file: &OwnedFd) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The bytes between two positions, one of which the other side controls.
fn between(read: u64, written: u64) -> io::Result<usize> {
    let bytes = written.wrapping_sub(read);
    match bytes <= RING as u64 {
        true => Ok(bytes as usize),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Splits `count` bytes from `position` on at the end of the ring: where they start, and how many come before the end.
fn split(position: u64, count: usize) -> (usize, usize) {
    let at = (position % RING as u64) as usize;
    (at, count.min(RING - at))
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let len = buffers.iter().map(|buffer| buffer.len()).sum();
        if len == 0 {
            return Ok(0);
        }
        let count = self.wait_for_bytes(len)?.min(len).min(PIECE);
        let (start, mut left) = (self.start(self.incoming), count);
        for buffer in buffers {
            let part = buffer.len().min(left);
            let (at, first) = split(self.incoming.position, part);
            // SAFETY: `part` bytes lie in the buffer, and in the ring in two pieces. The other side may change the ring
            // meanwhile: then this side reads arbitrary bytes, and checks what it has copied as it does with TCP.
            unsafe {
                ptr::copy_nonoverlapping(start.add(at), buffer.as_mut_ptr(), first);
                ptr::copy_nonoverlapping(start, buffer.as_mut_ptr().add(first), part - first);
            }
            self.incoming.position = self.incoming.position.wrapping_add(part as u64);
            left -= part;
        }
        let head = self.head(self.incoming);
        head.read.0.store(self.incoming.position, Ordering::Release);
        let unread = self.available()?;
        self.wake_if(&head.writer_sleeps.0, |_| unread <= RING / 2);
        Ok(count)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if count == 0 {
            return Ok(0);
        }
        let count = self.wait_for_space()?.min(count).min(PIECE);
        let (start, mut left) = (self.start(self.outgoing), count);
        for slice in slices {
            let part = slice.len().min(left);
            let (at, first) = split(self.outgoing.position, part);
            // SAFETY: as in `read_vectored`, in the other direction.
            unsafe {
                ptr::copy_nonoverlapping(slice.as_ptr(), start.add(at), first);
                ptr::copy_nonoverlapping(slice.as_ptr().add(first), start, part - first);
            }
            self.outgoing.position = self.outgoing.position.wrapping_add(part as u64);
            left -= part;
        }
        let head = self.head(self.outgoing);
        head.written.0.store(self.outgoing.position, Ordering::Release);
        let unread = self.unread()?;
        self.wake_if(&head.reader_needs.0, |needs| unread as u64 >= needs);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const NO_LIMIT: Duration = Duration::from_secs(600);

    fn pair(write_limit: Duration) -> (Shared, Shared) {
        let (here, there) = UnixStream::pair().unwrap();
        let server = Shared::offer(here, write_limit).unwrap();
        (server, Shared::accept(there).unwrap())
    }

    #[test]
    fn bytes_arrive_in_order_in_both_directions() {
        let (mut server, mut client) = pair(NO_LIMIT);
        let message: Vec<u8> = (0..3 * RING + 17).map(|number| (number % 251) as u8).collect();
        let echo = thread::spawn(move || {
            let mut buffer = vec![0; 3 * RING + 17];
            for _ in 0..3 {
                server.read_exact(&mut buffer).unwrap();
                server.write_all(&buffer).unwrap();
            }
        });
        for _ in 0..3 {
            let (first, second) = message.split_at(RING + 5);
            let mut slices = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
            crate::stream::write_vectored(&mut client, &mut slices).unwrap();
            let mut back = vec![0; message.len()];
            let (head, rest) = back.split_at_mut(16);
            let mut slices = [IoSliceMut::new(head), IoSliceMut::new(rest)];
            crate::stream::read_vectored(&mut client, &mut slices, &|| false).unwrap();
            assert!(back == message);
        }
        echo.join().unwrap();
    }

    #[test]
    fn bytes_written_before_the_peer_closed_can_be_read() {
        let (mut server, mut client) = pair(NO_LIMIT);
        server.write_all(b"last words").unwrap();
        drop(server);
        let mut words = Vec::new();
        client.read_to_end(&mut words).unwrap();
        assert_eq!(words, b"last words");
        let error = client.write_all(&vec![0; RING + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn an_impossible_position_is_refused() {
        let (mut server, client) = pair(NO_LIMIT);
        let written = &client.head(client.outgoing).written.0;
        written.store(RING as u64 + 1, Ordering::Release);
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_write_without_a_reader_times_out() {
        let (mut server, _client) = pair(Duration::from_millis(1));
        let error = server.write_all(&vec![0; RING + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn memory_that_could_shrink_is_not_accepted() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, BYTES as u64).unwrap();
        pass(&here, &file).unwrap();
        assert!(Shared::accept(there).is_err());
    }
}
