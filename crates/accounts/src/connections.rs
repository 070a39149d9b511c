//! Limits the number of connections: in total, per address and per user.
//!
//! Every connection takes a file descriptor and buffers, and its requests take some more. The rest is reserved for the server's own
//! work: the database, supervisors, starting workers. When there is no room, in total or for its address, a new connection
//! replaces the oldest one without a login, so that a flood without a login does not keep users out, even those at its address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_core::names::UserName;
use paddlecloud_core::quantity::Bytes;
use rustix::process::{Resource, getrlimit};
use tokio_util::sync::CancellationToken;

/// Upper bound.
const MOST: usize = 16 << 10;
/// The memory of a connection whose buffers are full in both directions.
const BUFFERS: u64 = 256 << 10;
/// Lower bound, below which the server would be unusable.
const LEAST: usize = 16;

/// The limits, each a part of the previous one, so that no user or address can lock out all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionLimits {
    altogether: usize,
    per_address: usize,
    per_user: usize,
}

impl ConnectionLimits {
    /// Uses a quarter of the file descriptors and of the memory for connections: a request opens a few files, and the rest is
    /// reserved.
    fn of(descriptors: u64, memory: Bytes) -> ConnectionLimits {
        let altogether = (descriptors / 4).min(memory.as_u64() / 4 / BUFFERS);
        let altogether = usize::try_from(altogether).unwrap_or(MOST).clamp(LEAST, MOST);
        ConnectionLimits {
            altogether,
            per_address: altogether / 2,
            per_user: altogether / 4,
        }
    }
}

/// The open connections of a server.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    altogether: usize,
    by_address: HashMap<IpAddr, OfAddress>,
    by_user: HashMap<UserName, usize>,
    /// Connections without a login, the oldest first.
    without_login: BTreeMap<u64, WithoutLogin>,
    next: u64,
}

/// The connections of an address.
#[derive(Debug, Default)]
struct OfAddress {
    open: usize,
    /// Those without a login, the oldest first.
    without_login: BTreeSet<u64>,
}

/// A connection on which nobody has logged in.
#[derive(Debug)]
struct WithoutLogin {
    address: Option<IpAddr>,
    end: CancellationToken,
}

impl Connections {
    /// Limits for the file descriptors of this process and this much memory.
    pub fn of_this_process(memory: Bytes) -> Arc<Connections> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Connections::with(ConnectionLimits::of(descriptors, memory))
    }

    fn with(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            open: Mutex::default(),
        })
    }

    /// Registers a new connection, which `end` ends. Returns `None` if there are too many, in total or from its address, and
    /// somebody has logged in on each of them. A trusted proxy's connections have no address until a request names its client.
    pub fn begin(self: &Arc<Self>, address: Option<IpAddr>, end: CancellationToken) -> Option<Admitted> {
        let address = address.map(network);
        let mut open = self.open();
        let replaced = self.make_room(&mut open, address)?;
        open.altogether += 1;
        let number = open.next;
        open.next += 1;
        open.without_login
            .insert(number, WithoutLogin { address: None, end });
        if let Some(address) = address {
            open.enter(number, address);
        }
        Some(Admitted {
            connection: Arc::new(Connection {
                all: Arc::clone(self),
                number,
                address: Mutex::new(address),
                user: Mutex::default(),
            }),
            replaced,
        })
    }

    /// Makes room for a new connection. Returns whether another one is ended for it, or `None` if there is no room.
    fn make_room(&self, open: &mut Open, address: Option<IpAddr>) -> Option<bool> {
        let is_full = open.altogether >= self.limits.altogether;
        if let Some(address) = address
            && self.make_room_at(open, address)?
        {
            return Some(true);
        }
        if is_full {
            let oldest = open.without_login.keys().next().copied();
            open.end(oldest?);
        }
        Some(is_full)
    }

    /// The same for an address alone.
    fn make_room_at(&self, open: &mut Open, address: IpAddr) -> Option<bool> {
        let of_address = open.by_address.get(&address);
        let Some(full) = of_address.filter(|found| found.open >= self.limits.per_address) else {
            return Some(false);
        };
        let oldest = full.without_login.first().copied();
        open.end(oldest?);
        Some(true)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Counts a connection for an address.
    fn enter(&mut self, number: u64, address: IpAddr) {
        let of_address = self.by_address.entry(address).or_default();
        of_address.open += 1;
        if let Some(connection) = self.without_login.get_mut(&number) {
            connection.address = Some(address);
            of_address.without_login.insert(number);
        }
    }

    fn leave(&mut self, number: u64, address: &IpAddr) {
        if let Some(of_address) = self.by_address.get_mut(address) {
            of_address.open -= 1;
            of_address.without_login.remove(&number);
            if of_address.open == 0 {
                self.by_address.remove(address);
            }
        }
    }

    /// Adds a connection to those without a login again.
    fn put_back(&mut self, number: u64, connection: WithoutLogin) {
        if let Some(address) = connection.address
            && let Some(of_address) = self.by_address.get_mut(&address)
        {
            of_address.without_login.insert(number);
        }
        self.without_login.insert(number, connection);
    }

    /// Removes a connection from those without a login.
    fn take(&mut self, number: u64) -> Option<WithoutLogin> {
        let connection = self.without_login.remove(&number)?;
        if let Some(address) = connection.address
            && let Some(of_address) = self.by_address.get_mut(&address)
        {
            of_address.without_login.remove(&number);
        }
        Some(connection)
    }

    /// Ends a connection without a login, which leaves its place soon.
    fn end(&mut self, number: u64) {
        if let Some(connection) = self.take(number) {
            connection.end.cancel();
        }
    }
}

/// A new connection.
#[derive(Debug)]
pub struct Admitted {
    pub connection: Arc<Connection>,
    /// Whether another one is ended for it.
    pub replaced: bool,
}

/// One connection, counted until it is dropped.
#[derive(Debug)]
pub struct Connection {
    all: Arc<Connections>,
    number: u64,
    address: Mutex<Option<IpAddr>>,
    user: Mutex<Option<UserName>>,
}

impl Connection {
    /// Assigns a trusted proxy's connection to the client of a request. Returns whether another one is ended for it, or `None` if
    /// that address has too many connections.
    pub fn is_from(&self, address: IpAddr) -> Option<bool> {
        let address = network(address);
        let mut known = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == Some(address) {
            return Some(false);
        }
        let mut open = self.all.open();
        let replaced = self.all.make_room_at(&mut open, address)?;
        if let Some(before) = known.replace(address) {
            open.leave(self.number, &before);
        }
        open.enter(self.number, address);
        Some(replaced)
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
        open.take(self.number);
        if let Some(before) = known.replace(user.clone()) {
            uncount(&mut open.by_user, &before);
        }
        true
    }
}

/// A login that is being checked, which may take long. Another connection does not replace this one meanwhile; the number of
/// such checks is limited elsewhere ([`crate::rates`], `auth::pending`).
#[derive(Debug)]
pub struct Checking<'a> {
    connection: &'a Connection,
    without_login: Option<WithoutLogin>,
}

impl Connection {
    /// Begins the check of a login.
    pub fn check(&self) -> Checking<'_> {
        Checking {
            connection: self,
            without_login: self.all.open().take(self.number),
        }
    }
}

impl Drop for Checking<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        let user = connection.user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(without_login) = self.without_login.take().filter(|_| user.is_none()) {
            connection.all.open().put_back(connection.number, without_login);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let user = self.user.get_mut().unwrap_or_else(PoisonError::into_inner);
        let address = self.address.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.all.open();
        open.altogether -= 1;
        open.take(self.number);
        if let Some(address) = address {
            open.leave(self.number, address);
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
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Arc<Connections> {
        Connections::with(ConnectionLimits {
            altogether: 4,
            per_address: 2,
            per_user: 1,
        })
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn three_quarters_of_the_descriptors_and_the_memory_are_left_to_the_server() {
        let limits = ConnectionLimits::of(1024, Bytes::mib(4096));
        assert_eq!(
            (limits.altogether, limits.per_address, limits.per_user),
            (256, 128, 64)
        );
        assert_eq!(ConnectionLimits::of(1 << 20, Bytes::mib(256)).altogether, 256);
        assert_eq!(
            ConnectionLimits::of(u64::MAX, Bytes::mib(1 << 20)).altogether,
            MOST
        );
        assert_eq!(ConnectionLimits::of(0, Bytes::mib(256)).altogether, LEAST);
    }

    fn begin(connections: &Arc<Connections>, address: Option<IpAddr>) -> Option<Arc<Connection>> {
        let admitted = connections.begin(address, CancellationToken::new());
        admitted.map(|admitted| admitted.connection)
    }

    fn of(connection: &Arc<Connection>, user: &str) -> bool {
        connection.is_for(&user.parse().unwrap())
    }

    #[test]
    fn a_new_connection_replaces_the_oldest_without_a_login() {
        let connections = small();
        let ends: Vec<CancellationToken> = (0..6).map(|_| CancellationToken::new()).collect();
        let begin = |number: usize| connections.begin(None, ends[number].clone());
        let mut held: Vec<_> = (0..4).map(|number| begin(number).unwrap().connection).collect();
        assert!(of(&held[0], "ada") && !ends.iter().any(CancellationToken::is_cancelled));
        let fifth = begin(4).unwrap();
        assert!(fifth.replaced);
        held.push(fifth.connection);
        let ended: Vec<bool> = ends.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(
            ended,
            [false, true, false, false, false, false],
            "ada is logged in"
        );
        drop(held.remove(1));
        for (number, connection) in held.iter().enumerate().skip(1) {
            assert!(of(connection, &format!("user{number}")));
        }
        assert!(begin(5).is_none(), "everybody is logged in");
        drop(held);
        assert!(connections.open().without_login.is_empty(), "nothing is kept");
    }

    #[test]
    fn one_address_cannot_keep_others_out() {
        let connections = small();
        let held = [ip("192.0.2.1"), ip("192.0.2.1")].map(|ip| begin(&connections, ip).unwrap());
        assert!(of(&held[0], "ada") && of(&held[1], "bob"));
        assert!(begin(&connections, ip("192.0.2.1")).is_none());
        let other = begin(&connections, ip("192.0.2.2")).unwrap();
        let local = begin(&connections, None).unwrap();
        drop(held);
        assert!(begin(&connections, ip("192.0.2.1")).is_some());
        drop((other, local));
        assert!(connections.open().by_address.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_flood_without_a_login_does_not_keep_out_users_at_its_own_address() {
        let connections = small();
        let (here, ends) = (ip("192.0.2.1"), [(); 3].map(|()| CancellationToken::new()));
        let elsewhere = begin(&connections, ip("192.0.2.2")).unwrap();
        let first = connections.begin(here, ends[0].clone()).unwrap();
        let second = connections.begin(here, ends[1].clone()).unwrap();
        let third = connections.begin(here, ends[2].clone()).unwrap();
        let replaced = [&first, &second, &third].map(|admitted| admitted.replaced);
        assert_eq!(replaced, [false, false, true]);
        assert!(of(&third.connection, "ada"));
        let ended = ends.each_ref().map(CancellationToken::is_cancelled);
        assert_eq!(ended, [true, false, false], "the oldest of this address");
        drop((first, second, third, elsewhere));
        let open = connections.open();
        assert!(open.by_address.is_empty() && open.without_login.is_empty());
    }

    #[test]
    fn a_connection_whose_login_is_being_checked_is_not_replaced() {
        let connections = small();
        let (here, ends) = (ip("192.0.2.1"), [(); 2].map(|()| CancellationToken::new()));
        let held = ends
            .each_ref()
            .map(|end| connections.begin(here, end.clone()).unwrap().connection);
        let checking = held[0].check();
        assert!(begin(&connections, here).is_some());
        let ended = || ends.each_ref().map(CancellationToken::is_cancelled);
        assert_eq!(ended(), [false, true]);
        drop(checking);
        assert!(begin(&connections, here).is_some());
        assert_eq!(ended(), [true, true], "the password was wrong");
        drop(held);
        let checked = begin(&connections, here).unwrap();
        let checking = checked.check();
        assert!(of(&checked, "ada"));
        drop(checking);
        assert!(connections.open().without_login.is_empty(), "ada is logged in");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let connections = small();
        let held = [ip("2001:db8::1"), ip("2001:db8::2")].map(|ip| begin(&connections, ip).unwrap());
        assert!(of(&held[0], "ada") && of(&held[1], "bob"));
        assert!(begin(&connections, ip("2001:db8::3")).is_none());
        assert!(begin(&connections, ip("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn a_users_connections_are_limited_and_count_for_the_latest_user() {
        let connections = small();
        let (ada, bob): (UserName, UserName) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let (first, second) = (
            begin(&connections, None).unwrap(),
            begin(&connections, None).unwrap(),
        );
        assert!(first.is_for(&ada) && first.is_for(&ada));
        assert!(!second.is_for(&ada));
        assert!(second.is_for(&bob));
        assert!(!first.is_for(&bob), "bob has one already");
        drop(second);
        assert!(first.is_for(&bob));
        assert!(begin(&connections, None).unwrap().is_for(&ada));
    }

    #[test]
    fn a_proxys_connection_counts_for_its_latest_client() {
        let connections = small();
        let (client, other) = (ip("192.0.2.1").unwrap(), ip("192.0.2.2").unwrap());
        let held = [(); 3].map(|()| begin(&connections, None).unwrap());
        assert!(of(&held[0], "ada") && of(&held[1], "bob"));
        let free = Some(false);
        let known = [
            held[0].is_from(client),
            held[0].is_from(client),
            held[1].is_from(client),
        ];
        assert_eq!(known, [free; 3]);
        assert_eq!(held[2].is_from(client), None, "two are open");
        assert_eq!(held[2].is_from(other), free);
        assert_eq!([held[0].is_from(other), held[2].is_from(client)], [free; 2]);
        drop(held);
        assert!(connections.open().by_address.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_proxys_client_replaces_its_own_oldest_connection_without_a_login() {
        let connections = small();
        let client = ip("192.0.2.1").unwrap();
        let ends = [(); 3].map(|()| CancellationToken::new());
        let held = ends
            .each_ref()
            .map(|end| connections.begin(None, end.clone()).unwrap().connection);
        let replaced = held.each_ref().map(|connection| connection.is_from(client));
        assert_eq!(replaced, [Some(false), Some(false), Some(true)]);
        let ended = ends.each_ref().map(CancellationToken::is_cancelled);
        assert_eq!(ended, [true, false, false]);
    }
}
