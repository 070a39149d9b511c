//! A client's connection to one server: sends requests, reads replies, and reconnects when the connection breaks.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hello::{self, Expected, HelloError, Identity, RunSecret};
use crate::message::{Refused, Request, reply};
use crate::shared::{self, Shared};
use crate::stream::{Stream, prepare, read_vectored, write_vectored};
use crate::wire::{FRAME_BYTES, Frame, MAX_HEAD, Reader, WireError};

use super::ClientError;

/// How long one attempt to connect may take: a server that moved has another address.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Pause between two connection attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum bytes of a reply body whose size the client does not know in advance.
const MAX_COLLECTED: u64 = 1 << 30;

/// Receives what a server waits for, and decides after a signal whether to give up.
pub trait Listener: Send + Sync {
    fn waiting(&self, server: u32, message: &str);
    /// Something that makes this run differ from an undisturbed one.
    fn notice(&self, _message: &str) {}
    fn interrupted(&self) -> bool {
        false
    }
}

/// How to connect to a server.
#[derive(Clone)]
pub struct LinkConfig {
    pub address: String,
    pub identity: Identity,
    pub secret: Option<RunSecret>,
    /// How long a server may be unreachable.
    pub patience: Duration,
    /// Accepts a process that replaced the server; it has loaded its latest checkpoint.
    pub follows_restarts: bool,
    /// Uses shared memory if the server is on this machine.
    pub shares_memory: bool,
    pub listener: Arc<dyn Listener>,
}

pub struct Link {
    config: LinkConfig,
    stream: Option<Stream>,
    /// Identifies the server process this link last connected to.
    incarnation: Option<u64>,
    /// Sent first on every new connection.
    join: Option<Request>,
    connected: Instant,
    /// Since when every connection has broken soon and without a reply.
    broken_since: Option<Instant>,
}

/// Where a reply's body goes.
pub enum Sink<'a> {
    Nothing,
    /// Exactly as many bytes as these slices hold.
    Into(Vec<&'a mut [u8]>),
    Collect(&'a mut Vec<u8>),
}

impl Sink<'_> {
    fn expects(&self, bytes: u64) -> bool {
        match self {
            Sink::Nothing => bytes == 0,
            Sink::Into(slices) => slices.iter().map(|slice| slice.len() as u64).sum::<u64>() == bytes,
            Sink::Collect(_) => bytes <= MAX_COLLECTED,
        }
    }
}

impl Link {
    pub fn new(config: LinkConfig) -> Link {
        Link {
            config,
            stream: None,
            incarnation: None,
            join: None,
            connected: Instant::now(),
            broken_since: None,
        }
    }

    pub fn server(&self) -> u32 {
        self.config.identity.server
    }

    /// Identifies the server process that answered last; 0 if none has.
    pub fn incarnation(&self) -> u64 {
        self.incarnation.unwrap_or(0)
    }

    pub fn uses_shared_memory(&self) -> bool {
        matches!(self.stream, Some(Stream::Shared(_)))
    }

    /// Sets the request that is sent first on every new connection.
    pub fn set_join(&mut self, join: Request) {
        self.join = Some(join);
    }

    /// Disconnects, and accepts any process that answers next as the server.
    pub fn forget(&mut self) {
        self.incarnation = None;
        self.stream = None;
    }

    /// Sends a request, and again on a new connection if this one breaks: every request may be repeated.
    pub fn send(&mut self, request: &Request, body: &[&[u8]]) -> Result<(), ClientError> {
        loop {
            self.connect().inspect_err(|_| self.broken_since = None)?;
            let stream = self.stream.as_mut().expect("connected above");
            match write_request(stream, request, body) {
                Err(ClientError::Io(error)) => self.broke(error)?,
                other => return other,
            }
        }
    }

    /// Reads the reply to the last request; repeats the request if the connection breaks before the reply is complete.
    pub fn receive(
        &mut self,
        request: &Request,
        body: &[&[u8]],
        sink: &mut Sink<'_>,
    ) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(stream) = &mut self.stream {
                match read_reply(stream, self.config.identity.server, &*self.config.listener, sink) {
                    Ok(head) => {
                        self.broken_since = None;
                        return Ok(head);
                    }
                    Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {
                        self.stream = None;
                        return Err(ClientError::Interrupted);
                    }
                    Err(ClientError::Io(error)) => self.broke(error)?,
                    Err(other) => {
                        self.broken_since = None;
                        if !matches!(other, ClientError::Refused(_)) {
                            self.stream = None;
                        }
                        return Err(other);
                    }
                }
            }
            self.send(request, body)?;
        }
    }

    pub fn ask(
        &mut self,
        request: &Request,
        body: &[&[u8]],
        mut sink: Sink<'_>,
    ) -> Result<Vec<u8>, ClientError> {
        self.send(request, body)?;
        self.receive(request, body, &mut sink)
    }

    /// Drops a broken connection. From the second in a row on that broke soon, pauses; gives up when patience ends.
    fn broke(&mut self, error: io::Error) -> Result<(), ClientError> {
        self.stream = None;
        let lasted = self.connected.elapsed() >= CONNECT_LIMIT;
        let Some(since) = self.broken_since.filter(|_| !lasted) else {
            self.broken_since = Some(Instant::now());
            return Ok(());
        };
        if self.config.listener.interrupted() {
            return Err(ClientError::Interrupted);
        }
        if since.elapsed() >= self.config.patience {
            self.broken_since = None;
            return Err(self.unreachable(error));
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable {
            server: self.server(),
            address: self.config.address.clone(),
            source,
        }
    }

    fn connect(&mut self) -> Result<(), ClientError> {
        if self.stream.is_some() {
            return Ok(());
        }
        let deadline = Instant::now() + self.config.patience;
        loop {
            let error = match self.try_connect() {
                Ok(()) => return Ok(()),
                Err(ClientError::Io(error)) => error,
                Err(ClientError::Hello(HelloError::Broken(error))) => error,
                Err(other) => return Err(other),
            };
            if self.config.listener.interrupted() {
                return Err(ClientError::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(self.unreachable(error));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn try_connect(&mut self) -> Result<(), ClientError> {
        let address = self
            .config
            .address
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        prepare(&stream);
        let may_share = self.config.shares_memory && is_on_this_machine(&stream);
        let mut stream = Stream::Tcp(stream);
        let expected = hello::introduce(&mut stream, self.config.secret.as_ref(), &self.config.identity)?;
        let incarnation = self.welcomed(&mut stream, &expected)?;
        let server = self.server();
        let is_other = self.incarnation.is_some_and(|known| known != incarnation);
        if is_other && !self.config.follows_restarts {
            return Err(ClientError::Restarted { server });
        }
        // A server in another network namespace, or with too little memory for it, uses TCP.
        if may_share && let Ok(shared) = self.share(incarnation) {
            stream = shared;
        }
        if let Some(join) = &self.join {
            write_request(&mut stream, join, &[])?;
            let standing = read_reply(&mut stream, server, &*self.config.listener, &mut Sink::Nothing)?;
            // Epoch 0: it has not loaded a checkpoint, because there is none.
            if is_other && Reader::new(&standing).u64()? == 0 {
                return Err(ClientError::Restarted { server });
            }
        }
        self.incarnation = Some(incarnation);
        self.stream = Some(stream);
        self.connected = Instant::now();
        Ok(())
    }

    /// Reads the server's first reply and checks its proof. Returns the number of the server's process.
    fn welcomed(&self, stream: &mut Stream, expected: &Expected) -> Result<u64, ClientError> {
        let welcome = read_reply(stream, self.server(), &*self.config.listener, &mut Sink::Nothing)?;
        let mut welcome = Reader::new(&welcome);
        expected.check(welcome.array()?)?;
        Ok(welcome.u64()?)
    }

    /// Connects to the same server through shared memory. Both sides prove the secret again.
    fn share(&self, incarnation: u64) -> Result<Stream, ClientError> {
        let mut socket = shared::connect(incarnation)?;
        let expected = hello::introduce(&mut socket, self.config.secret.as_ref(), &self.config.identity)?;
        let mut stream = Stream::Shared(Shared::accept(socket)?);
        match self.welcomed(&mut stream, &expected)? == incarnation {
            true => Ok(stream),
            false => Err(HelloError::Foreign.into()),
        }
    }
}

fn is_on_this_machine(stream: &TcpStream) -> bool {
    match (stream.peer_addr(), stream.local_addr()) {
        (Ok(peer), Ok(local)) => peer.ip().is_loopback() || peer.ip() == local.ip(),
        _ => false,
    }
}

fn write_request(stream: &mut Stream, request: &Request, body: &[&[u8]]) -> Result<(), ClientError> {
    let head = request.encode();
    if head.len() > MAX_HEAD {
        return Err(ClientError::Head { bytes: head.len() });
    }
    let frame = Frame {
        kind: request.kind(),
        head: head.len(),
        body: body.iter().map(|bytes| bytes.len() as u64).sum(),
    };
    let frame = frame.encode();
    let mut slices = vec![IoSlice::new(&frame), IoSlice::new(&head)];
    slices.extend(body.iter().map(|bytes| IoSlice::new(bytes)));
    Ok(write_vectored(stream, &mut slices)?)
}

/// Reads the next final reply and returns its head; passes on what the server waits for in the meantime.
fn read_reply(
    stream: &mut Stream,
    server: u32,
    listener: &dyn Listener,
    sink: &mut Sink<'_>,
) -> Result<Vec<u8>, ClientError> {
    loop {
        let (frame, head) = read_head(stream, listener)?;
        match frame.kind {
            reply::WAITING => listener.waiting(server, &Reader::new(&head).text("a message")?),
            reply::REFUSED => return Err(ClientError::Refused(Refused::decode(&head)?)),
            reply::DONE => {
                if !sink.expects(frame.body) {
                    return Err(ClientError::Size {
                        server,
                        bytes: frame.body,
                    });
                }
                read_body(stream, listener, sink, frame.body)?;
                return Ok(head);
            }
            found => {
                return Err(ClientError::Wire(WireError::Unknown {
                    what: "a reply",
                    found: u64::from(found),
                }));
            }
        }
    }
}

fn read_head(stream: &mut Stream, listener: &dyn Listener) -> Result<(Frame, Vec<u8>), ClientError> {
    let interrupted = || listener.interrupted();
    let mut bytes = [0; FRAME_BYTES];
    read_vectored(stream, &mut [IoSliceMut::new(&mut bytes)], &interrupted)?;
    let frame = Frame::decode(&bytes)?;
    let mut head = vec![0; frame.head];
    read_vectored(stream, &mut [IoSliceMut::new(&mut head)], &interrupted)?;
    Ok((frame, head))
}

fn read_body(
    stream: &mut Stream,
    listener: &dyn Listener,
    sink: &mut Sink<'_>,
    bytes: u64,
) -> Result<(), ClientError> {
    let interrupted = || listener.interrupted();
    match sink {
        Sink::Nothing => {}
        Sink::Into(slices) => {
            let mut slices: Vec<IoSliceMut<'_>> =
                slices.iter_mut().map(|slice| IoSliceMut::new(slice)).collect();
            read_vectored(stream, &mut slices, &interrupted)?;
        }
        Sink::Collect(collected) => {
            collected.clear();
            // Read as it arrives: a claimed size alone allocates nothing.
            stream.take(bytes).read_to_end(collected)?;
            if collected.len() as u64 != bytes {
                return Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::wire::Writer;

    struct Silent;

    impl Listener for Silent {
        fn waiting(&self, _server: u32, _message: &str) {}
    }

    /// A server that welcomes every connection and closes it without a reply.
    #[test]
    fn a_server_that_never_replies_fails_without_spinning() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let accepted = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let Ok(client) = hello::accept(&mut stream, None) else {
                    continue;
                };
                let head = Writer::new().bytes(&client.proof).u64(7).finish();
                let frame = Frame {
                    kind: reply::DONE,
                    head: head.len(),
                    body: 0,
                };
                let _ = stream.write_all(&[&frame.encode()[..], &head].concat());
            }
        });
        let mut link = Link::new(LinkConfig {
            address,
            identity: Identity {
                trainer: 0,
                trainers: 1,
                attempt: 1,
                server: 0,
                servers: 1,
                lane: 0,
            },
            secret: None,
            patience: 4 * PAUSE,
            follows_restarts: false,
            shares_memory: false,
            listener: Arc::new(Silent),
        });
        let error = link.ask(&Request::Stat, &[], Sink::Nothing).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        assert!(accepted.load(Ordering::Relaxed) <= 8);
    }
}
