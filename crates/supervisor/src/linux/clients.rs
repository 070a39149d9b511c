//! A supervisor's client connections: reads commands and writes reports as lines, without blocking.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use paddlecloud_worker::protocol::{Command, Report, decode, encode};

/// A client is disconnected if it sends a longer line or leaves this many bytes unread. After it reconnects, the state
/// message contains everything.
const MOST_BUFFERED: usize = 1 << 20;

pub struct Clients {
    pub listener: UnixListener,
    connected: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    watch: Option<u64>,
    /// The client no longer reads. Lines that it sent before are still processed.
    deaf: bool,
    gone: bool,
}

impl Clients {
    pub fn new(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            connected: Vec::new(),
        })
    }

    /// The connections, and whether each has output to write.
    pub fn streams(&self) -> impl Iterator<Item = (&UnixStream, bool)> {
        self.connected
            .iter()
            .map(|client| (&client.stream, !client.output.is_empty()))
    }

    /// Accepts all waiting connections; each gets the state first.
    pub fn accept(&mut self, state: &Report) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut client = Client {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                watch: None,
                deaf: false,
                gone: false,
            };
            client.send(state);
            self.connected.push(client);
        }
    }

    /// Receives commands. A watch is stored with its connection; all others are returned.
    pub fn commands(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        for client in &mut self.connected {
            client.receive();
            for command in client.lines() {
                match command {
                    Command::Watch { offset } => client.watch = Some(offset),
                    command => commands.push(command),
                }
            }
        }
        commands
    }

    pub fn broadcast(&mut self, report: &Report) {
        self.connected.iter_mut().for_each(|client| client.send(report));
    }

    /// Answers the watches that the log has grown past.
    pub fn grown(&mut self, end: u64) {
        self.answer(end, |offset| end > offset);
    }

    /// Answers all remaining watches: the log no longer grows.
    pub fn ended(&mut self, end: u64) {
        self.answer(end, |_| true);
    }

    fn answer(&mut self, end: u64, is_due: impl Fn(u64) -> bool) {
        for client in &mut self.connected {
            if client.watch.take_if(|offset| is_due(*offset)).is_some() {
                client.send(&Report::Grown { offset: end });
            }
        }
    }

    /// Writes as much as possible without blocking, and drops closed connections.
    pub fn flush(&mut self) {
        self.connected.iter_mut().for_each(Client::flush);
        self.connected.retain(|client| !client.gone);
    }
}

impl Client {
    fn send(&mut self, report: &Report) {
        if self.deaf {
            return;
        }
        self.output.extend_from_slice(&encode(report));
        self.flush();
        self.gone |= self.output.len() > MOST_BUFFERED;
    }

    fn flush(&mut self) {
        while !self.output.is_empty() && !self.gone {
            match self.stream.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if has_left(&error) => {
                    self.deaf = true;
                    self.output.clear();
                }
                Err(_) => self.gone = true,
            }
        }
    }

    fn receive(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                Ok(len) => self.input.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
            self.gone |= self.input.len() > MOST_BUFFERED;
            if self.gone {
                return;
            }
        }
    }

    fn lines(&mut self) -> Vec<Command> {
        let whole = self
            .input
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.input.drain(..whole).collect();
        let mut commands = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match decode(line) {
                Ok(command) => commands.push(command),
                Err(error) => {
                    crate::trouble!("a client sent an invalid command: {error}");
                    self.gone = true;
                }
            }
        }
        commands
    }
}

fn has_left(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Clients, UnixStream, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut clients = Clients::new(UnixListener::bind(dir.path().join("s")).unwrap()).unwrap();
        let stream = UnixStream::connect(dir.path().join("s")).unwrap();
        clients.accept(&Report::Ready);
        (clients, stream, dir)
    }

    fn read_all(stream: &mut UnixStream) -> String {
        stream.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_watch_is_answered_once_and_only_when_the_log_is_longer() {
        let (mut clients, mut stream, _dir) = pair();
        stream.write_all(&encode(&Command::Watch { offset: 5 })).unwrap();
        assert!(clients.commands().is_empty());
        clients.grown(5);
        assert_eq!(read_all(&mut stream), "{\"report\":\"ready\"}\n");
        clients.grown(6);
        clients.grown(7);
        assert_eq!(read_all(&mut stream), "{\"report\":\"grown\",\"offset\":6}\n");
    }

    #[test]
    fn commands_may_arrive_in_parts() {
        let (mut clients, mut stream, _dir) = pair();
        let line = encode(&Command::Stop { grace_ms: Some(1) });
        stream.write_all(&line[..5]).unwrap();
        assert!(clients.commands().is_empty());
        stream.write_all(&line[5..]).unwrap();
        assert_eq!(clients.commands(), [Command::Stop { grace_ms: Some(1) }]);
    }

    #[test]
    fn a_command_is_executed_after_its_sender_disconnects() {
        let (mut clients, mut stream, _dir) = pair();
        stream
            .write_all(&encode(&Command::Stop { grace_ms: None }))
            .unwrap();
        drop(stream);
        clients.broadcast(&Report::Ready);
        clients.flush();
        assert_eq!(clients.commands(), [Command::Stop { grace_ms: None }]);
        clients.flush();
        assert_eq!(clients.streams().count(), 0);
    }

    #[test]
    fn nonsense_ends_the_connection() {
        let (mut clients, mut stream, _dir) = pair();
        stream.write_all(b"hello\n").unwrap();
        assert!(clients.commands().is_empty());
        clients.flush();
        assert_eq!(clients.streams().count(), 0);
    }
}
