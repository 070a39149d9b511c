//! Asks the kernel which TCP sockets listen, through netlink or, if that fails, `/proc/net`.
//!
//! Netlink visits only listening sockets; `/proc/net/tcp` visits every connection of the machine.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
const REQUEST_DUMP: u16 = 0x1 | 0x300;
const IPPROTO_TCP: u8 = 6;
const TCP_LISTEN: u32 = 10;
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
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&socket, &request(family), SendFlags::empty())?;
    let mut buffer = vec![0; 32 << 10];
    loop {
        let (_, len) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if read_messages(&buffer[..len], found)? {
            return Ok(());
        }
    }
}

fn request(family: u8) -> [u8; HEADER + REQUEST] {
    let mut message = [0; HEADER + REQUEST];
    message[..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    message[HEADER] = family;
    message[HEADER + 1] = IPPROTO_TCP;
    message[HEADER + 4..HEADER + 8].copy_from_slice(&(1u32 << TCP_LISTEN).to_ne_bytes());
    message
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
    use std::net::TcpListener;

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
    fn a_listener_on_all_ipv6_addresses_reports_whether_it_accepts_ipv4() {
        let Ok(listening) = TcpListener::bind("[::]:0") else {
            return;
        };
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
