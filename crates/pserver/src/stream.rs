//! Connections, and complete transfers in few system calls between them and scattered memory.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::shared::Shared;

/// A client's connection to a server.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    /// To a server of the same machine.
    Shared(Shared),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Shared(shared) => shared.read(buffer),
        }
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_vectored(buffers),
            Stream::Shared(shared) => shared.read_vectored(buffers),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Shared(shared) => shared.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(slices),
            Stream::Shared(shared) => shared.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A peer that is silent for this long, and then does not answer `PROBES` probes at this interval, is gone.
const SILENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// A peer that does not confirm what was sent for this long is gone. Probes are sent only while nothing is unconfirmed.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(60);

/// Configures a connection: small messages are sent immediately, and a vanished peer is noticed.
pub fn prepare(stream: &TcpStream) {
    // Each option is only an improvement, so failures are ignored.
    let _ = stream.set_nodelay(true);
    #[cfg(unix)]
    {
        use rustix::net::sockopt;
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, SILENCE);
        let _ = sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(stream, PROBES);
        #[cfg(target_os = "linux")]
        let _ = sockopt::set_tcp_user_timeout(stream, UNCONFIRMED.as_millis() as u32);
    }
}

/// Maximum slices per system call.
const AT_ONCE: usize = 1024;

/// Writes all slices, in order.
pub fn write_vectored(stream: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let end = slices.len().min(AT_ONCE);
        match stream.write_vectored(&slices[..end]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills all slices, in order. After every signal, `interrupted` decides whether to give up.
pub fn read_vectored(
    stream: &mut impl Read,
    mut slices: &mut [IoSliceMut<'_>],
    interrupted: &dyn Fn() -> bool,
) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let end = slices.len().min(AT_ONCE);
        match stream.read_vectored(&mut slices[..end]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => IoSliceMut::advance_slices(&mut slices, read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if interrupted() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
