//! Limits the number of connections: in total, per address and per user.
//!
//! Every connection takes a file descriptor, and its requests take some more. The rest is reserved for the server's own work: the
//! database, supervisors, starting workers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_core::names::UserName;
use rustix::process::{Resource, getrlimit};

/// Upper bound, regardless of file descriptors: each connection also takes memory.
const MOST: usize = 16 << 10;
/// Lower bound, below which the server would be unusable.
const LEAST: usize = 16;

/// The limits, each a part of the previous one, so that no user or address can lock out all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    altogether: usize,
    per_address: usize,
    per_user: usize,
}

impl Limits {
    /// Uses a quarter of the file descriptors for connections: a request opens a few files, and the rest is reserved.
    fn of(descriptors: usize) -> Limits {
        let altogether = (descriptors / 4).clamp(LEAST, MOST);
        Limits {
            altogether,
            per_address: altogether / 2,
            per_user: altogether / 4,
        }
    }
}

/// The open connections of a server.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    altogether: usize,
    by_address: HashMap<IpAddr, usize>,
    by_user: HashMap<UserName, usize>,
}

impl Connections {
    /// Limits for the file descriptors of this process.
    pub fn of_this_process() -> Arc<Connections> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Connections::with(Limits::of(usize::try_from(descriptors).unwrap_or(usize::MAX)))
    }

    fn with(limits: Limits) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            open: Mutex::default(),
        })
    }

    /// Registers a new connection. Returns `None` if there are too many, in total or from its address. A trusted proxy's connections
    /// have no address until a request names its client.
    pub fn begin(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Arc<Connection>> {
        let address = address.map(network);
        let mut open = self.open();
        if open.altogether >= self.limits.altogether {
            return None;
        }
        if let Some(address) = address {
            count(&mut open.by_address, address, self.limits.per_address)?;
        }
        open.altogether += 1;
        Some(Arc::new(Connection {
            all: Arc::clone(self),
            address: Mutex::new(address),
            user: Mutex::default(),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, counted until it is dropped.
#[derive(Debug)]
pub struct Connection {
    all: Arc<Connections>,
    address: Mutex<Option<IpAddr>>,
    user: Mutex<Option<UserName>>,
}

impl Connection {
    /// Assigns a trusted proxy's connection to the client of a request. Returns false if that address has too many connections.
    pub fn is_from(&self, address: IpAddr) -> bool {
        let address = network(address);
        let mut known = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == Some(address) {
            return true;
        }
        let mut open = self.all.open();
        if count(&mut open.by_address, address, self.all.limits.per_address).is_none() {
            return false;
        }
        if let Some(before) = known.replace(address) {
            uncount(&mut open.by_address, &before);
        }
        true
    }

    /// Assigns the connection to the user of a request. Returns false if the user has too many connections.
    pub fn is_for(&self, user: &UserName) -> bool {
        let mut known = self.user.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == Some(user) {
            return true;
        }
        let mut open = self.all.open();
        if count(&mut open.by_user, user.clone(), self.all.limits.per_user).is_none() {
            return false;
        }
        if let Some(before) = known.replace(user.clone()) {
            uncount(&mut open.by_user, &before);
        }
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let user = self.user.get_mut().unwrap_or_else(PoisonError::into_inner);
        let address = self.address.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.all.open();
        open.altogether -= 1;
        if let Some(address) = address {
            uncount(&mut open.by_address, address);
        }
        if let Some(user) = user {
            uncount(&mut open.by_user, user);
        }
    }
}

/// Increments a count, unless the limit is reached.
fn count<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K, most: usize) -> Option<()> {
    let count = counts.entry(key).or_default();
    *count += 1;
    if *count <= most {
        return Some(());
    }
    *count -= 1;
    None
}

fn uncount<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The /64 network of an IPv6 address: one person can have any number of addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Arc<Connections> {
        Connections::with(Limits {
            altogether: 4,
            per_address: 2,
            per_user: 1,
        })
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn three_quarters_of_the_descriptors_are_left_to_the_server() {
        let limits = Limits::of(1024);
        assert_eq!(
            (limits.altogether, limits.per_address, limits.per_user),
            (256, 128, 64)
        );
        assert_eq!(Limits::of(usize::MAX).altogether, MOST);
        assert_eq!(Limits::of(0).altogether, LEAST);
    }

    #[test]
    fn one_address_cannot_keep_others_out() {
        let connections = small();
        let held = [ip("192.0.2.1"), ip("192.0.2.1")].map(|ip| connections.begin(ip).unwrap());
        assert!(connections.begin(ip("192.0.2.1")).is_none());
        let other = connections.begin(ip("192.0.2.2")).unwrap();
        let local = connections.begin(None).unwrap();
        assert!(connections.begin(None).is_none(), "there are four");
        drop(held);
        assert!(connections.begin(ip("192.0.2.1")).is_some());
        drop((other, local));
        assert!(connections.open().by_address.is_empty(), "nothing is kept");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let connections = small();
        let _held = [ip("2001:db8::1"), ip("2001:db8::2")].map(|ip| connections.begin(ip).unwrap());
        assert!(connections.begin(ip("2001:db8::3")).is_none());
        assert!(connections.begin(ip("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn a_user_has_few_and_a_connection_belongs_to_its_latest_user() {
        let connections = small();
        let (ada, bob): (UserName, UserName) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let (first, second) = (connections.begin(None).unwrap(), connections.begin(None).unwrap());
        assert!(first.is_for(&ada) && first.is_for(&ada));
        assert!(!second.is_for(&ada));
        assert!(second.is_for(&bob));
        assert!(!first.is_for(&bob), "bob has one already");
        drop(second);
        assert!(first.is_for(&bob));
        assert!(connections.begin(None).unwrap().is_for(&ada));
    }

    #[test]
    fn a_proxys_connection_counts_for_its_latest_client() {
        let connections = small();
        let (client, other) = (ip("192.0.2.1").unwrap(), ip("192.0.2.2").unwrap());
        let held = [(); 3].map(|()| connections.begin(None).unwrap());
        assert!(held[0].is_from(client) && held[0].is_from(client) && held[1].is_from(client));
        assert!(!held[2].is_from(client), "two are open");
        assert!(held[2].is_from(other));
        assert!(held[0].is_from(other) && held[2].is_from(client));
        drop(held);
        assert!(connections.open().by_address.is_empty(), "nothing is kept");
    }
}
