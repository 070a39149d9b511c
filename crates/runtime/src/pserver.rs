//! A parameter server that listens on its ports and says who it is.
//!
//! It holds no parameters yet: jobs that need them bring their own with `-psentry`.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::options::{Options, PserverError};

/// What a connection gets: enough for a person with `nc`, and for a probe.
const HELLO: &str = concat!(
    "paddlecloud pserver ",
    env!("CARGO_PKG_VERSION"),
    ": holds no parameters yet\n"
);

/// Listens until the process is ended. Either all ports are taken or it fails.
pub fn serve(options: Options) -> Result<(), PserverError> {
    let listeners = (options.port..options.port + options.ports)
        .map(|port| {
            TcpListener::bind((options.address, port)).map_err(|source| PserverError::Listen {
                address: options.address,
                port,
                source,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let last = options.port + options.ports - 1;
    println!(
        "listening on {} ports {} to {last}",
        options.address, options.port
    );
    println!("this parameter server holds no parameters yet; run your own with `-psentry`");
    let threads: Vec<_> = listeners
        .into_iter()
        .map(|listener| thread::spawn(move || greet_all(&listener)))
        .collect();
    for thread in threads {
        thread.join().expect("greeting threads never panic");
    }
    Ok(())
}

fn greet_all(listener: &TcpListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => greet(stream),
            Err(error) => eprintln!("a connection failed: {error}"),
        }
    }
}

/// A caller that went away is no concern of ours.
fn greet(mut stream: TcpStream) {
    let _ = stream.write_all(HELLO.as_bytes());
}
