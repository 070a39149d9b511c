//! Connections that prove nothing, and those of other users of the machine.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use paddlecloud_pserver::hello::RunSecret;
use paddlecloud_pserver::optimizer::{Pace, Rule};
use paddlecloud_pserver::server::{self, Admission, Server, listen};
use paddlecloud_pserver::steps::Mode;

use crate::training::{Job, dense};

/// More than may wait for their proof.
const FLOOD: usize = 400;

#[test]
fn trainers_join_and_train_during_a_flood_without_a_proof() {
    let job = Job::new(1, 2, Mode::Async);
    let address: SocketAddr = job.config(0, 1).addresses[0].parse().unwrap();
    let mut first = job.connect(0, 1);
    let flood: Vec<_> = (0..FLOOD).map(|_| TcpStream::connect(address).unwrap()).collect();
    // This one through shared memory.
    let mut second = job.connect(1, 1);
    for client in [&mut first, &mut second] {
        client.create_dense(dense("w", 1, Rule::Sgd), &[1.0]).unwrap();
        client.push(&[("w", &[1.0])], Pace::default()).unwrap();
        client.finish_step(&mut [("w", &mut [0.0])], None).unwrap();
    }
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    };
    let closed = flood.iter().filter(|stream| is_closed(stream)).count();
    assert!(closed >= FLOOD - 256, "{closed} of {FLOOD} are closed");
}

#[test]
fn a_client_of_another_user_is_closed_when_it_is_accepted() {
    let server = Server::new(server::Config {
        secret: Some(RunSecret::new("test")),
        ..server::Config::default()
    });
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let other = |_: std::os::fd::BorrowedFd<'_>| Some(31_337);
    let listening = listen(&server, &[address], &Admission::BySecret, other).unwrap();
    let mut client = TcpStream::connect(listening.addresses[0]).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Not even the challenge.
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}
