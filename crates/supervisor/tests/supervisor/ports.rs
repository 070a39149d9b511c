//! Readiness and port conflicts, from the kernel's tables.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

use paddlecloud_worker::protocol::{Command, Ending, MARKER_VARIABLE, Report};

use crate::harness::{Attempt, Mode, modes};

/// Listens at an address on the ports one by one, each after a line on a fifo; counts connections.
const SERVER: &str = r#"/usr/bin/python3 -uc '
import socket, sys, select
address, ports = sys.argv[1], sys.argv[2:]
held = []
for port in ports:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(port)))
    s.listen()
    held.append(s)
    print("listening", port)
open("stop").read()
print("connections", len(select.select(held, [], [], 0)[0]))
' "#;

/// Ports of this test alone on which nothing listens, below the range from which the kernel picks.
///
/// Checked by connecting: a test listener would stay open for a moment in every process that another test is just
/// starting.
fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (std::process::id() % 200) as u16 * 100;
    std::array::from_fn(|_| {
        loop {
            let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 100;
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
                return port;
            }
        }
    })
}

fn server(mode: &Mode, address: Option<&str>, ports: &[u16]) -> Attempt {
    let numbers: Vec<_> = ports.iter().map(u16::to_string).collect();
    let attempt = Attempt::new(mode, "");
    let address = address.map_or(attempt.plan.address.to_string(), str::to_owned);
    let workdir = attempt.dir().to_owned();
    let made = std::process::Command::new("mkfifo")
        .arg("-m666")
        .arg(workdir.join("stop"))
        .status();
    assert!(made.unwrap().success());
    attempt.with(|plan| {
        plan.command = format!("{SERVER} {address} {}", numbers.join(" "));
        plan.workdir = workdir;
        plan.ready_ports = ports.to_vec();
    })
}

/// Stops the server and returns how many connections it got.
fn finish(attempt: &Attempt) -> String {
    std::fs::write(attempt.dir().join("stop"), "").unwrap();
    assert_eq!(
        attempt.exit().ending,
        Ending::Code(0),
        "{attempt:?} {}",
        attempt.text()
    );
    attempt.text().lines().last().unwrap().to_owned()
}

#[test]
fn readiness_is_detected_without_connecting_to_the_ports() {
    for mode in modes() {
        for address in [None, Some("0.0.0.0")] {
            let ports = free_ports::<2>();
            let attempt = server(&mode, address, &ports);
            attempt.start();
            let (mut client, state) = attempt.connect();
            if !state.ready {
                client.until(|report| (report == Report::Ready).then_some(()));
            }
            assert!(attempt.connect().1.ready);
            assert_eq!(finish(&attempt), "connections 0");
        }
    }
}

#[test]
fn another_listener_on_all_addresses_does_not_make_a_worker_ready() {
    for mode in modes() {
        let [port] = free_ports::<1>();
        let neighbour = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        let attempt =
            Attempt::new(&mode, "echo up; exec sleep 1000").with(|plan| plan.ready_ports = vec![port]);
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        assert!(!attempt.connect().1.ready, "{attempt:?}");
        client.send(&Command::Stop { grace_ms: None });
        let mut reports = std::iter::from_fn(|| client.next());
        assert!(!reports.any(|report| report == Report::Ready), "{attempt:?}");
        drop(neighbour);
    }
}

#[test]
fn a_port_held_by_another_process_explains_the_failure() {
    for mode in modes() {
        let [port] = free_ports::<1>();
        let stranger = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        let attempt = server(&mode, Some("0.0.0.0"), &[port]);
        attempt.start();
        let exit = attempt.exit();
        assert_eq!(exit.ending, Ending::Code(1), "{attempt:?}");
        let clash = exit.clash.expect("the port is held");
        assert_eq!((clash.port, clash.holder_marker), (port, None));
        if mode.uid.is_none() {
            assert_eq!(clash.holder_pid, Some(std::process::id()));
        }
        drop(stranger);
    }
}

#[test]
fn a_port_held_by_another_attempt_names_it() {
    for mode in modes() {
        let [port] = free_ports::<1>();
        let first = server(&mode, Some("0.0.0.0"), &[port]);
        first.start();
        let (mut client, state) = first.connect();
        if !state.ready {
            client.until(|report| (report == Report::Ready).then_some(()));
        }
        let second = server(&mode, Some("0.0.0.0"), &[port]);
        second.start();
        let clash = second.exit().clash.expect("the port is held");
        assert_eq!(
            clash.holder_marker.as_deref(),
            Some(first.plan.marker.as_str()),
            "{MARKER_VARIABLE}"
        );
        assert_eq!(finish(&first), "connections 0");
    }
}

#[test]
fn each_worker_has_the_same_port_at_its_own_address() {
    for mode in modes() {
        let [port] = free_ports::<1>();
        let (one, two) = (server(&mode, None, &[port]), server(&mode, None, &[port]));
        for attempt in [&one, &two] {
            attempt.start();
            let (mut client, state) = attempt.connect();
            if !state.ready {
                client.until(|report| (report == Report::Ready).then_some(()));
            }
        }
        assert_eq!(finish(&one), "connections 0");
        assert_eq!(finish(&two), "connections 0");
    }
}
