//! A peer's server: started on a free port, ended when dropped.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use e2e::wait_until;

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts it and waits until it accepts connections.
    pub fn start(port: u16, command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program was found");
        let server = Self { child, port };
        wait_until("a peer's server must accept connections", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // Asked, not forced: nginx ends its own workers.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Where a program is; administrators' programs are not on everybody's path.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let also = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(also)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
