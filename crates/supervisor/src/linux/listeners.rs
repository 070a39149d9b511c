//! Finds out whether a worker listens on its ports, and which process holds them if not. Never opens a connection.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use rustix::process::Pid;

use super::sock_diag::{Listener, listeners};
use super::tree;
use paddlecloud_worker::protocol::Clash;

/// Whether every port has a listener: at the worker's own address, or at all addresses by one of its own processes.
pub fn all_listen(address: Ipv4Addr, ports: &[u16], init: Pid) -> bool {
    if ports.is_empty() {
        return true;
    }
    let Ok(found) = listeners() else { return false };
    let mut own = None;
    ports.iter().all(|port| {
        let candidates = || found.iter().filter(|listener| listener.port == *port);
        candidates().any(|listener| is_at(listener, address))
            || candidates()
                .filter(|listener| is_everywhere(listener))
                .any(|listener| {
                    own.get_or_insert_with(|| inodes_below(init))
                        .contains(&listener.inode)
                })
    })
}

/// The first port that another process holds. Call this after the worker's own processes are gone.
pub fn find_clash(address: Ipv4Addr, ports: &[u16]) -> Option<Clash> {
    let found = listeners().ok()?;
    let holds = |listener: &&Listener| {
        ports.contains(&listener.port) && (is_at(listener, address) || is_everywhere(listener))
    };
    let held = found.iter().find(holds)?;
    let holder = tree::all().find(|pid| tree::socket_inodes(*pid).contains(&held.inode));
    Some(Clash {
        port: held.port,
        holder_pid: holder.map(|pid| pid.as_raw_pid().unsigned_abs()),
        holder_marker: holder.and_then(tree::marker),
    })
}

fn is_at(listener: &Listener, address: Ipv4Addr) -> bool {
    listener.address.to_canonical() == IpAddr::V4(address)
}

fn is_everywhere(listener: &Listener) -> bool {
    listener.address.to_canonical().is_unspecified() && !listener.only_v6
}

fn inodes_below(init: Pid) -> HashSet<u64> {
    tree::descendants(init)
        .into_iter()
        .flat_map(tree::socket_inodes)
        .collect()
}
