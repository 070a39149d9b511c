//! A relay between client and server that counts every byte on the wire, either way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes of both directions since the last look.
#[derive(Debug, Default)]
struct Counts {
    up: AtomicU64,
    down: AtomicU64,
}

/// A running relay; it lives as long as the program.
#[derive(Debug)]
pub struct Relay {
    pub port: u16,
    counts: Arc<Counts>,
}

impl Relay {
    /// Relays a port of its own to another one.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                connect(&client, &server, shared.clone());
            }
        });
        Self { port, counts }
    }

    /// Bytes sent and received since the last call.
    pub fn take(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.counts.up), take(&self.counts.down))
    }
}

fn connect(client: &TcpStream, server: &TcpStream, counts: Arc<Counts>) {
    let both = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
    let (Some(up), Some(down)) = (both(), both()) else {
        return;
    };
    for stream in [client, server] {
        // A relay that waits to fill packets would be measured instead of what it relays.
        let _ = stream.set_nodelay(true);
    }
    let other = counts.clone();
    thread::spawn(move || pump(up.0, up.1, &counts.up));
    thread::spawn(move || pump(down.1, down.0, &other.down));
}

fn pump(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut buffer) {
        count.fetch_add(read as u64, Ordering::Relaxed);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
