//! The network between a client and a server, as bad as a test wants it: it counts bytes, cuts connections, flips
//! bits, holds requests back, and does something at the very moment after a given number of bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use e2e::LIMIT;

use super::dice::Dice;
use super::exchanges::{Conversation, Exchanges};

/// Reads of at least this length carry content: a flip there hits a file, not a header.
const BULK: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    Down,
}

/// A port that forwards to a server.
pub struct Network {
    pub endpoint: String,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire {
    server: Mutex<String>,
    faults: Mutex<Faults>,
    up: AtomicU64,
    down: AtomicU64,
    cuts: AtomicU64,
    flips: AtomicU64,
    exchanges: Exchanges,
    gathering: Mutex<Option<Gathering>>,
    gathered: Condvar,
    is_over: AtomicBool,
}

/// Requests that wait for each other.
struct Gathering {
    /// Part of their first line.
    called: &'static str,
    wanted: usize,
    arrived: usize,
}

type Action = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Faults {
    cut: Option<(Dice, Range<u64>)>,
    flip: Option<(Way, u64)>,
    alarm: Option<(u64, Action)>,
    /// At the request with this number.
    ambush: Option<(u64, Action)>,
    /// The reply to the request with this number is lost.
    lost_reply: Option<u64>,
}

impl Network {
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("some port is free");
        let endpoint = listener.local_addr().expect("it listens somewhere").to_string();
        let wire = Arc::new(Wire::default());
        let accepting = wire.clone();
        thread::spawn(move || accept(&listener, &accepting));
        let network = Self { endpoint, wire };
        network.forward_to(server);
        network
    }

    /// From the next connection on it forwards elsewhere.
    pub fn forward_to(&self, server: &str) {
        server.clone_into(&mut lock(&self.wire.server));
    }

    /// Disconnects the server until [`Network::forward_to`] names one. A process that is killed still takes connections
    /// for some milliseconds, and what is sent to it then arrives nowhere.
    pub fn disconnecter(&self) -> impl FnOnce() + Send + use<> {
        let wire = self.wire.clone();
        move || lock(&wire.server).clear()
    }

    /// Every connection is cut after a number of bytes that differs each time.
    pub fn cut_after(&self, seed: u64, bytes: Range<u64>) {
        lock(&self.wire.faults).cut = Some((Dice::new(seed), bytes));
    }

    /// Flips one bit in each of the next `times` pieces of content.
    pub fn flip_bits(&self, way: Way, times: u64) {
        lock(&self.wire.faults).flip = Some((way, times));
    }

    /// Does something when this many more bytes have passed, both ways together.
    pub fn after(&self, bytes: u64, action: impl FnOnce() + Send + 'static) {
        let mark = self.passed_in_all() + bytes;
        lock(&self.wire.faults).alarm = Some((mark, Box::new(action)));
    }

    /// Does something when this many more requests have begun, and cuts the last of them before the server sees it.
    pub fn before_request(&self, number: u64, action: impl FnOnce() + Send + 'static) {
        let mark = self.exchanges().requests() + number;
        lock(&self.wire.faults).ambush = Some((mark, Box::new(action)));
    }

    /// Cuts the connection when the reply to this request comes, counted from now. Nothing else may be in flight.
    pub fn lose_reply(&self, number: u64) {
        lock(&self.wire.faults).lost_reply = Some(self.exchanges().requests() + number);
    }

    /// Holds requests whose first line has this in it until this many are in flight; from then on none. If they never
    /// come together, they are released one by one, late, so that the test reports what it saw.
    pub fn gather(&self, wanted: usize, called: &'static str) {
        let arrived = 0;
        *lock(&self.wire.gathering) = Some(Gathering {
            called,
            wanted,
            arrived,
        });
    }

    pub fn heal(&self) {
        *lock(&self.wire.faults) = Faults::default();
    }

    pub fn passed(&self, way: Way) -> u64 {
        self.wire.counter(way).load(Ordering::SeqCst)
    }

    /// Bytes that passed both ways.
    pub fn passed_in_all(&self) -> u64 {
        self.passed(Way::Up) + self.passed(Way::Down)
    }

    /// What is known of requests and replies.
    pub fn exchanges(&self) -> &Exchanges {
        &self.wire.exchanges
    }

    pub fn cuts(&self) -> u64 {
        self.wire.cuts.load(Ordering::SeqCst)
    }

    pub fn flips(&self) -> u64 {
        self.wire.flips.load(Ordering::SeqCst)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.wire.is_over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, so that the port is released.
        let _ = TcpStream::connect(&self.endpoint);
    }
}

impl Wire {
    fn counter(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    /// How many bytes the next connection may carry.
    fn budget(&self) -> u64 {
        match &mut lock(&self.faults).cut {
            Some((dice, range)) => dice.within(range.clone()),
            None => u64::MAX,
        }
    }

    fn disturb(&self, way: Way, bytes: &mut [u8]) {
        let mut faults = lock(&self.faults);
        if let Some((wanted, times @ 1..)) = &mut faults.flip
            && *wanted == way
            && bytes.len() >= BULK
        {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            *times -= 1;
            self.flips.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn hold(&self, request: &[u8]) {
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut gathering = lock(&self.gathering);
        match gathering.as_mut() {
            Some(held) if String::from_utf8_lossy(line).contains(held.called) => {
                held.arrived += 1;
                if held.arrived >= held.wanted {
                    *gathering = None;
                    self.gathered.notify_all();
                }
            }
            _ => return,
        }
        let waited = self
            .gathered
            .wait_timeout_while(gathering, LIMIT / 2, |gathering| gathering.is_some());
        let (mut gathering, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *gathering = None;
        self.gathered.notify_all();
    }

    /// Whether the request that begins is cut.
    fn is_ambushed(&self) -> bool {
        let begun = self.exchanges.requests();
        let due = lock(&self.faults).ambush.take_if(|(mark, _)| *mark <= begun);
        let Some((_, action)) = due else { return false };
        action();
        true
    }

    fn loses_reply(&self) -> bool {
        let begun = self.exchanges.requests();
        lock(&self.faults)
            .lost_reply
            .take_if(|mark| *mark <= begun)
            .is_some()
    }

    fn count(&self, way: Way, bytes: usize) {
        self.counter(way).fetch_add(bytes as u64, Ordering::SeqCst);
        let passed = self.up.load(Ordering::SeqCst) + self.down.load(Ordering::SeqCst);
        let due = lock(&self.faults).alarm.take_if(|(mark, _)| *mark <= passed);
        if let Some((_, action)) = due {
            action();
        }
    }
}

fn accept(listener: &TcpListener, wire: &Arc<Wire>) {
    for client in listener.incoming().map_while(Result::ok) {
        if wire.is_over.load(Ordering::SeqCst) {
            return;
        }
        // If the server is down, the client's connection is closed.
        let Ok(server) = TcpStream::connect(lock(&wire.server).as_str()) else {
            continue;
        };
        let left = Arc::new(AtomicU64::new(wire.budget()));
        let conversation = Arc::new(Conversation::default());
        for (way, from, to) in [(Way::Up, &client, &server), (Way::Down, &server, &client)] {
            let (from, to) = (copy(from), copy(to));
            let (wire, left, conversation) = (wire.clone(), left.clone(), conversation.clone());
            thread::spawn(move || {
                carry(way, from, to, &wire, &left, &conversation);
                wire.exchanges.on_end(&conversation);
            });
        }
    }
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor can be doubled")
}

/// Passes bytes on until either side hangs up or the connection is cut, in both directions at once.
fn carry(
    way: Way,
    mut from: TcpStream,
    mut to: TcpStream,
    wire: &Wire,
    left: &AtomicU64,
    conversation: &Conversation,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let may = left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(left.saturating_sub(read as u64))
            })
            .unwrap_or_default();
        let passing = read.min(usize::try_from(may).unwrap_or(read));
        // Before the other side can answer.
        match way {
            Way::Up => {
                if wire.exchanges.on_up(conversation) {
                    if wire.is_ambushed() {
                        break;
                    }
                    wire.hold(&buffer[..passing]);
                }
            }
            Way::Down if wire.loses_reply() => break,
            Way::Down => wire.exchanges.on_down(conversation, &buffer[..passing]),
        }
        wire.disturb(way, &mut buffer[..passing]);
        let is_cut = passing < read;
        if is_cut {
            wire.cuts.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..passing]).is_err() {
            break;
        }
        wire.count(way, passing);
        if is_cut {
            break;
        }
    }
    // Either may be gone already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
