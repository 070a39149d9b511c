//! Bare sockets: what is left when everything but moving and hashing the bytes is taken away.
//!
//! No HTTP, no journal, no file names: two processes, four connections, chunks of 4 MiB, each hashed by the sender and by the
//! receiver. No program that does the same work can be faster here.

use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::Contender;
use crate::stage::{Load, Stage};

const CONNECTIONS: u64 = 4;
const CHUNK: u64 = 4 << 20;
/// What is moved at a time stays in a core's own cache.
const STEP: usize = 256 << 10;
/// The arguments that make this program one of the two.
const SEND: &str = "bare-send";
const RECEIVE: &str = "bare-receive";

struct Bare {
    folder: PathBuf,
}

pub fn new(stage: &Stage) -> Box<dyn Contender> {
    Box::new(Bare {
        folder: stage.empty("bare"),
    })
}

impl Contender for Bare {
    fn name(&self) -> String {
        "bare sockets + BLAKE3".to_owned()
    }

    fn takes(&self, load: &Load) -> bool {
        !load.is_tree()
    }

    fn up(&self, load: &Load) -> Command {
        moving(&load.path, &self.kept(load))
    }

    fn down(&self, load: &Load, into: &Path) -> Command {
        moving(&self.kept(load), &into.join(load.name()))
    }

    fn kept(&self, load: &Load) -> PathBuf {
        self.folder.join(load.name())
    }
}

fn moving(from: &Path, to: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("a running program has a path"));
    command.arg(SEND).args([from, to]);
    command
}

/// Is one of the two, if this program was started as such.
pub fn played_a_part() -> bool {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [SEND, from, to] => send(Path::new(from), to),
        [RECEIVE, port, to, size] => {
            let number = |text: &str| text.parse().expect("a number");
            receive(number(port) as u16, Path::new(to), number(size));
        }
        _ => return false,
    }
    true
}

fn send(from: &Path, to: &str) {
    let file = File::open(from).expect("the load is ours");
    let size = file.metadata().expect("it is open").len();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let mut receiver = Command::new(env::current_exe().expect("a running program has a path"))
        .args([RECEIVE, &port, to, &size.to_string()])
        .spawn()
        .expect("it starts as this one did");
    thread::scope(|scope| {
        for lane in 0..CONNECTIONS {
            let (mut stream, _) = listener.accept().expect("the receiver comes");
            let file = &file;
            scope.spawn(move || {
                stream.write_all(&[lane as u8]).expect("it listens");
                let mut chunk = vec![0; CHUNK as usize];
                for (offset, len) in chunks(lane, size) {
                    let chunk = &mut chunk[..len];
                    let mut hasher = blake3::Hasher::new();
                    let mut at = offset;
                    for step in chunk.chunks_mut(STEP) {
                        file.read_exact_at(step, at).expect("the load does not change");
                        hasher.update(step);
                        at += step.len() as u64;
                    }
                    stream.write_all(chunk).expect("it listens");
                    stream.write_all(&name(&hasher)).expect("it listens");
                }
            });
        }
    });
    assert!(
        receiver.wait().expect("it was started").success(),
        "every chunk arrived"
    );
}

fn receive(port: u16, to: &Path, size: u64) {
    let file = File::create(to).expect("a file in our own folder");
    file.set_len(size).expect("room for it");
    let writing = Mutex::new(file);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let writing = &writing;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the sender waits");
                let mut lane = [0];
                stream.read_exact(&mut lane).expect("it sends");
                let mut step = vec![0; STEP];
                for (offset, len) in chunks(u64::from(lane[0]), size) {
                    let mut hasher = blake3::Hasher::new();
                    let mut done = 0;
                    while done < len {
                        let step = &mut step[..STEP.min(len - done)];
                        stream.read_exact(step).expect("it sends");
                        hasher.update(step);
                        let file = writing.lock().expect("nobody panics with it");
                        file.write_all_at(step, offset + done as u64)
                            .expect("room for it");
                        done += step.len();
                    }
                    let mut said = [0; blake3::OUT_LEN];
                    stream.read_exact(&mut said).expect("it sends");
                    assert_eq!(said, name(&hasher), "a chunk is what was sent");
                }
            });
        }
    });
}

/// Every fourth chunk, by offset and length.
fn chunks(lane: u64, size: u64) -> impl Iterator<Item = (u64, usize)> {
    let offsets = (lane..size.div_ceil(CHUNK)).step_by(CONNECTIONS as usize);
    offsets.map(move |index| (index * CHUNK, CHUNK.min(size - index * CHUNK) as usize))
}

fn name(hasher: &blake3::Hasher) -> [u8; blake3::OUT_LEN] {
    *hasher.finalize().as_bytes()
}
