//! The connections between launchers: every trainer keeps one to every parameter server while it runs.
//!
//! A trainer sends its index. The parameter server's side replies with one byte once its program listens. A closed
//! connection means that the trainer has ended, for whatever reason. Nothing else is sent.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::LaunchError;

/// Below the ports of parameter servers.
pub const PORT: u16 = 7160;

const READY: u8 = b'r';
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const HELLO_LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

/// The trainers as a parameter server's launcher sees them.
#[derive(Debug, Clone)]
pub struct Book {
    /// The number of open connections of every trainer that has ever connected.
    seen: watch::Receiver<BTreeMap<u32, usize>>,
    trainers: u32,
}

/// The parameter server's side. It accepts connections as long as the process runs.
#[derive(Debug)]
pub struct Host {
    pub book: Book,
    ready: watch::Sender<bool>,
}

impl Host {
    pub async fn open(trainers: u32, port: u16) -> Result<Host, LaunchError> {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let listener = TcpListener::bind(at).await.map_err(|error| {
            LaunchError::new(format!("cannot listen on port {port} for trainers: {error}"))
        })?;
        Ok(Host::on(listener, trainers))
    }

    fn on(listener: TcpListener, trainers: u32) -> Host {
        let (ready, is_ready) = watch::channel(false);
        let (book, seen) = watch::channel(BTreeMap::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(attend(stream, trainers, is_ready.clone(), book.clone()));
            }
        });
        Host {
            book: Book { seen, trainers },
            ready,
        }
    }

    /// Reports that the program listens: trainers may start.
    pub fn set_ready(&self) {
        self.ready.send_replace(true);
    }
}

impl Book {
    /// Waits until every trainer has connected.
    pub async fn all_joined(&mut self, deadline: Instant, limit: Duration) -> Result<(), LaunchError> {
        let trainers = self.trainers;
        let came = self.seen.wait_for(|seen| seen.len() == trainers as usize);
        if let Ok(Ok(_)) = timeout_at(deadline, came).await {
            return Ok(());
        }
        let seen = self.seen.borrow();
        let missing = (0..trainers).filter(|index| !seen.contains_key(index));
        let missing: Vec<String> = missing.map(|index| format!("trainer {index}")).collect();
        Err(super::peers::absent(limit, &missing.join(", ")))
    }

    /// Waits until all trainers are gone and none returns within `linger`.
    pub async fn all_left(&mut self, linger: Duration) {
        let all_closed = |seen: &BTreeMap<u32, usize>| seen.values().all(|open| *open == 0);
        loop {
            if self.seen.wait_for(all_closed).await.is_err() {
                return;
            }
            let back = self.seen.wait_for(|seen| !all_closed(seen));
            if timeout(linger, back).await.is_err() {
                return;
            }
        }
    }
}

/// Serves one connection until it closes.
async fn attend(
    stream: TcpStream,
    trainers: u32,
    mut ready: watch::Receiver<bool>,
    book: watch::Sender<BTreeMap<u32, usize>>,
) {
    keep_alive(&stream);
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let hello = timeout(HELLO_LIMIT, (&mut stream).take(16).read_line(&mut line)).await;
    let index = line.trim().parse::<u32>().ok().filter(|index| *index < trainers);
    let (Ok(Ok(_)), Some(index)) = (hello, index) else {
        return;
    };
    book.send_modify(|seen| *seen.entry(index).or_default() += 1);
    let mut rest = [0; 16];
    tokio::select! {
        () = async { drop(ready.wait_for(|ready| *ready).await) } => {
            if stream.write_all(&[READY]).await.is_ok() {
                while matches!(stream.read(&mut rest).await, Ok(1..)) {}
            }
        }
        _ = stream.read(&mut rest) => {}
    }
    book.send_modify(|seen| *seen.entry(index).or_default() -= 1);
}

/// Detects a trainer whose node is lost: it never closes its connection.
fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let set = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, Duration::from_secs(20)))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10)));
    if let Err(error) = set {
        eprintln!("paddle launch: cannot watch a connection: {error}");
    }
}

/// The trainer's side: connections to all parameter servers. Dropping them signals that this trainer has ended.
#[derive(Debug)]
pub struct Attendance(#[allow(dead_code, reason = "held open")] Vec<TcpStream>);

/// Connects to every parameter server and waits until all of them listen.
pub async fn join_all(
    pservers: Vec<SocketAddr>,
    index: u32,
    deadline: Instant,
    limit: Duration,
) -> Result<Attendance, LaunchError> {
    let mut joining = Vec::new();
    for address in &pservers {
        joining.push(tokio::spawn(timeout_at(deadline, join(*address, index))));
    }
    let (mut streams, mut missing) = (Vec::new(), Vec::new());
    for (number, task) in joining.into_iter().enumerate() {
        match task.await {
            Ok(Ok(stream)) => streams.push(stream),
            _ => missing.push(format!(
                "pserver {number} at {} is not listening",
                pservers[number].ip()
            )),
        }
    }
    match missing.is_empty() {
        true => Ok(Attendance(streams)),
        false => Err(super::peers::absent(limit, &missing.join(", "))),
    }
}

/// Returns when this parameter server's program listens.
async fn join(address: SocketAddr, index: u32) -> TcpStream {
    loop {
        if let Ok(Ok(mut stream)) = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            keep_alive(&stream);
            let hello = format!("{index}\n");
            if stream.write_all(hello.as_bytes()).await.is_ok() && matches!(stream.read_u8().await, Ok(READY))
            {
                return stream;
            }
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn soon() -> Instant {
        Instant::now() + LIMIT
    }

    async fn host(trainers: u32) -> (Host, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Host::on(listener, trainers), address)
    }

    #[tokio::test]
    async fn trainers_start_when_the_server_is_ready_and_their_exit_is_seen() {
        let (mut host, address) = host(2).await;
        let mut seats = Vec::new();
        let mut waiting: Vec<_> = (0..2)
            .map(|index| tokio::spawn(join_all(vec![address], index, soon(), LIMIT)))
            .collect();
        host.book.all_joined(soon(), LIMIT).await.unwrap();
        assert!(
            waiting.iter().all(|task| !task.is_finished()),
            "nobody begins before it is ready"
        );
        host.set_ready();
        for task in waiting.drain(..) {
            seats.push(task.await.unwrap().unwrap());
        }
        let mut book = host.book.clone();
        let left = tokio::spawn(async move { book.all_left(Duration::from_millis(10)).await });
        seats.pop();
        host.book.seen.wait_for(|seen| seen[&1] == 0).await.unwrap();
        assert!(!left.is_finished(), "one trainer is still there");
        seats.clear();
        timeout(LIMIT, left).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn missing_trainers_are_named() {
        let (mut host, address) = host(3).await;
        host.set_ready();
        let _attendance = join_all(vec![address], 1, soon(), LIMIT).await.unwrap();
        let error = host.book.all_joined(Instant::now(), LIMIT).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "not all peers appeared within 30s; missing: trainer 0, trainer 2"
        );
    }

    #[tokio::test]
    async fn a_server_that_never_listens_is_named() {
        let (_host, address) = host(1).await;
        let error = join_all(
            vec![address],
            0,
            Instant::now() + Duration::from_millis(50),
            LIMIT,
        )
        .await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "not all peers appeared within 30s; missing: pserver 0 at 127.0.0.1 is not listening"
        );
    }

    #[tokio::test]
    async fn strangers_are_not_counted() {
        let (mut host, address) = host(1).await;
        for hello in ["7\n", "x\n", "-1\n"] {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            stranger.write_all(hello.as_bytes()).await.unwrap();
            assert_eq!(stranger.read(&mut [0; 1]).await.unwrap_or(0), 0, "{hello:?}");
        }
        assert!(host.book.all_joined(Instant::now(), LIMIT).await.is_err());
    }
}
