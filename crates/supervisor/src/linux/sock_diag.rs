//! Asks the kernel which TCP sockets listen, through netlink or, if that fails, `/proc/net`, and whose a connection is.
//!
//! Netlink visits only listening sockets, or one connection; `/proc/net/tcp` visits every connection of the machine.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// A socket that accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    pub inode: u64,
    /// Bound to an IPv6 address and not accepting IPv4.
    pub only_v6: bool,
}

const HEADER: usize = 16;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST_ONE: u16 = 0x1;
const REQUEST_DUMP: u16 = REQUEST_ONE | 0x300;
const IPPROTO_TCP: u8 = 6;
const TCP_LISTEN: u8 = 10;
/// In a request: any socket of these addresses, however old.
const NO_COOKIE: [u8; 8] = [0xff; 8];
const INET_DIAG_SKV6ONLY: u16 = 11;

pub fn listeners() -> io::Result<Vec<Listener>> {
    by_netlink().or_else(|_| by_proc())
}

fn by_netlink() -> io::Result<Vec<Listener>> {
    let mut found = Vec::new();
    dump(libc::AF_INET as u8, &mut found)?;
    // A kernel without IPv6 refuses the family; then nothing listens there.
    let _ = dump(libc::AF_INET6 as u8, &mut found);
    Ok(found)
}

fn dump(family: u8, found: &mut Vec<Listener>) -> io::Result<()> {
    let mut request = request(family, REQUEST_DUMP);
    request[HEADER + 4..HEADER + 8].copy_from_slice(&(1u32 << TCP_LISTEN).to_ne_bytes());
    let socket = ask(&request)?;
    let mut buffer = vec![0; 32 << 10];
    loop {
        let (_, len) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if read_messages(&buffer[..len], found)? {
            return Ok(());
        }
    }
}

fn ask(request: &[u8]) -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&socket, request, SendFlags::empty())?;
    Ok(socket)
}

fn request(family: u8, flags: u16) -> [u8; HEADER + REQUEST] {
    let mut message = [0; HEADER + REQUEST];
    message[..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[HEADER] = family;
    message[HEADER + 1] = IPPROTO_TCP;
    message
}

/// The user who opened the socket at `own` that is connected to `other`; `None` if this machine has no such socket.
pub fn owner(own: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    let socket = ask(&request_of_connection(own, other))?;
    let mut buffer = [0; 4096];
    let (_, len) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
    let answer = &buffer[..len];
    let kind = answer.get(4..6).and_then(|kind| kind.first_chunk());
    match kind.map(|kind| u16::from_ne_bytes(*kind)) {
        Some(SOCK_DIAG_BY_FAMILY) => {
            let answer = answer.get(HEADER..).and_then(<[u8]>::first_chunk::<ANSWER>);
            let answer = answer.ok_or(io::ErrorKind::InvalidData)?;
            let user = answer[64..68].first_chunk().expect("four bytes");
            // Without such a connection, the kernel names a socket that listens at the address.
            Ok((answer[1] != TCP_LISTEN).then_some(u32::from_ne_bytes(*user)))
        }
        Some(NLMSG_ERROR) => {
            let code = answer.get(HEADER..).and_then(<[u8]>::first_chunk);
            let code = code.map_or(0, |code| i32::from_ne_bytes(*code));
            match -code {
                libc::ENOENT => Ok(None),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn request_of_connection(own: SocketAddr, other: SocketAddr) -> [u8; HEADER + REQUEST] {
    // A socket for both families, connected over IPv4, is found by its IPv4 addresses.
    let (from, to) = (own.ip().to_canonical(), other.ip().to_canonical());
    let family = if from.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut message = request(family as u8, REQUEST_ONE);
    let id = &mut message[HEADER + 8..];
    id[..2].copy_from_slice(&own.port().to_be_bytes());
    id[2..4].copy_from_slice(&other.port().to_be_bytes());
    put_address(&mut id[4..20], from);
    put_address(&mut id[20..36], to);
    id[40..].copy_from_slice(&NO_COOKIE);
    message
}

fn put_address(place: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => place[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => place.copy_from_slice(&address.octets()),
    }
}

/// Returns true at the end of the dump.
fn read_messages(mut bytes: &[u8], found: &mut Vec<Listener>) -> io::Result<bool> {
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let len = u32::from_ne_bytes(*len) as usize;
        let kind = rest.first_chunk::<2>().map(|kind| u16::from_ne_bytes(*kind));
        let body = bytes.get(HEADER..len).ok_or(io::ErrorKind::InvalidData)?;
        match kind {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => return Err(io::ErrorKind::Unsupported.into()),
            _ => found.extend(read_answer(body)),
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn read_answer(body: &[u8]) -> Option<Listener> {
    let answer = body.first_chunk::<ANSWER>()?;
    let address = &answer[8..24];
    let address = if i32::from(answer[0]) == libc::AF_INET {
        IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(*address.first_chunk::<16>()?))
    };
    Some(Listener {
        address,
        port: u16::from_be_bytes([answer[4], answer[5]]),
        inode: u64::from(u32::from_ne_bytes(*answer[68..].first_chunk::<4>()?)),
        only_v6: says_only_v6(&body[ANSWER..]),
    })
}

fn says_only_v6(mut attributes: &[u8]) -> bool {
    while let Some((head, rest)) = attributes.split_first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        if kind == INET_DIAG_SKV6ONLY {
            return rest.first().is_some_and(|value| *value != 0);
        }
        attributes = attributes
            .get(len.max(4).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    false
}

fn by_proc() -> io::Result<Vec<Listener>> {
    let mut found = read_table(&fs::read_to_string("/proc/net/tcp")?);
    found.extend(read_table(
        &fs::read_to_string("/proc/net/tcp6").unwrap_or_default(),
    ));
    Ok(found)
}

fn read_table(table: &str) -> Vec<Listener> {
    table.lines().skip(1).filter_map(read_row).collect()
}

/// A row is `sl local_address rem_address st … inode`. It does not show whether a socket accepts IPv4.
fn read_row(row: &str) -> Option<Listener> {
    let fields: Vec<_> = row.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != "0A" {
        return None;
    }
    Some(Listener {
        address: read_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
        only_v6: false,
    })
}

/// Hexadecimal words of four bytes, each in this machine's byte order.
fn read_address(text: &str) -> Option<IpAddr> {
    let words = text.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    match *bytes.as_slice() {
        [a, b, c, d] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        _ => Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_sources_see_the_same_listener() {
        let listening = TcpListener::bind("127.9.8.7:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        for found in [by_netlink().unwrap(), by_proc().unwrap()] {
            let listener = found
                .iter()
                .find(|listener| listener.port == port)
                .expect("it listens");
            assert_eq!(listener.address, IpAddr::from([127, 9, 8, 7]));
            let pid = rustix::process::getpid();
            assert!(super::super::tree::socket_inodes(pid).contains(&listener.inode));
        }
    }

    #[test]
    fn the_owner_of_a_connection_is_known_and_that_of_a_listener_is_not() {
        let listening = TcpListener::bind("127.9.8.7:0").unwrap();
        let server = listening.local_addr().unwrap();
        let stream = TcpStream::connect(server).unwrap();
        let client = stream.local_addr().unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(owner(client, server).unwrap(), Some(me));
        let nobody = "127.9.8.7:1".parse().unwrap();
        assert_eq!(owner(server, nobody).unwrap(), None);
        assert_eq!(owner(nobody, server).unwrap(), None);
    }

    #[test]
    #[ignore = "needs IPv6"]
    fn a_listener_on_all_ipv6_addresses_reports_whether_it_accepts_ipv4() {
        let listening = TcpListener::bind("[::]:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        let found = by_netlink().unwrap();
        let listener = found
            .iter()
            .find(|listener| listener.port == port)
            .expect("it listens");
        assert!(listener.address.is_unspecified());
        let deaf = fs::read_to_string("/proc/sys/net/ipv6/bindv6only")
            .unwrap()
            .trim()
            == "1";
        assert_eq!(listener.only_v6, deaf);
    }
}
