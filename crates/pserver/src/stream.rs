//! Complete transfers in few system calls, between scattered memory and a connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A peer that is silent for this long, and then does not answer `PROBES` probes at this interval, is gone.
const SILENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// A peer that does not confirm what was sent for this long is gone. Probes are sent only while nothing is unconfirmed.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(60);

/// Configures a connection: small messages are sent at once, and a vanished peer is noticed.
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
