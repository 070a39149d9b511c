//! What one hostile client can do to a shared server: nothing that others notice.

mod canary;
mod memory;
mod parameter_server;
mod schema;

use std::env::var;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use e2e::{Background, Disk, Shared, TestEnvironment, wait_until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::tls::{Authority, start_with_tls};

/// How often to repeat; `cargo xtask test --with attack` asks for many.
fn rounds() -> usize {
    var("PADDLECLOUD_ATTACK_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Sends a body in chunks of one byte without a login, and reads the beginning of the reply.
fn send_byte_by_byte(stream: &mut (impl Read + Write), chunks: usize) -> String {
    let head = "POST /api-token-auth HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the server reads");
    let some = b"1\r\n \r\n".repeat(1000);
    for _ in 0..chunks / 1000 {
        // A server that has heard enough may hang up.
        if stream.write_all(&some).is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n").and_then(|()| stream.flush());
    let mut reply = [0; 12];
    let read = stream.read_exact(&mut reply);
    read.map(|()| String::from_utf8_lossy(&reply).into_owned())
        .unwrap_or_default()
}

fn peak_memory_kb(shared: &Shared) -> u64 {
    memory_kb(shared, "VmHWM:")
}

fn resident_kb(shared: &Shared) -> u64 {
    memory_kb(shared, "VmRSS:")
}

fn memory_kb(shared: &Shared, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", shared.pid())).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with(kind));
    let amount = line.and_then(|line| line.split_whitespace().nth(1));
    amount
        .expect("the kernel counts memory")
        .parse()
        .expect("a number")
}

/// 30,000 chunks of one byte pinned 120 MB before a body's memory was bounded.
#[test]
fn a_body_in_tiny_chunks_takes_no_more_memory_than_its_content() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "");
    let before = peak_memory_kb(&shared);
    for _ in 0..4 * rounds() {
        let mut stream = TcpStream::connect(&shared.endpoint).expect("the server listens");
        send_byte_by_byte(&mut stream, 30_000);
    }
    let grown = peak_memory_kb(&shared).saturating_sub(before);
    assert!(grown < 24 << 10, "the server grew by {grown} kB");
}

#[test]
fn a_body_in_tiny_chunks_over_tls_takes_no_more_memory_than_its_content() {
    let env = TestEnvironment::new();
    let authority = Authority::new(&env, "ours");
    let shared = start_with_tls(&env, &authority);
    let before = peak_memory_kb(&shared);
    for _ in 0..4 * rounds() {
        let tcp = TcpStream::connect(&shared.endpoint).expect("the server listens");
        send_byte_by_byte(&mut encrypted(tcp, &authority), 30_000);
    }
    let grown = peak_memory_kb(&shared).saturating_sub(before);
    assert!(grown < 24 << 10, "the server grew by {grown} kB");
}

fn encrypted(tcp: TcpStream, authority: &Authority) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(authority.path("ca.pem")).expect("a certificate");
    roots.add(ca).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of this library")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    StreamOwned::new(connection, tcp)
}

/// Holds as many connections as it gets, from an address of its own, until it is ended.
const FLOOD: &str = "
import socket, sys, time
held = []
for _ in range(400):
    one = socket.socket()
    one.bind(('127.0.0.2', 0))
    one.settimeout(5)
    try:
        one.connect((sys.argv[1], int(sys.argv[2])))
        held.append(one)
    except OSError:
        pass
print('flooded', flush=True)
time.sleep(1000)
";

fn flood(env: &TestEnvironment, shared: &Shared) -> Background {
    let (host, port) = shared.endpoint.split_once(':').expect("host and port");
    let mut flood = env.start_program("/usr/bin/python3", &["-c", FLOOD, host, port]);
    flood.wait_for_line("flooded");
    flood
}

#[test]
fn a_flood_of_connections_does_not_fail_other_users_jobs() {
    let env = TestEnvironment::new();
    let shared = Shared::start_under(&env, &["prlimit", "--nofile=160:160"], "", "");
    shared.configure(&env, e2e::PASSWORD);
    let package = env.package("job").file("train.sh", "echo done\n");
    for round in 0..rounds() {
        let flood = flood(&env, &shared);
        let jobs = ["one", "two", "three"].map(|job| format!("{job}-{round}"));
        for job in &jobs {
            env.submit(job, &package, &["-entry", "sh train.sh"]);
        }
        for job in &jobs {
            env.wait_for_status(job, "Succeeded");
        }
        drop(flood);
    }
}

/// The job takes whatever room there is, also what the server sets free for its own record.
#[test]
#[ignore = "needs permission to mount"]
fn a_job_that_fills_the_disk_can_be_killed() {
    let env = TestEnvironment::new();
    let folder = env.home().join(".paddle");
    let _disk = Disk::mount(&folder, 32 << 20);
    let eat = "echo up; while :; do head -c 65536 /dev/zero >> eaten 2>/dev/null; done\n";
    let package = env.package("eater").file("train.sh", eat);
    env.submit("eater", &package, &["-entry", "sh train.sh"]);
    env.wait_for_status("eater", "Running");
    let old = env.package("old").file("train.sh", "echo old\n");
    wait_until("the disk is full", || {
        let free = rustix::fs::statvfs(&folder).expect("it is mounted");
        (free.f_bavail == 0).then_some(())
    });
    // Whatever the server writes now takes its reserve, which the job eats.
    let submit = [
        "submit",
        "-jobname",
        "more",
        "-pservers",
        "0",
        "-entry",
        "true",
        old.arg(),
    ];
    let _ = env.paddlectl(&submit);
    env.paddlectl(&["kill", "eater"]).ok();
    wait_until("its workers end", || env.workers().is_empty().then_some(()));
    let eaten = wait_until("what it ate is found", || find(&folder, "eaten"));
    fs::remove_file(eaten).expect("it is a file");
    env.wait_for_status("eater", "Killed");
    env.paddlectl(&["kill", "-rm", "eater"]).ok();
    env.paddlectl(&["server", "stop"]).ok();
}

fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries.into_iter().find_map(|entry| {
        let path = entry.path();
        let kind = entry.file_type().ok()?;
        match kind.is_dir() {
            true => find(&path, name),
            false => (kind.is_file() && entry.file_name() == name).then_some(path),
        }
    })
}
